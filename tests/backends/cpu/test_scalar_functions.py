from __future__ import annotations

import ctypes
import ctypes.util
import math
from functools import cache

import pytest
import torch

from tests.backends.cpu.native_function import (
    AVX2,
    HOST,
    SCALAR,
    SSE,
    LaneFunction,
    Machine,
    NativeFunctions,
)
from tilesmith.backends.cpu.llvm.registers import number, register_element
from tilesmith.backends.cpu.math.scalar_functions import SCALAR_FUNCTIONS_LLVM, apply
from tilesmith.dtypes import (
    BF16,
    BOOL,
    F8E4M3,
    F8E5M2,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    DType,
    ElementKind,
)
from tilesmith.interpreter.scalar_functions import (
    INTEGER_FUNCTIONS,
    SCALAR_FUNCTIONS_TORCH,
    wrap_integer,
)
from tilesmith.interpreter.torch_dtypes import to_torch
from tilesmith.ir.ops.elementwise import SCALAR_FUNCTIONS, ResultKind

INTEGERS = (U8, U16, U32, U64, I8, I16, I32, I64)
FLOATS = (F8E4M3, F8E5M2, F16, BF16, F32, F64)
MACHINES = (HOST, SCALAR, AVX2, SSE)


def _words(text: str) -> list[str]:
    return text.split()


OF_INTEGERS = _words(
    "neg abs floor ceil round trunc not isnan isinf add sub mul maximum minimum and or xor "
    "floordiv truncdiv mod fmod shl shr pow eq ne lt le gt ge fma where"
)
OF_FLOATS = _words(
    "neg abs floor ceil round trunc sqrt rsqrt isnan isinf add sub mul div maximum minimum "
    "floordiv truncdiv mod fmod eq ne lt le gt ge where"
)
OF_BOOLEANS = _words("not and or xor add mul maximum minimum eq ne lt le gt ge where")


def functions_of(names: list[str], dtype: DType) -> list[LaneFunction]:
    return [_lane_function(name, dtype) for name in names]


def _lane_function(name: str, dtype: DType) -> LaneFunction:
    function = SCALAR_FUNCTIONS[name]
    first = BOOL if name == "where" else dtype
    inputs = (first, dtype, dtype)[: function.arity]
    output = BOOL if function.result is ResultKind.BOOL else dtype
    return LaneFunction(f"{name}_{dtype}", inputs, output, lambda b, *x: apply(b, name, dtype, x))


