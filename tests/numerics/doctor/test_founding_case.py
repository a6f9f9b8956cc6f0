"""The second founding case at a reduced shape: which one is wrong, and why?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tilesmith as helion
from examples.dot_compress import dot_compress_bwd, dot_compress_fwd, reference
from tests.unordered_memory import LateStores, without_memory_order
from tilesmith.numerics.doctor.diagnose import diagnose
from tilesmith.numerics.doctor.findings import OURS, CauseKind, DiagnoseOptions, Scope
from tilesmith.numerics.doctor.report import Diagnosis
from tilesmith.numerics.inputs import random_tensor

BF16 = torch.bfloat16
B, M, D, K = 2, 75, 32, 16
CONFIG = helion.Config(block_sizes=[32, 16])
QUICK = DiagnoseOptions(repeats=3, check_batches=False, num_configs=1)


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    return random_tensor((B, M, D), BF16), random_tensor((B, M, K), BF16, seed=1)


def gradient_inputs() -> tuple[torch.Tensor, ...]:
    x, y = inputs()
    _, xty = reference(x, y)
    return random_tensor((B, M, K), BF16, seed=9), x, y, xty.to(BF16)


def forward_without_rounding(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What a fusing compiler may do: the intermediate stays in fp32 on its way to the product."""
    wide = torch.promote_types(x.dtype, torch.float32)
    xty = x.to(wide).transpose(1, 2) @ y.to(wide)
    return (x.to(wide) @ xty).to(x.dtype), xty.to(x.dtype)


def backward_without_rounding(
    grad_out: torch.Tensor, x: torch.Tensor, y: torch.Tensor, xty: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    wide = torch.promote_types(x.dtype, torch.float32)
    grad, left, right = grad_out.to(wide), x.to(wide), y.to(wide)
    grad_xty = left.transpose(1, 2) @ grad
    grad_x = grad @ xty.to(wide).transpose(1, 2) + right @ grad_xty.transpose(1, 2)
    return grad_x.to(x.dtype), (left @ grad_xty).to(x.dtype)


def test_forward_differs_by_the_rounding_of_the_intermediate() -> None:
    found = diagnose(dot_compress_fwd, inputs(), {"fused": forward_without_rounding}, QUICK)
    assert found.verdict.kind is CauseKind.ROUNDING
    assert "`xty` to bf16 at dot_compress.py:" in found.verdict.text
    assert found.verdict.closest == "fused"
    statements = [finding.text for finding in found.findings]
    assert "the kernel is deterministic" in statements
    assert "fused is closer to the truth than kernel" in statements
    pair = next(finding for finding in found.findings if finding.implementation == "fused")
    assert any("the level of roundings of intermediates to bf16" in text for text in pair.evidence)
    (rounding,) = [s for s in found.sensitivities if s.output == "out"]
    assert rounding.variable == "xty"
    assert 0.3 < rounding.share < 0.7
    assert not any(s.fault for s in found.statistics)


def test_backward_names_the_lines_whose_roundings_matter() -> None:
    args = gradient_inputs()
    found = diagnose(dot_compress_bwd, args, {"fused": backward_without_rounding}, QUICK)
    assert found.verdict.kind is CauseKind.ROUNDING
    assert found.verdict.closest == "fused"
    shares = {(s.output, s.variable): s.share for s in found.sensitivities}
    assert shares[("grad_y", "grad_xty")] > 0.3
    assert shares[("grad_x", "grad_xty")] > 0.1
    lines = {s.line.partition(" ")[0] for s in found.sensitivities if s.output == "grad_x"}
    assert {"through_xty", "grad_xty"} <= lines
    assert not any(s.fault for s in found.statistics)


def on_a_device_with_late_stores() -> Callable[..., Any]:
    device = LateStores()

    def run(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        launch = device.run(dot_compress_fwd, (x, y), CONFIG)
        return launch["out"], launch["xty"]

    return run


def diagnose_on_late_device() -> Diagnosis:
    options = DiagnoseOptions(repeats=3, check_batches=False, configs=[CONFIG, CONFIG])
    return diagnose(dot_compress_fwd, inputs(), {"device": on_a_device_with_late_stores()}, options)


@pytest.fixture(autouse=True)
def _bind_anew() -> None:
    dot_compress_fwd.reset()


def test_ordered_memory_is_deterministic_where_stores_come_late() -> None:
    found = diagnose_on_late_device()
    repeats = found.examination.agreement("device", Scope.REPEATS)
    assert repeats is not None
    assert repeats.is_same
    assert found.verdict.kind is CauseKind.ROUNDING


def test_a_forgotten_order_is_found_by_repeats_and_by_the_race_detector() -> None:
    with without_memory_order():
        found = diagnose_on_late_device()
    dot_compress_fwd.reset()
    repeats = found.examination.agreement("device", Scope.REPEATS)
    assert repeats is not None
    assert repeats.num_different > 0
    assert found.verdict.kind is CauseKind.RACE
    detected = next(f for f in found.findings if f.implementation == OURS)
    assert "writes it, and loads it with no barrier in between" in detected.text
    assert "dot_compress.py:" in detected.text
    assert any(f.kind is CauseKind.RACE and f.implementation == "device" for f in found.findings)


def test_only_without_the_order_is_the_intermediate_loaded_back() -> None:
    target = "hip:gfx942"
    ordered = dot_compress_fwd.bind(inputs(), target=target).to_triton_code()
    dot_compress_fwd.reset()
    with without_memory_order():
        unordered = dot_compress_fwd.bind(inputs(), target=target).to_triton_code()
    dot_compress_fwd.reset()
    assert "tl.load(xty" not in ordered
    assert "tl.load(xty" in unordered
    assert "tl.debug_barrier()" not in unordered
