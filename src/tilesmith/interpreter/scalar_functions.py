"""The meaning of every row of ``ir.ops.elementwise``, over torch tensors and over Python integers.

Arguments have one shape and (but for ``where``'s condition) one dtype; results are rounded to it.
8-bit floats are computed in fp32. NumPy does what torch lacks: unsigned integers wider than 8 bits,
and integer division that survives zero and the smallest integer divided by -1. Scalar integers are
Python's, which cost no torch calls; division by zero gives 0, as no backend stops there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tilesmith.dtypes import ALL_DTYPES, DType
from tilesmith.interpreter.torch_dtypes import FLOAT8, SIGNED_OF_WIDE_UNSIGNED
from tilesmith.ir.ops.elementwise import PYTHON_FUNCTIONS

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_RANGES = {d.name: (d.lowest, d.highest) for d in ALL_DTYPES if not d.is_float}


def wrap_integer(value: int, dtype: DType) -> int:
    """The value as that integer type holds it: modulo 2^bits; any non-zero is True for bool."""
    if dtype.is_bool:
        return bool(value)
    lowest, highest = _RANGES[dtype.name]
    return value if lowest <= value <= highest else dtype.wrap(value)


def _truncate_divide(lhs: int, rhs: int) -> int:
    quotient = abs(lhs) // abs(rhs) if rhs else 0
    return quotient if (lhs < 0) == (rhs < 0) else -quotient


def _power(base: int, exponent: int) -> int:
    if exponent < 0:
        return {1: 1, -1: -1 if exponent % 2 else 1}.get(base, 0)
    return base**exponent


INTEGER_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **PYTHON_FUNCTIONS,
    "abs": abs,
    **dict.fromkeys(("floor", "ceil", "round", "trunc"), int),
    "not": lambda x: not x if isinstance(x, bool) else ~x,
    **dict.fromkeys(("isnan", "isinf"), lambda _: False),
    "maximum": max,
    "minimum": min,
    "floordiv": lambda lhs, rhs: lhs // rhs if rhs else 0,
    "mod": lambda lhs, rhs: lhs % rhs if rhs else 0,
    "truncdiv": _truncate_divide,
    "fmod": lambda lhs, rhs: lhs - rhs * _truncate_divide(lhs, rhs) if rhs else 0,
    "shl": lambda x, amount: x << amount if 0 <= amount < 64 else 0,
    "shr": lambda x, amount: x >> (amount if 0 <= amount < 64 else 64),
    "pow": _power,
    "fma": lambda a, b, c: a * b + c,
    "where": lambda condition, a, b: a if condition else b,
}
"""Exact results; ``wrap_integer`` brings them into the element type."""

TensorFunction = Callable[..., torch.Tensor]


def _multiply_high(lhs: Any, rhs: Any) -> Any:
    if lhs.dtype == np.uint32:
        return ((lhs.astype(np.uint64) * rhs) >> np.uint64(32)).astype(np.uint32)
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    middle = (lhs & low) * (rhs & low) >> half
    middle += (lhs >> half) * (rhs & low)  # at most 2^64 - 2^32
    other = (lhs & low) * (rhs >> half) + (middle & low)
    return (lhs >> half) * (rhs >> half) + (middle >> half) + (other >> half)


_INTEGER_DIVISIONS: dict[str, Callable[..., Any]] = {
    "floordiv": np.floor_divide,
    "mod": np.mod,
    "truncdiv": lambda lhs, rhs: (lhs - np.fmod(lhs, rhs)) // rhs,
    "fmod": np.fmod,
}
_UNSIGNED: dict[str, Callable[..., Any]] = {
    **PYTHON_FUNCTIONS,
    **_INTEGER_DIVISIONS,
    **dict.fromkeys(("abs", "floor", "ceil", "round", "trunc"), np.positive),
    "not": np.invert,
    **dict.fromkeys(("isnan", "isinf"), lambda x: np.zeros(x.shape, bool)),
    "maximum": np.maximum,
    "minimum": np.minimum,
    "shl": np.left_shift,
    "shr": np.right_shift,
    "mulhi": _multiply_high,
    "pow": np.power,
    "fma": lambda a, b, c: a * b + c,
    "where": np.where,
}


def _extremum(of_integers: TensorFunction, wins: TensorFunction) -> TensorFunction:
    """Of equal floats the first: relu(-0.0) is -0.0, as clamping does it in eager mode.

    Torch's own function gives one zero or the other by the length of the tensor.
    """

    def choose(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if not x.is_floating_point():
            return of_integers(x, y)
        return torch.where(wins(y, x) | torch.isnan(y), y, x)

    return choose


def _through_numpy(function: Callable[..., Any], args: tuple[torch.Tensor, ...]) -> torch.Tensor:
    with np.errstate(all="ignore"):
        result = function(*(arg.cpu().numpy() for arg in args))
    return torch.from_numpy(np.asarray(result)).to(args[-1].device)


def _through_float32(function: TensorFunction, args: tuple[torch.Tensor, ...]) -> torch.Tensor:
    dtype = args[-1].dtype
    result = function(*(arg.float() if arg.dtype is dtype else arg for arg in args))
    return result.to(dtype) if result.dtype is torch.float32 else result


def _for_all_dtypes(name: str, function: TensorFunction) -> TensorFunction:
    """Extend a function of the dtypes torch computes with to all of the IR's."""

    def apply(*args: torch.Tensor) -> torch.Tensor:
        dtype = args[-1].dtype
        if dtype in FLOAT8:
            return _through_float32(function, args)
        if dtype in SIGNED_OF_WIDE_UNSIGNED:
            return _through_numpy(_UNSIGNED[name], args)
        return function(*args)

    return apply


