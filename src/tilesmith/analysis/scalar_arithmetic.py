"""Arithmetic on constants that agrees bit for bit with the same arithmetic on tiles.

Only exactly rounded functions are here; the others give None, and so does what a device leaves
undefined (division of an integer by zero, conversion of a float that does not fit).
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Iterable
from typing import Any

from tilesmith.dtypes import BF16, F16, F32, F64, DType
from tilesmith.ir.ops.elementwise import PYTHON_FUNCTIONS, SCALAR_FUNCTIONS
from tilesmith.ir.types import Constant


def normalize(value: Constant, dtype: DType) -> Constant | None:
    """A literal as a constant of that type: rounded or wrapped; None when we cannot tell."""
    if dtype.is_bool:
        return bool(value)
    if dtype.is_float:
        return _round_float(float(value), dtype)
    if isinstance(value, float) and not value.is_integer():
        return None
    return dtype.wrap(int(value))


def convert(value: Constant | None, source: DType, target: DType) -> Constant | None:
    """A constant of type ``source`` cast to ``target``; None where it is not known."""
    exact = None if value is None else normalize(value, source)
    if exact is None:
        return None
    if target.is_bool:
        return exact != 0
    if target.is_float:
        return _convert_to_float(exact, target)
    if isinstance(exact, float):
        return _truncate(exact, target)
    return target.wrap(int(exact))


def evaluate(fn: str, dtype: DType, operands: Iterable[Constant | None]) -> Constant | None:
    """A scalar function of constants; None where one is not known.

    ``dtype`` is the operands' (the last's for ``where``).
    """
    known = tuple(value for value in operands if value is not None)
    if len(known) < SCALAR_FUNCTIONS[fn].arity:
        return None
    if fn == "where":
        return normalize(known[1] if known[0] else known[2], dtype)
    exact = tuple(normalize(value, dtype) for value in known)
    function = _FUNCTIONS.get(fn)
    if function is None or None in exact:
        return None
    try:
        result: Any = function(*exact)
    except (ZeroDivisionError, ValueError, OverflowError, TypeError):
        return None
    if result is None or isinstance(result, bool):
        return result
    return normalize(result, dtype)


def is_same_constant(lhs: Constant | None, rhs: Constant | None) -> bool:
    """Equality that tells 0.0 from -0.0 and finds NaN equal to itself; what is unknown differs."""
    if lhs is None or rhs is None:
        return False
    if isinstance(lhs, float) or isinstance(rhs, float):
        return repr(float(lhs)) == repr(float(rhs))
    return lhs == rhs


def _convert_to_float(value: Constant, target: DType) -> float | None:
    if not isinstance(value, float) and abs(value) > 2**53:
        return None
    rounded = _round_float(float(value), target)
    direct = _round_by_format(float(value), "e") if target == F16 else rounded
    # Through fp32 or directly: where that makes a difference, targets disagree.
    return rounded if rounded == direct or math.isnan(float(value)) else None


def _truncate(value: float, target: DType) -> int | None:
    if not math.isfinite(value):
        return None
    whole = math.trunc(value)
    return whole if target.lowest <= whole <= target.highest else None


def _round_by_format(value: float, letter: str) -> float:
    try:
        return struct.unpack(letter, struct.pack(letter, value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def _round_to_bf16(value: float) -> float:
    single = _round_by_format(value, "f")
    if not math.isfinite(single):
        return single
    bits = struct.unpack("<I", struct.pack("<f", single))[0]
    bits += 0x7FFF + ((bits >> 16) & 1)
    return struct.unpack("<f", struct.pack("<I", bits & 0xFFFF0000))[0]


def _round_float(value: float, dtype: DType) -> float | None:
    if dtype == F64:
        return value
    if dtype == F32:
        return _round_by_format(value, "f")
    # Half types are computed in fp32 and rounded back.
    if dtype == F16:
        return _round_by_format(_round_by_format(value, "f"), "e")
    if dtype == BF16:
        return _round_to_bf16(value)
    # The fp8 formats differ in range and saturation: only what all of them hold exactly.
    return value if value in (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0) else None


def _divide(lhs: float, rhs: float) -> float:
    if rhs != 0.0:
        return lhs / rhs
    if lhs == 0.0 or math.isnan(lhs):
        return math.nan
    return math.copysign(math.inf, lhs) * math.copysign(1.0, rhs)


def _truncated_quotient(lhs: int, rhs: int) -> int:
    quotient = abs(lhs) // abs(rhs)
    return quotient if (lhs < 0) == (rhs < 0) else -quotient


def _integers_only(
    function: Callable[[int, int], int], highest: float = math.inf
) -> Callable[[int, int], int | None]:
    def apply(lhs: int, rhs: int) -> int | None:
        return function(lhs, rhs) if isinstance(lhs, int) and rhs <= highest else None

    return apply


def _extreme(choose: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    def apply(lhs: Any, rhs: Any) -> Any:
        if math.isnan(lhs) or math.isnan(rhs):
            return math.nan
        # The sign of an extreme of two zeros is not defined.
        return None if lhs == rhs == 0 and repr(lhs) != repr(rhs) else choose(lhs, rhs)

    return apply


_MAX_SHIFT = 7
"""Shifting by the width or more is undefined on devices; 8 bits fit every type."""
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **PYTHON_FUNCTIONS,
    "abs": abs,
    "floor": lambda x: math.copysign(float(math.floor(x)), x) if math.isfinite(x) else x,
    # Halves go to the even neighbour.
    "round": lambda x: math.copysign(float(round(x)), x) if math.isfinite(x) else x,
    "sqrt": lambda x: math.sqrt(x) if x >= 0 else None,
    "not": lambda x: not x if isinstance(x, bool) else ~int(x),
    "div": _divide,
    "floordiv": _integers_only(operator.floordiv),
    "mod": _integers_only(operator.mod),
    "truncdiv": _integers_only(_truncated_quotient),
    "fmod": _integers_only(lambda lhs, rhs: lhs - _truncated_quotient(lhs, rhs) * rhs),
    "shl": _integers_only(operator.lshift, _MAX_SHIFT),
    "shr": _integers_only(operator.rshift, _MAX_SHIFT),
    "maximum": _extreme(max),
    "minimum": _extreme(min),
    "isnan": math.isnan,
    "isinf": lambda x: isinstance(x, float) and math.isinf(x),
}
