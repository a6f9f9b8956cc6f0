"""Folded arithmetic against torch, bit for bit."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tilesmith.analysis.scalar_arithmetic import convert, evaluate, is_same_constant, normalize
from tilesmith.dtypes import BF16, BOOL, F16, F32, F64, I8, I32, I64, U8, DType

TORCH = {
    BOOL: torch.bool,
    U8: torch.uint8,
    I8: torch.int8,
    I32: torch.int32,
    I64: torch.int64,
    F16: torch.float16,
    BF16: torch.bfloat16,
    F32: torch.float32,
    F64: torch.float64,
}
FLOATS = (F16, BF16, F32, F64)
FUNCTIONS = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "lt": torch.lt,
    "eq": torch.eq,
}
INTEGER_FUNCTIONS = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "floordiv": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "truncdiv": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "mod": torch.remainder,
    "fmod": torch.fmod,
    "and": torch.bitwise_and,
    "xor": torch.bitwise_xor,
    "maximum": torch.maximum,
}
UNARY = {"neg": torch.neg, "abs": torch.abs, "floor": torch.floor, "round": torch.round}


def scalar(value: float, dtype: DType) -> torch.Tensor:
    return torch.tensor(value, dtype=TORCH[dtype])


@given(
    st.sampled_from(FLOATS),
    st.sampled_from(sorted(FUNCTIONS)),
    st.floats(width=32),
    st.floats(width=32),
)
def test_float_arithmetic_rounds_like_torch(dtype: DType, fn: str, x: float, y: float) -> None:
    found = evaluate(fn, dtype, (x, y))
    if found is not None:
        expected = FUNCTIONS[fn](scalar(x, dtype), scalar(y, dtype)).item()
        assert is_same_constant(found, expected)


@given(st.sampled_from(FLOATS), st.sampled_from(sorted(UNARY)), st.floats(width=32))
def test_unary_functions_agree_with_torch(dtype: DType, fn: str, x: float) -> None:
    found = evaluate(fn, dtype, (x,))
    assert found is not None
    assert is_same_constant(found, UNARY[fn](scalar(x, dtype)).item())


@given(
    st.sampled_from((I8, I32, I64)),
    st.sampled_from(sorted(INTEGER_FUNCTIONS)),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**63), 2**63 - 1),
)
def test_integer_arithmetic_wraps_like_torch(dtype: DType, fn: str, x: int, y: int) -> None:
    lhs, rhs = normalize(x, dtype), normalize(y, dtype)
    assert lhs is not None
    assert rhs is not None
    divides = fn in ("floordiv", "truncdiv", "mod", "fmod")
    # The lowest integer divided by -1 traps in torch.
    if divides and (rhs == 0 or (rhs == -1 and lhs == dtype.lowest)):
        return
    found = evaluate(fn, dtype, (lhs, rhs))
    assert found == INTEGER_FUNCTIONS[fn](scalar(lhs, dtype), scalar(rhs, dtype)).item()


@given(st.sampled_from((F64, F32)), st.sampled_from(FLOATS), st.floats())
def test_float_casts_round_like_torch(source: DType, target: DType, x: float) -> None:
    found = convert(x, source, target)
    if found is not None:
        assert is_same_constant(found, scalar(x, source).to(TORCH[target]).item())


@given(st.sampled_from(tuple(TORCH)), st.integers(-(2**40), 2**40))
def test_integer_casts_agree_with_torch(target: DType, x: int) -> None:
    found = convert(x, I64, target)
    if found is not None:
        assert is_same_constant(found, scalar(x, I64).to(TORCH[target]).item())


@pytest.mark.parametrize(
    ("fn", "operands"), [("floordiv", (1, 0)), ("mod", (1, 0)), ("shl", (1, 40)), ("exp", (1,))]
)
def test_undefined_and_inexact_results_are_unknown(fn: str, operands: tuple[int, ...]) -> None:
    assert evaluate(fn, I32, operands) is None


@pytest.mark.parametrize("value", [math.nan, math.inf, 3e9, -3e9])
def test_float_that_fits_no_integer_is_unknown(value: float) -> None:
    assert convert(value, F32, I32) is None


def test_where_chooses() -> None:
    assert evaluate("where", F32, (True, 1.0, 2.0)) == 1.0
    assert evaluate("where", F32, (False, 1.0, 2.0)) == 2.0


def test_signs_of_zero_are_told_apart() -> None:
    assert not is_same_constant(0.0, -0.0)
    assert is_same_constant(math.nan, math.nan)
