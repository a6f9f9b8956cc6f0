"""Every scalar function against Python integers or float64, on tiles and on scalars."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.interpreter.run_text import in_program, over_tiles, run_text
from tilesmith.dtypes import ALL_DTYPES, DTYPES_BY_NAME, DType, ElementKind
from tilesmith.interpreter.scalar_functions import INTEGER_FUNCTIONS, SCALAR_FUNCTIONS_TORCH
from tilesmith.interpreter.torch_dtypes import from_torch, to_torch
from tilesmith.ir.ops.elementwise import SCALAR_FUNCTIONS, ResultKind

INTEGERS = [dtype for dtype in ALL_DTYPES if dtype.is_integer]
FLOATS = [DTYPES_BY_NAME[name] for name in ("f16", "bf16", "f32", "f64")]


def test_every_scalar_function_has_a_meaning():
    assert set(SCALAR_FUNCTIONS_TORCH) == set(SCALAR_FUNCTIONS)
    assert set(INTEGER_FUNCTIONS) < set(SCALAR_FUNCTIONS)


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
def test_dtypes_map_to_torch_and_back(dtype: DType):
    assert from_torch(to_torch(dtype)) == dtype
    assert torch.empty(0, dtype=to_torch(dtype)).itemsize == dtype.itemsize


def test_unsupported_torch_dtypes_are_refused():
    with pytest.raises(TypeError, match="complex64"):
        from_torch(torch.complex64)


def apply(fn: str, *args: torch.Tensor, block: int = 4) -> torch.Tensor:
    """``fn`` over tiles of one-dimensional tensors, through loads and a store."""
    is_bool = SCALAR_FUNCTIONS[fn].result is ResultKind.BOOL
    out = torch.empty(args[-1].shape, dtype=torch.bool if is_bool else args[-1].dtype)
    names = [f"x{position}" for position in range(len(args))]
    lines = [
        f"%v{name} = load(%{name}, none, [%i]) : {from_torch(arg.dtype)}[m]"
        for name, arg in zip(names, args)
    ]
    operands = ", ".join(f"%v{name}" for name in names)
    lines.append(f'%r = elementwise({operands}) {{fn="{fn}"}} : {from_torch(out.dtype)}[m]')
    lines.append("store(%out, %r, none, [%i])")
    body = over_tiles("\n".join(lines), len(out))
    run_text(body, {**dict(zip(names, args)), "out": out}, {"m": block})
    return out


def apply_to_scalars(fn: str, *args: torch.Tensor) -> torch.Tensor:
    """``fn`` over element after element, as scalars."""
    is_bool = SCALAR_FUNCTIONS[fn].result is ResultKind.BOOL
    out = torch.empty(args[-1].shape, dtype=torch.bool if is_bool else args[-1].dtype)
    names = [f"x{position}" for position in range(len(args))]
    lines = [
        f"%v{name} = load(%{name}, none, [%j]) : {from_torch(arg.dtype)}[]"
        for name, arg in zip(names, args)
    ]
    operands = ", ".join(f"%v{name}" for name in names)
    body = f"""
  %end = full() {{value={len(out)}}} : i64[]
  grid([%zero], [%end]) {{blocks=[""]}} (%j: i64[]) {{
    {chr(10).join(lines)}
    %r = elementwise({operands}) {{fn="{fn}"}} : {from_torch(out.dtype)}[]
    store(%out, %r, none, [%j])
  }}"""
    run_text(body, {**dict(zip(names, args)), "out": out}, {})
    return out


def wrap(value: int, dtype: DType) -> int:
    value %= 1 << dtype.bits
    return (
        value - (1 << dtype.bits)
        if dtype.kind is ElementKind.SIGNED and value >> (dtype.bits - 1)
        else value
    )


def truncated_quotient(a: int, b: int) -> int:
    return int(Fraction(a, b)) if b else 0


INTEGER_REFERENCES: dict[str, Callable[..., Any]] = {
    "neg": lambda a: -a,
    "abs": abs,
    "not": lambda a: ~a,
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "maximum": max,
    "minimum": min,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "floordiv": lambda a, b: a // b if b else 0,
    "mod": lambda a, b: a % b if b else 0,
    "truncdiv": truncated_quotient,
    "fmod": lambda a, b: a - b * truncated_quotient(a, b) if b else 0,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "fma": lambda a, b, c: a * b + c,
}


def integers_of(dtype: DType) -> st.SearchStrategy[int]:
    low, high = int(dtype.lowest), int(dtype.highest)
    edges = st.sampled_from([low, low + 1, 0, 1, high - 1, high, wrap(-1, dtype)])
    return edges | st.integers(low, high)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("fn", INTEGER_REFERENCES)
@given(data=st.data())
@settings(max_examples=5)
def test_integer_functions_wrap_as_their_type_does(fn: str, dtype: DType, data: st.DataObject):
    arity = SCALAR_FUNCTIONS[fn].arity
    rows = data.draw(
        st.lists(st.tuples(*[integers_of(dtype)] * arity), min_size=1, max_size=9), label="rows"
    )
    args = [torch.tensor(column, dtype=to_torch(dtype)) for column in zip(*rows)]
    is_bool = SCALAR_FUNCTIONS[fn].result is ResultKind.BOOL
    exact = [INTEGER_REFERENCES[fn](*row) for row in rows]
    expected = exact if is_bool else [wrap(value, dtype) for value in exact]
    assert apply(fn, *args).tolist() == expected
    assert apply_to_scalars(fn, *args).tolist() == expected


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("fn", ["shl", "shr"])
def test_shifts_are_arithmetic_for_signed_types(fn: str, dtype: DType):
    values = [int(dtype.lowest), int(dtype.highest), 1, 0, wrap(-3, dtype)]
    pairs = [(value, amount) for value in values for amount in (0, 1, dtype.bits - 1)]
    args = [torch.tensor(column, dtype=to_torch(dtype)) for column in zip(*pairs)]
    exact = [a << b if fn == "shl" else a >> b for a, b in pairs]
    expected = [wrap(value, dtype) for value in exact]
    assert apply(fn, *args).tolist() == expected
    assert apply_to_scalars(fn, *args).tolist() == expected


@pytest.mark.parametrize("fn", ["and", "or", "xor", "eq", "ne", "maximum", "minimum"])
def test_functions_of_two_booleans(fn: str):
    reference = INTEGER_REFERENCES[fn]
    pairs = [(a, b) for a in (False, True) for b in (False, True)]
    args = [torch.tensor(column) for column in zip(*pairs)]
    expected = [bool(reference(a, b)) for a, b in pairs]
    assert apply(fn, *args).tolist() == expected
    assert apply_to_scalars(fn, *args).tolist() == expected


def test_not_of_booleans_is_logical():
    x = torch.tensor([True, False])
    assert apply("not", x).tolist() == [False, True]
    assert apply_to_scalars("not", x).tolist() == [False, True]


def _ufunc(function: Callable[[float], float]) -> np.vectorize:
    return np.vectorize(function, otypes=[np.float64])


FLOAT_REFERENCES: dict[str, tuple[Callable[..., np.ndarray], float, float]] = {
    "neg": (np.negative, -9, 9),
    "abs": (np.abs, -9, 9),
    "floor": (np.floor, -9, 9),
    "ceil": (np.ceil, -9, 9),
    "round": (np.rint, -9, 9),
    "trunc": (np.trunc, -9, 9),
    "sqrt": (np.sqrt, 0, 9),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 0.01, 9),
    "exp": (np.exp, -9, 9),
    "exp2": (np.exp2, -9, 9),
    "expm1": (np.expm1, -9, 9),
    "log": (np.log, 0.01, 9),
    "log2": (np.log2, 0.01, 9),
    "log10": (np.log10, 0.01, 9),
    "log1p": (np.log1p, -0.9, 9),
    "sin": (np.sin, -9, 9),
    "cos": (np.cos, -9, 9),
    "tan": (np.tan, -1.5, 1.5),
    "asin": (np.arcsin, -1, 1),
    "acos": (np.arccos, -1, 1),
    "atan": (np.arctan, -9, 9),
    "sinh": (np.sinh, -9, 9),
    "cosh": (np.cosh, -9, 9),
    "tanh": (np.tanh, -9, 9),
    "asinh": (np.arcsinh, -9, 9),
    "acosh": (np.arccosh, 1, 9),
    "atanh": (np.arctanh, -0.99, 0.99),
    "erf": (_ufunc(math.erf), -3, 3),
    "erfc": (_ufunc(math.erfc), -3, 3),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), -9, 9),
    "add": (np.add, -9, 9),
    "sub": (np.subtract, -9, 9),
    "mul": (np.multiply, -9, 9),
    "div": (np.divide, 0.1, 9),
    "floordiv": (np.floor_divide, 0.1, 9),
    "truncdiv": (lambda a, b: np.trunc(a / b), 0.1, 9),
    "mod": (np.mod, 0.1, 9),
    "fmod": (np.fmod, 0.1, 9),
    "pow": (np.power, 0.1, 4),
    "atan2": (np.arctan2, -9, 9),
    "maximum": (np.maximum, -9, 9),
    "minimum": (np.minimum, -9, 9),
}


def error_bound(reference: np.ndarray, dtype: DType) -> np.ndarray:
    """Two units in the last place of the type, plus what the libraries' own fp64 may differ by."""
    exponent = np.floor(np.log2(np.maximum(np.abs(reference), 1e-4)))
    return 2 * np.exp2(exponent - (dtype.precision - 1))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("fn", FLOAT_REFERENCES)