def _division(name: str, of_floats: TensorFunction) -> TensorFunction:
    def apply(lhs: torch.Tensor, rhs: torch.Tensor) -> torch.Tensor:
        if lhs.dtype.is_floating_point:
            return of_floats(lhs, rhs)
        return _through_numpy(_INTEGER_DIVISIONS[name], (lhs, rhs))

    return apply


def _fused_multiply_add(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """``a * b + c`` with the product exact (up to fp32) before it is rounded once."""
    wider = {
        torch.float32: torch.float64,
        torch.float16: torch.float32,
        torch.bfloat16: torch.float32,
    }
    dtype = wider.get(c.dtype, c.dtype)
    return torch.addcmul(c.to(dtype), a.to(dtype), b.to(dtype)).to(c.dtype)


_SAME_NAME = (
    "neg floor ceil round trunc sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin "
    "acos atan sinh cosh tanh asinh acosh atanh erf erfc sigmoid isnan isinf add mul sub div pow "
    "atan2 where"
)
_FUNCTIONS: dict[str, TensorFunction] = {
    **{name: getattr(torch, name) for name in (*_SAME_NAME.split(), *COMPARISONS)},
    "abs": lambda x: x if x.dtype is torch.bool else torch.abs(x),
    "not": torch.bitwise_not,
    "maximum": _extremum(torch.maximum, torch.gt),
    "minimum": _extremum(torch.minimum, torch.lt),
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
    "floordiv": _division("floordiv", lambda a, b: torch.div(a, b, rounding_mode="floor")),
    "truncdiv": _division("truncdiv", lambda a, b: torch.div(a, b, rounding_mode="trunc")),
    "mod": _division("mod", torch.remainder),
    "fmod": _division("fmod", torch.fmod),
    "shl": torch.bitwise_left_shift,
    "shr": torch.bitwise_right_shift,
    "mulhi": lambda lhs, rhs: _through_numpy(_multiply_high, (lhs, rhs)),
    "fma": _fused_multiply_add,
}
SCALAR_FUNCTIONS_TORCH: dict[str, TensorFunction] = {
    name: _for_all_dtypes(name, function) for name, function in _FUNCTIONS.items()
}