def pairs_of(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Each value with each."""
    count = len(values)
    places = torch.arange(count)
    return values[places.repeat_interleave(count)], values[places.repeat(count)]


def operands(name: str, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
    left, right = pairs_of(values)
    if name == "where":
        return (torch.arange(len(left)) % 3 == 0, left, right)
    third = left[torch.arange(len(left)).flip(0)]
    return (left, right, third)[: SCALAR_FUNCTIONS[name].arity]


def assert_same(name: str, actual: torch.Tensor, expected: torch.Tensor) -> None:
    if actual.dtype.is_floating_point:
        actual, expected = actual.double(), expected.double()
    torch.testing.assert_close(
        actual, expected, rtol=0, atol=0, equal_nan=True, msg=lambda text: f"{name}: {text}"
    )


def integer_edges(dtype: DType) -> list[int]:
    low, high = int(dtype.lowest), int(dtype.highest)
    near = {0, 1, 2, 3, 5, 7, 10, 31, 63, 64, 100, low, low + 1, high, high - 1, high // 2}
    near |= {dtype.bits, dtype.bits - 1}
    return sorted(near | {-v for v in (1, 2, 3, 5, 10) if dtype.kind is ElementKind.SIGNED})


FLOAT_EDGES = torch.tensor(
    [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, -7.0, 0.3, -0.7, 5.5, 100.0, -13.7,
     math.inf, -math.inf, math.nan, 4097.3, 65504.0, 1e-6, -1e-7, 6e-39, 8388609.0, 1e30, -3e38,
     1.4e-45],
    dtype=torch.float64,
)  # fmt: skip


@cache
def native(machine: Machine, dtype: DType) -> NativeFunctions:
    names = OF_FLOATS if dtype.is_float else OF_BOOLEANS if dtype.is_bool else OF_INTEGERS
    return NativeFunctions(functions_of(names, dtype), machine)


def test_every_scalar_function_has_its_row():
    assert set(SCALAR_FUNCTIONS_LLVM) == set(SCALAR_FUNCTIONS)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_are_computed_as_exactly_and_then_wrapped(dtype):
    _check_integers(HOST, dtype, OF_INTEGERS)


@pytest.mark.parametrize("machine", [SCALAR, AVX2, SSE], ids=str)
@pytest.mark.parametrize("dtype", [U8, I16, I32, U32, I64], ids=str)
def test_integers_on_other_machines(machine, dtype):
    _check_integers(machine, dtype, OF_INTEGERS)


def _check_integers(machine: Machine, dtype: DType, names: list[str]) -> None:
    edges = torch.tensor(integer_edges(dtype), dtype=to_torch(dtype))
    for name in names:
        args = operands(name, edges)
        if name == "pow":
            # Exact powers with huge exponents are too large for Python.
            small = torch.tensor([abs(exponent) < 70 for exponent in args[1].tolist()])
            args = tuple(arg[small] for arg in args)
        function = INTEGER_FUNCTIONS[name]
        output = BOOL if SCALAR_FUNCTIONS[name].result is ResultKind.BOOL else dtype
        rows = zip(*(arg.tolist() for arg in args))
        expected = [wrap_integer(_within(name, dtype, function, row), output) for row in rows]
        actual = native(machine, dtype)(f"{name}_{dtype}", *args)
        assert_same(name, actual, torch.tensor(expected, dtype=to_torch(output)))


def _within(name, dtype, function, row):
    # Scalars of the interpreter are shifted as 64-bit numbers whatever their type.
    if name in ("shl", "shr") and not 0 <= row[1] < dtype.bits:
        return -1 if name == "shr" and row[0] < 0 else 0
    return function(*row)


@pytest.mark.parametrize("dtype", [U8, I8, I16, I32, I64], ids=str)
def test_integers_agree_with_the_tensors_of_the_interpreter(dtype):
    edges = torch.tensor(integer_edges(dtype), dtype=to_torch(dtype))
    for name in OF_INTEGERS:
        args = operands(name, edges)
        actual = native(HOST, dtype)(f"{name}_{dtype}", *args)
        assert_same(name, actual, SCALAR_FUNCTIONS_TORCH[name](*args))


@pytest.mark.parametrize("dtype", [I8, I32, U16, I64], ids=str)
def test_division_by_constants(dtype):
    edges = torch.tensor(integer_edges(dtype), dtype=to_torch(dtype))
    divisors = [0, 1, 2, 3, 7, 10, 16, 100] + [-1, -2, -7] * (dtype.kind is ElementKind.SIGNED)
    names = [(f, d) for f in ("floordiv", "mod", "truncdiv", "fmod") for d in divisors]

    def emitter(fn: str, divisor: int):
        def emit(b, x):
            return apply(b, fn, dtype, [x, number(register_element(dtype), divisor, x.lanes)])

        return emit

    for machine in (HOST, SCALAR):
        functions = [
            LaneFunction(f"f{i}", (dtype,), dtype, emitter(*n)) for i, n in enumerate(names)
        ]
        compiled = NativeFunctions(functions, machine)
        for i, (fn, divisor) in enumerate(names):
            expected = [INTEGER_FUNCTIONS[fn](x, divisor) for x in edges.tolist()]
            wrapped = [wrap_integer(value, dtype) for value in expected]
            assert_same(fn, compiled(f"f{i}", edges), torch.tensor(wrapped, dtype=edges.dtype))


@pytest.mark.parametrize("dtype", [U32, U64], ids=str)
def test_the_high_half_of_a_product(dtype):
    edges = torch.tensor(integer_edges(dtype), dtype=to_torch(dtype))
    left, right = pairs_of(edges)
    expected = [(x * y) >> dtype.bits for x, y in zip(left.tolist(), right.tolist())]
    for machine in MACHINES:
        compiled = NativeFunctions(functions_of(["mulhi"], dtype), machine)
        actual = compiled(f"mulhi_{dtype}", left, right)
        assert_same("mulhi", actual, torch.tensor(expected, dtype=edges.dtype))


@pytest.mark.parametrize("machine", MACHINES, ids=str)
def test_booleans(machine):
    for name in OF_BOOLEANS:
        args = operands(name, torch.tensor([False, True]))
        actual = native(machine, BOOL)(f"{name}_{BOOL}", *args)
        assert_same(name, actual, SCALAR_FUNCTIONS_TORCH[name](*args))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_floats_are_what_the_interpreter_says(dtype):
    _check_floats(HOST, dtype)


@pytest.mark.parametrize("machine", [SCALAR, AVX2, SSE], ids=str)
@pytest.mark.parametrize("dtype", [F32, F16, F64], ids=str)
def test_floats_on_other_machines(machine, dtype):
    _check_floats(machine, dtype)


def _check_floats(machine: Machine, dtype: DType) -> None:
    generator = torch.Generator().manual_seed(0)
    some = torch.randn(40, generator=generator, dtype=torch.float64) * 10
    values = torch.cat([FLOAT_EDGES, some]).to(to_torch(dtype))
    for name in OF_FLOATS:
        args = operands(name, values)
        if name in ("mod", "fmod", "floordiv"):
            # torch's vectors lose quotients beyond the significand and tiny divisors.
            ratio = (args[0].double() / args[1].double()).abs()
            known = ~((ratio > 1e6) & ratio.isfinite() & (args[1].double() != 0))
            args = tuple(arg[known] for arg in args)
        actual = native(machine, dtype)(f"{name}_{dtype}", *args)
        assert_same(name, actual, _exact_root(*args) if name == "sqrt" else _expected(name, args))


def _expected(name: str, args: tuple[torch.Tensor, ...]) -> torch.Tensor:
    if name in ("floordiv", "truncdiv") and args[0].element_size() == 2:
        # The frontend divides them in single precision; torch rounds the quotient first.
        wide = SCALAR_FUNCTIONS_TORCH[name](*(arg.float() for arg in args))
        return wide.to(args[0].dtype)
    return SCALAR_FUNCTIONS_TORCH[name](*args)


def _exact_root(x: torch.Tensor) -> torch.Tensor:
    """Rounded to nearest, which torch's vectors of doubles are not."""
    roots = [math.sqrt(value) if value >= 0 else math.nan for value in x.double().tolist()]
    return torch.tensor(roots, dtype=torch.float64).to(x.dtype)


@pytest.mark.parametrize("machine", [HOST, SSE], ids=str)
def test_remainders_of_far_apart_floats_are_exact(machine):
    generator = torch.Generator().manual_seed(1)
    sizes = torch.randint(-40, 40, (2, 4000), generator=generator)
    left, right = torch.ldexp(torch.randn(2, 4000, generator=generator), sizes)
    expected = [math.fmod(x, y) for x, y in zip(left.tolist(), right.tolist())]
    actual = native(machine, F32)(f"fmod_{F32}", left, right)
    assert_same("fmod", actual, torch.tensor(expected))
    positive = [x % y for x, y in zip(left.double().tolist(), right.double().tolist())]
    actual = native(machine, F64)(f"mod_{F64}", left.double(), right.double())
    assert_same("mod", actual, torch.tensor(positive, dtype=torch.float64))


def test_fma_rounds_once():
    libm = ctypes.CDLL(ctypes.util.find_library("m"))
    libm.fmaf.restype = ctypes.c_float
    libm.fmaf.argtypes = [ctypes.c_float] * 3
    generator = torch.Generator().manual_seed(2)
    x, y = torch.randn(2, 2000, generator=generator)
    z = (-x * y).nextafter(torch.tensor(math.inf))
    expected = torch.tensor([libm.fmaf(*row) for row in zip(x.tolist(), y.tolist(), z.tolist())])
    assert not torch.equal(expected, x * y + z)
    for machine in MACHINES:
        compiled = NativeFunctions(functions_of(["fma"], F32), machine)
        assert_same("fma", compiled(f"fma_{F32}", x, y, z), expected)


@pytest.mark.parametrize("dtype", [F16, BF16, F8E4M3, F8E5M2], ids=str)
def test_fma_of_narrow_floats_is_rounded_to_them(dtype):
    args = operands("fma", FLOAT_EDGES.to(to_torch(dtype)))
    compiled = NativeFunctions(functions_of(["fma"], dtype))
    actual = compiled(f"fma_{dtype}", *args)
    assert_same("fma", actual, SCALAR_FUNCTIONS_TORCH["fma"](*args))