def test_float_functions_agree_with_float64(fn: str, dtype: DType):
    reference, low, high = FLOAT_REFERENCES[fn]
    generator = torch.Generator().manual_seed(7)
    args = [
        (torch.rand(37, generator=generator, dtype=torch.float64) * (high - low) + low).to(
            to_torch(dtype)
        )
        for _ in range(SCALAR_FUNCTIONS[fn].arity)
    ]
    expected = reference(*(arg.double().numpy() for arg in args))
    error = np.abs(apply(fn, *args, block=5).double().numpy() - expected)
    assert (error <= error_bound(expected, dtype)).all()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_scalar_floats_round_like_tiles(dtype: DType):
    generator = torch.Generator().manual_seed(7)
    args = [torch.randn(11, generator=generator).to(to_torch(dtype)) for _ in range(2)]
    for fn in ("add", "mul", "lt"):
        assert torch.equal(apply(fn, *args), apply_to_scalars(fn, *args))


def test_float8_is_computed_in_float32_and_rounded():
    x = torch.tensor([1.0, 1.5, -2.0]).to(torch.float8_e4m3fn)
    y = torch.tensor([0.3, 0.4, 0.1]).to(torch.float8_e4m3fn)
    expected = (x.float() * y.float()).to(torch.float8_e4m3fn)
    assert torch.equal(apply("mul", x, y).float(), expected.float())
    assert apply("lt", x, y).tolist() == [False, False, True]


