"""Kept roundings happen in the fp64 form of a function, and only those."""

from __future__ import annotations

import pytest
import torch

from tests.interpreted import run_function
from tests.passes.program_text import make_program
from tilesmith.ir.function import Function
from tilesmith.ir.types import Value
from tilesmith.ir.verifier import verify_function
from tilesmith.passes.roundings import find_roundings, keep_roundings, widen_floats

SIZES = {"t": 16, "u": 4, "fixed": 8}
BODY = """
    %v = load(%x, none, [%i]) : f32[t]
    %narrow = cast(%v) : NARROW[t]
    %wide = cast(%narrow) : f32[t]
    %e = elementwise(%wide) {fn="exp"} : f32[t]
    store(%y, %e, none, [%i])
"""


def run(function: Function, kept: list[Value]) -> tuple[torch.Tensor, torch.Tensor]:
    """The inputs, and what the fp64 form with these roundings leaves in ``y``."""
    wide = widen_floats(keep_roundings(function, kept))
    verify_function(wide)
    x = torch.randn(100, generator=torch.Generator().manual_seed(0))
    y = torch.zeros(100, dtype=torch.float64)
    others = {
        "w": torch.zeros(100, 60),
        "h": torch.zeros(64, 64).to(torch.bfloat16),
        "a": 3,
        "f": 0.1,
        "c": True,
    }
    run_function(wide, {"x": x, "y": y, **others}, SIZES)
    return x, y


def values_of(function: Function) -> list[Value]:
    return [rounding.value for rounding in find_roundings(function)]


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("bf16", torch.bfloat16), ("f16", torch.float16), ("f8e4m3", torch.float8_e4m3fn)],
)
def test_a_kept_rounding_happens_and_the_others_do_not(name: str, dtype: torch.dtype) -> None:
    function = make_program(BODY.replace("NARROW", name))
    narrow, exponential = values_of(function)
    x, y = run(function, [narrow])
    assert torch.equal(y, x.to(dtype).double().exp())
    x, y = run(function, [exponential])
    assert torch.equal(y, x.double().exp().float().double())
    x, y = run(function, [narrow, exponential])
    assert torch.equal(y, x.to(dtype).double().exp().float().double())
    x, y = run(function, [])
    assert torch.equal(y, x.double().exp())


def test_scalars_can_be_kept_too() -> None:
    function = make_program("""
    %s = elementwise(%f, %f) {fn="mul"} : f32[]
    %v = load(%x, none, [%i]) : f32[t]
    %one = expand_dims(%s) {axes=[0]} : f32[1]
    %spread = broadcast(%one) : f32[t]
    %p = elementwise(%v, %spread) {fn="mul"} : f32[t]
    store(%y, %p, none, [%i])
""")
    square = values_of(function)[0]
    x, y = run(function, [square])
    f = torch.tensor(0.1)
    assert torch.equal(y, x.double() * (f.double() * f.double()).float().double())


def test_nothing_kept_is_the_same_function() -> None:
    function = make_program(BODY.replace("NARROW", "bf16"))
    assert keep_roundings(function, []) is function
