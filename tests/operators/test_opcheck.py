"""torch's own check of operators, on every kernel of the gallery."""

from __future__ import annotations

import pytest
import torch

from tests.examples.case import Case
from tests.examples.cases import EXAMPLES
from tests.examples.ports.ports import PORTS
from tilesmith.exc import NoOperator

CHECKS = ("test_schema", "test_faketensor", "test_autograd_registration")
NO_OPERATORS = {
    "matmul_bias_relu": "an argument is a function",
    "matmul_split_k_bias": "an argument is a function",
    "jsd_high": "its host code needs values of tensors",
    "jsd_mixed_labelled": "its host code needs values of tensors",
    "flex_attention_causal": "an argument is a BlockMask",
    "flex_attention_window": "an argument is a BlockMask",
}
"""Kernels that graphs end at, and why."""


@pytest.mark.parametrize("case", [*EXAMPLES, *PORTS], ids=str)
def test_gallery(case: Case):
    dtype = case.dtypes[0]
    args = case.kernel.normalize_args(*case.make_inputs(case.sizes[0], dtype, "cpu"))
    if case.name in NO_OPERATORS:
        with pytest.raises(NoOperator, match=NO_OPERATORS[case.name]):
            case.kernel.operator(args)
        return
    operator = case.kernel.operator(args)
    leaves = operator.leaves(args)
    checks = CHECKS[1:] if _has_small_floats(leaves) else CHECKS
    torch.library.opcheck(operator.definition, leaves, test_utils=checks)


def _has_small_floats(leaves: tuple[object, ...]) -> bool:
    """The check of schemas multiplies arguments, which torch cannot do in 8 bits on a CPU."""
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return any(t.is_floating_point() and t.element_size() == 1 for t in tensors)
