"""Factors come out of maxima bit for bit, and stay where that would change a result."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.interpreted import run_function
from tests.passes.program_text import body_after, make_program
from tilesmith.backends.triton.warp_roles.segments import take_factors_out_of_maxima
from tilesmith.passes.eliminate_dead_code import eliminate_dead_code

COLUMNS = """
%cols = arange() : i32[60]
%ii = expand_dims(%i) {axes=[1]} : i32[t, 1]
%given = expand_dims(%f) {axes=[0, 1]} : f32[1, 1]
%jj = expand_dims(%cols) {axes=[0]} : i32[1, 60]
%tile = load(%w, none, [%ii, %jj]) : f32[t, 60]
"""
FACTOR = 0.18033688011112042


def program(factor=f"full() {{value={FACTOR}}}", kind="max", fn="mul", fill=None):
    body = f"""{COLUMNS}
    %factor = {factor} : f32[t, 60]
    %y0 = elementwise(%tile, %factor) {{fn="{fn}"}} : f32[t, 60]
    """
    last = "%y0"
    if fill is not None:
        body += f"%z = mask(%y0) {{fill={fill}, axes=[1]}} : f32[t, 60]\n"
        last = "%z"
    return make_program(f"""{body}
    %peak = reduce({last}) {{axis=1, kind="{kind}"}} : f32[t]
    store(%y, %peak, none, [%i])
    """)


def taken_out(function):
    return eliminate_dead_code(take_factors_out_of_maxima(function))


def is_taken_out(function) -> bool:
    lines = body_after(taken_out, function)
    (reduction,) = (i for i, line in enumerate(lines) if " = reduce(" in line)
    return any('fn="mul"' in line for line in lines[reduction:])


def hostile(seed: int) -> torch.Tensor:
    """Words of every kind: small, large, equal, not finite, of either sign of zero."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 1 << 32, size=(100, 60), dtype=np.uint32)
    found = torch.from_numpy(bits.view(np.float32).copy())
    found[10:40] = torch.from_numpy(rng.standard_normal((30, 60)).astype(np.float32))
    found[40:50] = 1e-45 * torch.from_numpy(rng.integers(-9, 9, (10, 60)).astype(np.float32))
    special = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 3.4e38])
    for row in range(50, 90):
        found[row] = special[torch.from_numpy(rng.integers(0, 6 if row % 2 else 4, 60))]
    found[90:95] = -0.0
    found[95:] = -float("inf")
    return found


def run(function, w: torch.Tensor) -> torch.Tensor:
    y = torch.full((100,), 7.0)
    tensors = {"x": torch.zeros(100), "y": y, "w": w, "h": torch.zeros(64, 64).bfloat16()}
    run_function(function, {**tensors, "a": 0, "f": 0.5, "c": True}, {"t": 16, "u": 16})
    return y


@pytest.mark.parametrize("fill", [None, "-inf", "-1e+30", "-7.3"])
@pytest.mark.parametrize("factor", [FACTOR, 1.4426950408889634, 1e-30, 3e38])
def test_results_are_the_same_bits(factor, fill):
    before = program(f"full() {{value={factor}}}", fill=fill)
    # A number that no other one becomes by the factor stays where it is.
    assert is_taken_out(before) or fill not in (None, "-inf")
    check_bits(before)


def test_low_numbers_move_only_where_the_factor_is_exact():
    """Fused with what follows, the product is not rounded: -1e30 minus itself was 3e22."""
    assert not is_taken_out(program(fill="-1e+30"))
    assert is_taken_out(program("full() {value=0.125}", fill="-1e+30"))


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("fill", [None, "-inf"])
def test_rounded_maxima_are_the_same_bits(dtype, fill):
    body = f"{COLUMNS}\n%r = cast(%tile) : {dtype}[t, 60]\n"
    last = "%r"
    if fill is not None:
        body += f"%z = mask(%r) {{fill={fill}, axes=[1]}} : {dtype}[t, 60]\n"
        last = "%z"
    before = make_program(f"""{body}
    %peak = reduce({last}) {{axis=1, kind="max"}} : {dtype}[t]
    %wide = cast(%peak) : f32[t]
    store(%y, %wide, none, [%i])
    """)
    lines = body_after(taken_out, before)
    (reduction,) = (line for line in lines if " = reduce(" in line)
    assert "f32[t]" in reduction
    check_bits(before)


def check_bits(before):
    for seed in range(3):
        w = hostile(seed)
        wanted, found = run(before, w), run(taken_out(before), w)
        assert torch.equal(wanted.isnan(), found.isnan())
        # Which zero is the larger one depends on the device, and equal words have equal bits.
        known = ~wanted.isnan()
        assert torch.equal(wanted[known], found[known])


@pytest.mark.parametrize(
    "options",
    [
        {"factor": "full() {value=-2.0}"},
        {"factor": "full() {value=0.0}"},
        {"factor": "full() {value=inf}"},
        {"factor": "full() {value=nan}"},
        {"factor": "broadcast(%given)"},
        {"kind": "min"},
        {"kind": "sum"},
        {"fn": "add"},
        {"fill": "0.0"},
    ],
    ids=str,
)
def test_others_stay(options):
    function = program(**options)
    assert body_after(take_factors_out_of_maxima, function) == body_after(lambda f: f, function)
