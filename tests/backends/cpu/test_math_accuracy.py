"""Errors of the inline functions, in units of the last place of the exact result."""

from __future__ import annotations

import ctypes
import ctypes.util
import math
from functools import cache

import numpy as np
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
from tilesmith.backends.cpu.math.scalar_functions import apply
from tilesmith.dtypes import BF16, F16, F32, F64, DType
from tilesmith.interpreter.torch_dtypes import to_torch
from tilesmith.numerics.tolerance import ulp_error

# Allowed errors where multiplication and addition fuse, and where they do not.
SINGLE = {
    "exp": (1.0, 1.25), "exp2": (0.9, 1.15), "expm1": (1.7, 1.8),
    "log": (1.0, 1.0), "log2": (1.0, 2.0), "log10": (1.0, 2.0), "log1p": (1.6, 1.6),
    "sin": (1.6, 1.7), "cos": (1.6, 1.7), "tan": (2.6, 2.6),
    "asin": (2.5, 2.6), "acos": (1.3, 1.3), "atan": (2.0, 2.1),
    "sinh": (1.8, 1.8), "cosh": (1.5, 1.7), "tanh": (2.0, 2.1),
    "asinh": (2.0, 2.0), "acosh": (2.2, 2.2), "atanh": (2.3, 2.3),
    "erf": (1.8, 2.1), "erfc": (4.5, 4.8), "sigmoid": (2.0, 2.0), "rsqrt": (1.5, 1.5),
}  # fmt: skip
DOUBLE = {
    "exp": (1.0, 1.3), "exp2": (0.9, 1.2), "expm1": (2.2, 2.2), "log": (1.0, 1.0),
    "tanh": (2.2, 2.2), "sigmoid": (2.0, 2.0),
}  # fmt: skip
LIBM_DOUBLE = "log2 log10 log1p sin cos tan asin acos atan sinh cosh asinh acosh atanh erf erfc"

_EDGES = [
    0.0, -0.0, math.inf, -math.inf, math.nan, 1e-45, -1e-45, 1e-40, -1e-40, 1.2e-38, 3.4e38,
    -3.4e38, 1.0, -1.0, 0.5, -0.5, 88.72283, 88.72284, 89.41598, 89.4160, -87.33654, -87.33655,
    -103.27893, -103.9720, -103.9721, -104.0, -150.0, -176.0, 127.99999, 128.0, -126.0, -149.0,
    -149.5, -150.0, 16777216.0, 1e6, 1.0000001e6, 1e10, 1e22, -1e30,
]  # fmt: skip


@cache
def single_inputs(count: int) -> torch.Tensor:
    """Edges, floats of all sizes, and those where the functions have their features."""
    generator = torch.Generator().manual_seed(0)
    bits = torch.randint(-(2**31), 2**31, (count,), generator=generator).int()
    ranges = [(-110.0, 110.0), (-5.0, 5.0), (-1.01, 1.01), (0.5, 2.0)]
    lines = [torch.linspace(low, high, count) for low, high in ranges]
    return torch.cat([torch.tensor(_EDGES), bits.view(torch.float32), *lines])


def unary(name: str, dtype: DType) -> LaneFunction:
    return LaneFunction(name, (dtype,), dtype, lambda b, x: apply(b, name, dtype, [x]))


@cache
def native(machine: Machine, dtype: DType) -> NativeFunctions:
    names = [*SINGLE] if dtype != F64 else [*DOUBLE, *LIBM_DOUBLE.split()]
    return NativeFunctions([unary(name, dtype) for name in names], machine)


def assert_ends_agree(name: str, x: torch.Tensor, y: torch.Tensor, exact: torch.Tensor) -> None:
    """NaN, infinities and signs (of zeros, too) are where they should be."""
    for what in (torch.isnan, torch.isinf):
        wrong = what(y) != what(exact)
        assert not wrong.any(), f"{name}: {what.__name__} at {x[wrong][:4].tolist()}"
    wrong = (y.signbit() != exact.signbit()) & ~exact.isnan()
    assert not wrong.any(), f"{name}: sign at {x[wrong][:4].tolist()}"


def assert_accurate(
    name: str, x: torch.Tensor, y: torch.Tensor, reference: torch.Tensor, bound: float
) -> None:
    """Within so many units in the last place of a result of higher precision."""
    assert_ends_agree(name, x, y, reference.to(y.dtype))
    errors = torch.where(y.isfinite(), ulp_error(y, reference, y.dtype), 0.0)
    worst = int(errors.argmax())
    assert errors[worst] <= bound, f"{name}({x[worst].item()!r}): {errors[worst]} ulp"