@pytest.mark.parametrize("dtype", [torch.uint32, torch.uint64])
@given(data=st.data())
def test_mulhi_is_the_upper_half_of_the_product(dtype: torch.dtype, data: st.DataObject):
    numbers = st.lists(integers_of(from_torch(dtype)), min_size=5, max_size=5)
    a, b = data.draw(numbers), data.draw(numbers)
    expected = [x * y >> from_torch(dtype).bits for x, y in zip(a, b)]
    args = torch.tensor(a, dtype=dtype), torch.tensor(b, dtype=dtype)
    assert apply("mulhi", *args).tolist() == expected
    assert apply_to_scalars("mulhi", *args).tolist() == expected


def test_round_goes_to_even():
    x = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, 3.5])
    assert apply("round", x).tolist() == [0.0, 2.0, 2.0, 0.0, -2.0, 4.0]


@pytest.mark.parametrize("fn", ["maximum", "minimum"])
@pytest.mark.parametrize("length", [1, 16, 37])
def test_of_equal_zeros_the_first_is_the_extreme_one(fn: str, length: int):
    # Torch's own functions give one or the other, by whether a whole vector is left.
    zero = torch.zeros(length)
    assert torch.signbit(apply(fn, -zero, zero, block=64)).all()
    assert not torch.signbit(apply(fn, zero, -zero, block=64)).any()


@pytest.mark.parametrize("fn", ["maximum", "minimum"])
def test_maximum_and_minimum_propagate_nan(fn: str):
    x, y = torch.tensor([math.nan, 1.0, 2.0]), torch.tensor([1.0, math.nan, 3.0])
    assert torch.isnan(apply(fn, x, y)).tolist() == [True, True, False]


def test_float_remainders_follow_their_rounding():
    x, y = torch.tensor([7.0, -7.0, 7.0, -7.0]), torch.tensor([2.0, 2.0, -2.0, -2.0])
    assert apply("floordiv", x, y).tolist() == [3, -4, -4, 3]
    assert apply("truncdiv", x, y).tolist() == [3, -3, -3, 3]
    assert apply("mod", x, y).tolist() == [1, 1, -1, -1]
    assert apply("fmod", x, y).tolist() == [1, -1, 1, -1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_fma_rounds_once(dtype: torch.dtype):
    tiny = torch.finfo(dtype).eps
    a = torch.tensor([1 + tiny], dtype=dtype)
    c = torch.tensor([-(1 + 2 * tiny)], dtype=dtype)
    # (1 + e)^2 - (1 + 2e) is e^2 exactly; rounding the product first would give 0.
    assert apply("fma", a, a, c).double().item() == tiny**2


def test_isnan_and_isinf():
    x = torch.tensor([math.nan, math.inf, -math.inf, 0.0])
    assert apply("isnan", x).tolist() == [True, False, False, False]
    assert apply("isinf", x).tolist() == [False, True, True, False]


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint32, torch.bool])
def test_where_chooses_lane_by_lane(dtype: torch.dtype):
    condition = torch.tensor([True, False, True, False, False])
    a, b = torch.arange(5).to(dtype), torch.arange(5, 10).to(dtype)
    expected = [x if c else y for c, x, y in zip(condition, a.tolist(), b.tolist())]
    assert apply("where", condition, a, b).tolist() == expected
    assert apply_to_scalars("where", condition, a, b).tolist() == expected


