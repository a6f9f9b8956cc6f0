"""Scalar functions over Python integers: how scalar (rank 0) integers and booleans are computed.

Loop bounds and offsets are scalars; as Python integers they cost no torch calls. Division by zero
gives 0: the lane cannot matter, and the other backends do not stop there either.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from tilesmith.dtypes import ALL_DTYPES, DType, Kind

_RANGES = {d.name: (d.lowest, d.highest) for d in ALL_DTYPES if not d.is_float}


def wrap_integer(value: int, dtype: DType) -> int:
    """The value as that integer type holds it: modulo 2^bits; any non-zero is True for bool."""
    lowest, highest = _RANGES[dtype.name]
    if dtype.is_bool:
        return bool(value)
    if lowest <= value <= highest:
        return value
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if dtype.kind is Kind.SIGNED and value > highest else value


def _floor_divide(lhs: int, rhs: int) -> int:
    return lhs // rhs if rhs else 0


def _floor_remainder(lhs: int, rhs: int) -> int:
    return lhs % rhs if rhs else 0


def _truncate_divide(lhs: int, rhs: int) -> int:
    if not rhs:
        return 0
    quotient = abs(lhs) // abs(rhs)
    return quotient if (lhs < 0) == (rhs < 0) else -quotient


def _truncate_remainder(lhs: int, rhs: int) -> int:
    return lhs - rhs * _truncate_divide(lhs, rhs) if rhs else 0


def _invert(value: int) -> int:
    return not value if isinstance(value, bool) else ~value


def _power(base: int, exponent: int) -> int:
    if exponent < 0:
        return {1: 1, -1: -1 if exponent % 2 else 1}.get(base, 0)
    return base**exponent


def _shift_left(value: int, amount: int) -> int:
    return value << amount if 0 <= amount < 64 else 0


def _shift_right(value: int, amount: int) -> int:
    return value >> (amount if 0 <= amount < 64 else 64)


INTEGER_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "neg": operator.neg,
    "abs": abs,
    "floor": int,
    "ceil": int,
    "round": int,
    "trunc": int,
    "not": _invert,
    "isnan": lambda _: False,
    "isinf": lambda _: False,
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "maximum": max,
    "minimum": min,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "floordiv": _floor_divide,
    "mod": _floor_remainder,
    "truncdiv": _truncate_divide,
    "fmod": _truncate_remainder,
    "shl": _shift_left,
    "shr": _shift_right,
    "pow": _power,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "fma": lambda a, b, c: a * b + c,
    "where": lambda condition, a, b: a if condition else b,
}
"""Exact results; ``wrap_integer`` brings them into the element type."""