@pytest.mark.parametrize("name", SINGLE)
def test_single_floats(name):
    x = single_inputs(220_000)
    y = native(HOST, F32)(name, x)
    assert_accurate(name, x, y, getattr(torch, name)(x.double()), SINGLE[name][0])


@pytest.mark.parametrize("machine", [SCALAR, AVX2, SSE], ids=str)
@pytest.mark.parametrize("name", SINGLE)
def test_single_floats_on_other_machines(name, machine):
    x = single_inputs(20_000)
    y = native(machine, F32)(name, x)
    bound = SINGLE[name][1 if machine == SSE else 0]
    assert_accurate(name, x, y, getattr(torch, name)(x.double()), bound)


@cache
def double_inputs() -> np.ndarray:
    generator = np.random.default_rng(0)
    bits = generator.integers(0, 2**64, 60_000, dtype=np.uint64).view(np.float64)
    edges = [*_EDGES, 5e-324, -5e-324, 709.782, 709.79, -708.4, -745.13, -745.14, -1074, 1023.99]
    lines = [np.linspace(a, b, 40_000) for a, b in ((-760, 760), (-5, 5), (-1.1, 1.1), (0.5, 2))]
    return np.concatenate([edges, bits, *lines])


def _long_sigmoid(x: np.ndarray) -> np.ndarray:
    decay = np.exp(-np.abs(x))
    return np.where(x < 0, decay, 1) / (1 + decay)


@pytest.mark.parametrize("machine", [HOST, SSE], ids=str)
@pytest.mark.parametrize("name", DOUBLE)
def test_double_floats_against_extended_ones(name, machine):
    x = double_inputs()
    function = _long_sigmoid if name == "sigmoid" else getattr(np, name)
    with np.errstate(all="ignore"):
        exact = function(x.astype(np.longdouble))
        y = native(machine, F64)(name, torch.from_numpy(x))
        rounded = exact.astype(np.float64)
        assert_ends_agree(name, torch.from_numpy(x), y, torch.from_numpy(rounded))
        spacing = np.spacing(np.abs(rounded)).astype(np.longdouble)
        errors = np.abs(y.numpy() - exact) / spacing
    errors = np.where(np.isfinite(rounded), errors, 0)
    worst = int(errors.argmax())
    bound = DOUBLE[name][machine == SSE]
    assert errors[worst] <= bound, f"{name}({x[worst]!r}): {errors[worst]} ulp"


@pytest.mark.parametrize("name", LIBM_DOUBLE.split())
def test_other_functions_of_doubles_are_those_of_libm(name):
    function = getattr(ctypes.CDLL(ctypes.util.find_library("m")), name)
    function.restype, function.argtypes = ctypes.c_double, [ctypes.c_double]
    x = torch.from_numpy(double_inputs()[:2000])
    expected = torch.tensor([function(value) for value in x.tolist()], dtype=torch.float64)
    actual = native(HOST, F64)(name, x)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


def _pairs(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    edges = torch.tensor(
        [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.5, -0.5, 2.5, 1e-45, -1e-40, 1e38, math.inf,
         -math.inf, math.nan, 16777215.0, -16777215.0, 33554432.0, 0.999999, 88.0, -149.0, 150.0]
    )  # fmt: skip
    generator = torch.Generator().manual_seed(3)
    x, y = torch.randn(2, count, generator=generator)
    places = torch.arange(len(edges))
    left = torch.cat([edges[places.repeat_interleave(len(edges))], x.abs() * 3, x])
    return left, torch.cat([edges[places.repeat(len(edges))], y * 20, y])


@pytest.mark.parametrize("machine", [HOST, SCALAR, SSE], ids=str)
@pytest.mark.parametrize(("name", "bound"), [("pow", 0.51), ("atan2", 2.1)])
def test_functions_of_two_single_floats(name, bound, machine):
    function = LaneFunction(name, (F32, F32), F32, lambda b, *xs: apply(b, name, F32, xs))
    left, right = _pairs(200_000 if machine == HOST else 20_000)
    y = NativeFunctions([function], machine)(name, left, right)
    reference = getattr(torch, name)(left.double(), right.double())
    assert_accurate(name, torch.stack([left, right], 1), y, reference, bound)


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_narrow_floats_are_rounded_single_ones(dtype):
    x = torch.arange(1 << 16).to(torch.int16).view(to_torch(dtype))
    for name in SINGLE:
        y = native(HOST, dtype)(name, x)
        single = native(HOST, F32)(name, x.float())
        expected = single.to(to_torch(dtype))
        torch.testing.assert_close(y, expected, rtol=0, atol=0, equal_nan=True)
        # Two roundings leave hardly more than half a unit.
        finite = expected.isfinite()
        errors = ulp_error(y, getattr(torch, name)(x.double()), to_torch(dtype))
        assert float(errors[finite].max()) < 0.51, name