def cast(x: torch.Tensor, dtype: torch.dtype, *, bitcast: bool = False) -> torch.Tensor:
    out = torch.empty(x.shape, dtype=dtype)
    flag = "{bitcast=true}" if bitcast else ""
    source, target = from_torch(x.dtype), from_torch(dtype)
    run_text(
        over_tiles(
            f"""
      %v = load(%x, none, [%i]) : {source}[m]
      %r = cast(%v) {flag} : {target}[m]
      store(%out, %r, none, [%i])""",
            len(x),
        ),
        {"x": x, "out": out},
        {"m": 3},
    )
    scalars = torch.empty_like(out)
    run_text(
        f"""
  %end = full() {{value={len(x)}}} : i64[]
  grid([%zero], [%end]) {{blocks=[""]}} (%j: i64[]) {{
    %v = load(%x, none, [%j]) : {source}[]
    %r = cast(%v) {flag} : {target}[]
    store(%out, %r, none, [%j])
  }}""",
        {"x": x, "out": scalars},
        {},
    )
    assert out.view(torch.uint8).tolist() == scalars.view(torch.uint8).tolist()
    return out


def test_float_to_integer_truncates():
    x = torch.tensor([1.9, -1.9, 0.5, -0.5, 100.0])
    assert cast(x, torch.int32).tolist() == [1, -1, 0, 0, 100]
    assert cast(x.half(), torch.int64).tolist() == [1, -1, 0, 0, 100]


def test_cast_to_bool_asks_for_nonzero():
    assert cast(torch.tensor([0.5, 0.0, -0.0, math.nan]), torch.bool).tolist() == [
        True,
        False,
        False,
        True,
    ]
    assert cast(torch.tensor([256, 0, -1]), torch.bool).tolist() == [True, False, True]


@pytest.mark.parametrize("source", INTEGERS, ids=str)
@pytest.mark.parametrize("target", INTEGERS, ids=str)
def test_integer_casts_keep_the_low_bits(source: DType, target: DType):
    values = [int(source.lowest), int(source.highest), 0, 1, wrap(-1, source), 77]
    x = torch.tensor(values, dtype=to_torch(source))
    assert cast(x, to_torch(target)).tolist() == [wrap(value, target) for value in values]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_integer_to_float_rounds_to_nearest_even(dtype: torch.dtype):
    values = [2**24 + 1, 2**24 + 3, 2**53 + 1, 2**62 + 1, 2049, -2051, 0]
    with np.errstate(over="ignore"):
        expected = np.array(values, dtype=np.int64).astype(str(dtype).removeprefix("torch."))
    assert cast(torch.tensor(values), dtype).tolist() == expected.tolist()


def test_float_narrowing_rounds_to_nearest_even():
    x = torch.tensor([1 + 2**-11, 1 + 3 * 2**-11, 1e6, 2**-25], dtype=torch.float32)
    with np.errstate(over="ignore"):
        expected = x.numpy().astype(np.float16).tolist()
    assert cast(x, torch.float16).tolist() == expected
    assert cast(torch.tensor([1 + 2**-8, 1 + 3 * 2**-8]), torch.bfloat16).tolist() == [
        1.0,
        1.015625,
    ]


def test_bitcast_keeps_the_bits():
    x = torch.tensor([1.0, -0.0, math.inf])
    assert cast(x, torch.int32, bitcast=True).tolist() == x.numpy().view(np.int32).tolist()
    u = torch.tensor([2**32 - 1, 0, 7], dtype=torch.uint32)
    assert cast(u, torch.int32, bitcast=True).tolist() == [-1, 0, 7]


def test_an_index_used_in_two_types_has_both():
    out = torch.zeros(4, dtype=torch.uint32)
    body = """
    %t = arange() : i64[m]
    %wide = elementwise(%t, %t) {fn="xor"} : i64[m]
    %narrow = cast(%t) : u32[m]
    %r = elementwise(%narrow, %narrow) {fn="mulhi"} : u32[m]
    %low = cast(%wide) : u32[m]
    %s = elementwise(%r, %low) {fn="add"} : u32[m]
    store(%out, %s, none, [%t])"""
    run_text(in_program(body), {"out": out}, {"m": 4})
    assert out.tolist() == [0, 0, 0, 0]


def test_index_arithmetic_stays_exact_and_wraps():
    out = torch.zeros(4, dtype=torch.int32)
    body = """
    %t = arange() : i32[m]
    %big = full() {value=2147483646} : i32[m]
    %s = elementwise(%t, %big) {fn="add"} : i32[m]
    %j = arange() : i64[m]
    store(%out, %s, none, [%j])"""
    run_text(in_program(body), {"out": out}, {"m": 4})
    assert out.tolist() == [2147483646, 2147483647, -2147483648, -2147483647]
