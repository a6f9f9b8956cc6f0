"""Python numbers that runtime loops and branches change: they become device scalars.

A number of device code is a constant of the compiled code. When a loop or branch that is decided at
run time gives it another value, it is one no longer: ``n = 0`` before ``n += 1`` in a runtime loop
starts as a scalar on the device, in the type that the changed value has.
"""

from __future__ import annotations

from typing import Any, TypeGuard

from tilesmith.dtypes import BOOL, F64, DType
from tilesmith.frontend.tracing.emission import cast, full
from tilesmith.frontend.tracing.tracer import current_tracer
from tilesmith.frontend.tracing.values import Scalar, TileValue
from tilesmith.ir.types import Shape

Number = bool | int | float


class NumberChangedError(Exception):
    """A loop gives a Python number another value: it has to be traced again, with a scalar."""

    def __init__(self, position: int, now: Any) -> None:
        super().__init__()
        self.position = position
        """Which of the carried values it is."""
        self.now = now


def is_number(value: Any) -> TypeGuard[Number]:
    """Whether a value is a number known when compiling."""
    return isinstance(value, (bool, int, float))


def is_same(before: Any, now: Any) -> bool:
    """Whether a value that is no device value is still what it was."""
    return now is before or (not isinstance(now, TileValue) and bool(now == before))


def scalar_for(number: Number, other: Any) -> TileValue | None:
    """A number as a device value that ``other`` may be a later version of; None if it cannot be.

    Integers keep promoting like Python numbers where the other value does. Floats are fp64, as they
    are in Python: they cost nothing beside tiles, and meet those in the tile's own type.
    """
    if isinstance(other, TileValue):
        dtype = other.tile.dtype
        if not fits(number, dtype):
            return None
        return _made(number, dtype, other.tile.shape, is_weak=other.is_weak)
    if isinstance(number, bool) or isinstance(other, bool):
        both = isinstance(number, bool) and isinstance(other, bool)
        return _made(number, BOOL, ()) if both else None
    if not is_number(other):
        return None
    if isinstance(number, float) or isinstance(other, float):
        return _made(number, F64, ())
    larger = max(number, other, key=abs)
    return _made(number, current_tracer("a number").integer_dtype(larger), (), is_weak=True)


def _made(number: Number, dtype: DType, shape: Shape, *, is_weak: bool = False) -> TileValue:
    made = full(number, dtype, shape)
    return Scalar(made.value) if is_weak and not shape else made


def fits(number: Any, dtype: DType) -> bool:
    """Whether a Python number, or what promotes like one, is of the kind of an element type."""
    if isinstance(number, TileValue):
        is_bool, is_float = number.tile.dtype.is_bool, number.tile.dtype.is_float
    else:
        is_bool, is_float = isinstance(number, bool), isinstance(number, float)
    if is_bool or dtype.is_bool:
        return is_bool and dtype.is_bool
    return dtype.is_float or not is_float


def as_version(before: TileValue, now: Any) -> TileValue | None:
    """What a carried device value becomes; numbers and scalars that fit take its type."""
    if is_number(now):
        return (
            full(now, before.tile.dtype, before.tile.shape)
            if fits(now, before.tile.dtype)
            else None
        )
    if not isinstance(now, TileValue):
        return None
    is_weak = before.is_weak or now.is_weak
    is_scalar = before.tile.rank == now.tile.rank == 0
    if is_scalar and is_weak and fits(now, before.tile.dtype):
        return cast(now, before.tile.dtype)
    return now


def paired_numbers(left: Any, right: Any) -> tuple[Any, Any]:
    """Both values that a branch leaves; numbers that differ are device values from now on."""
    if is_number(left) and is_number(right) and type(left) is type(right) and left == right:
        return left, right
    new_left = scalar_for(left, right) if is_number(left) else left
    new_right = scalar_for(right, left) if is_number(right) else right
    if new_left is None or new_right is None:
        return left, right
    return new_left, new_right
