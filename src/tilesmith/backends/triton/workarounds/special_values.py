"""Infinities and NaN that Triton would make numbers of, or lose.

Triton sees a constant as fp32 and converts it where it is used, which gives the largest finite
number of a type for what is too large for it and for infinities. Torch gives an infinity (e5m2), or
NaN (e4m3fn before 2.13). An infinity of e5m2 is spelled by its bits.

Atomic maxima and minima compare bits as integers: a NaN is then beyond the infinity of its own
sign, and no minimum if it has none.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_float
from math import copysign, isinf, nan

from tilesmith.backends.triton.emission.emitter import Emitter
from tilesmith.backends.triton.emission.spelling import (
    Expr,
    Number,
    call,
    literal,
    triton_dtype,
)
from tilesmith.backends.triton.workarounds import narrow_conversions
from tilesmith.dtypes import F8E4M3, F8E5M2, F32, DType
from tilesmith.ir.ops.memory import Atomic

Converter = Callable[[Expr, DType, DType], Expr]
LARGEST_E4M3 = 448.0
_EXTREMES = ("max", "min")


def is_narrow_float(dtype: DType) -> bool:
    """Whether Triton has no arithmetic of it: results are of fp32, and rounded."""
    return dtype in narrow_conversions.NARROWING


def rounded(emitter: Emitter, wide: Expr, dtype: DType) -> Expr:
    """A result of fp32 in eight bits, as torch rounds it; what compares numbers stays."""
    if dtype.is_bool:
        return wide
    wide = emitter.spelling.typed(wide, F32)
    if dtype == F8E4M3 and narrow_conversions.saturates():
        return wide.method("to", triton_dtype(dtype))
    name = emitter.spelling.helper(narrow_conversions.NARROWING[dtype])
    return call(name, wide, shape=wide.shape)


def constant(value: Number, dtype: DType) -> Expr:
    """A number of that type, or one that its conversion from fp32 makes of it."""
    if not dtype.is_float:
        return literal(bool(value) if dtype.is_bool else value)
    number, size = float(value), abs(c_float(value).value)
    if dtype == F8E5M2 and size >= narrow_conversions.FIRST_TOO_LARGE[F8E5M2]:
        bits = call("tl.full", "[]", -4 if number < 0 else 124, "tl.int8")
        return bits.method("to", "tl.float8e5", "bitcast=True")
    if dtype == F8E4M3 and size > narrow_conversions.FIRST_TOO_LARGE[F8E4M3]:
        return literal(copysign(LARGEST_E4M3, number) if narrow_conversions.saturates() else nan)
    return literal(number)


def neutral(fill: Number, dtype: DType) -> Expr:
    """What lanes are filled with that must not count: where -inf is none, the lowest number."""
    if dtype == F8E4M3 and isinf(fill):
        return literal(copysign(LARGEST_E4M3, fill))
    return constant(fill, dtype)


def narrowed(
    emitter: Emitter, convert: Converter, expr: Expr, source: DType, target: DType
) -> Expr:
    """What was combined in ``source`` as its own type again, in which it may be infinite."""
    if (source, target) != (F32, F8E5M2) or expr.constant is not None:
        return convert(expr, source, target)
    name = emitter.spelling.helper(narrow_conversions.NARROWING[target])
    return call(name, expr, shape=expr.shape)


def update_of(emitter: Emitter, op: Atomic) -> Expr:
    """The value of an atomic, with its type; NaN among maxima and minima stays, as in torch.

    It gets the sign with which it wins, and all bits set: no number is beyond it then. An element
    that is NaN of the other sign before its first update counts as the infinity of that sign.
    """
    dtype = op.value.tile.dtype
    value = emitter.spelling.typed(emitter.expr(op.value), dtype)
    if op.kind not in _EXTREMES or not dtype.is_float:
        return value
    value = emitter.named("update", value)
    bits = (1 << (dtype.bits - 1)) - 1 if op.kind == "max" else -1
    winning = call("tl.full", "[]", bits, f"tl.int{dtype.bits}")
    winning = winning.method("to", f"tl.float{dtype.bits}", "bitcast=True")
    return call("tl.where", value.infix("==", value), value, winning, shape=value.shape)
