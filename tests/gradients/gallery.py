"""Which kernels of the gallery have a derived gradient, which have none, and why."""

from __future__ import annotations

from tests.examples.case import Case
from tests.examples.cases import EXAMPLES
from tests.examples.ports.ports import PORTS

CASES: tuple[Case, ...] = (*EXAMPLES, *PORTS)

REFUSED: dict[str, str] = {
    "split_k_barrier": "is read and written by the same kernel",
    "all_gather_matmul": "programs wait for each other",
    "stochastic_rounding": "floats are made of bits that were computed",
    "adamw": "is changed in place",
}
"""Kernels without a derived gradient, and what the error says."""

WITHOUT_REFERENCE: dict[str, str] = {
    "grpo_loss_fwd_bare": "the reference takes the old probabilities for constants",
    "bf16xint16_gemm": "the reference does not round factors to bf16",
    "int16xbf16_gemm": "the reference does not round factors to bf16",
    "cholesky": "the reference spreads the gradient over both triangles",
    "jagged_dense_add": "the reference writes into its argument",
    "fp8_quantise_groups": "the reference does not round to bytes",
    **dict.fromkeys(
        ("all_reduce", "reduce_shard", "add_mesh_row"), "arguments are lists of buffers"
    ),
    **dict.fromkeys(
        ("geglu_bwd", "swiglu_bwd", "rope_bwd", "grpo_loss_bwd", "grpo_loss_bwd_bare"),
        "the reference is a gradient itself and gives none",
    ),
    **dict.fromkeys(
        ("jsd_low", "jsd_high", "jsd_mixed", "jsd_mixed_labelled"),
        "the reference is a gradient itself and gives none",
    ),
}
"""Kernels whose fp64 reference has no gradient to compare with, or another one."""

WITHOUT_FLOATS: dict[str, str] = {
    "moe_sort_by_expert": "integers only",
    **dict.fromkeys(("fp8_attention", "nvfp4_gemm"), "bytes only"),
    "nms_find_overlaps": "a matrix of bools",
    "nms_keep_first": "bools only",
}
"""Kernels whose results have no gradient."""
