"""What one step of a vector loop computes: the same in all lanes, evenly spaced, or any vector.

Evenly spaced integers are what loads and stores of neighbouring elements are recognised by.
Positions in memory are taken not to wrap, so their first value is held in 64 bits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilesmith.backends.cpu.builder import Builder
from tilesmith.backends.cpu.registers import (
    INDEX,
    Register,
    index,
    lane_numbers,
    number,
    register_element,
)
from tilesmith.dtypes import DType

_NEAR = 1 << 16


@dataclass(frozen=True)
class Uniform:
    """One scalar for all lanes."""

    x: Register


@dataclass(frozen=True)
class Strided:
    """``base + lane * step`` (both 64 bits); as a number, only the last ``bits`` of it count."""

    base: Register
    step: Register
    bits: int = 64


@dataclass(frozen=True)
class Vector:
    """A value per lane."""

    x: Register


Lane = Uniform | Strided | Vector


def to_vector(b: Builder, lane: Lane, element: str, width: int) -> Register:
    """All lanes as one register (a scalar where there is one lane)."""
    if isinstance(lane, Vector):
        return lane.x
    if isinstance(lane, Uniform):
        return b.splat(lane.x, width)
    if f"i{lane.bits}" != element == INDEX:
        return b.convert("sext", to_vector(b, lane, f"i{lane.bits}", width), element)
    first = b.splat(_narrow(b, lane.base, element), width)
    if width == 1 or lane.step.constant == 0:
        return first
    numbers = lane_numbers(element, width)
    if lane.step.constant != 1:
        step = b.splat(_narrow(b, lane.step, element), width)
        numbers = b.binary("mul", numbers, step)
    return b.binary("add", first, numbers)


def _narrow(b: Builder, x: Register, element: str) -> Register:
    if x.constant is not None:
        return number(element, x.constant)
    return x if element == INDEX else b.convert("trunc", x, element)


def first_of(b: Builder, lane: Uniform | Strided) -> Register:
    """The value of lane 0 as a 64-bit index."""
    return lane.base if isinstance(lane, Strided) else b.index_of(lane.x)


def step_of(lane: Lane) -> Register:
    """The distance between lanes; 0 for equal ones."""
    return lane.step if isinstance(lane, Strided) else index(0)


def add_lanes(b: Builder, x: Lane, y: Lane) -> Strided | None:
    """``x + y`` of integers as evenly spaced lanes, if it is that."""
    if isinstance(x, Vector) or isinstance(y, Vector):
        return None
    return Strided(b.add(first_of(b, x), first_of(b, y)), b.add(step_of(x), step_of(y)))


def scale_lanes(b: Builder, x: Lane, factor: Lane) -> Strided | None:
    """``x * factor`` of integers as evenly spaced lanes, if it is that."""
    if isinstance(x, Vector) or not isinstance(factor, Uniform):
        return None
    by = b.index_of(factor.x)
    return Strided(b.multiply(first_of(b, x), by), b.multiply(step_of(x), by))


def negate_lanes(b: Builder, x: Lane) -> Strided | None:
    """``-x`` of integers as evenly spaced lanes, if it is that."""
    if isinstance(x, Vector):
        return None
    zero = index(0)
    return Strided(b.subtract(zero, first_of(b, x)), b.subtract(zero, step_of(x)))


def combine_strided(b: Builder, fn: str, args: list[Lane], bits: int) -> Lane | None:
    """A function of integers, at least one of them evenly spaced; None if the result is not so."""
    spaced = [arg for arg in args if isinstance(arg, Strided)]
    if not spaced or any(arg.bits < bits for arg in spaced):
        return None
    found = _combine(b, fn, args)
    return found if found is None or _is_near(fn, args) else replace(found, bits=bits)


def _combine(b: Builder, fn: str, args: list[Lane]) -> Strided | None:
    if fn == "neg":
        return negate_lanes(b, args[0])
    if fn == "add":
        return add_lanes(b, *args)
    if fn == "sub":
        negated = negate_lanes(b, args[1])
        return None if negated is None else add_lanes(b, args[0], negated)
    if fn == "mul":
        return scale_lanes(b, args[0], args[1]) or scale_lanes(b, args[1], args[0])
    return None


def _is_near(fn: str, args: list[Lane]) -> bool:
    """Whether positions are only moved a little, which is taken not to wrap."""
    moved = [arg.bits == 64 if isinstance(arg, Strided) else _is_small(arg) for arg in args]
    return fn in ("add", "sub") and all(moved)


def _is_small(lane: Uniform | Vector) -> bool:
    return lane.x.constant is not None and abs(lane.x.constant) < _NEAR


def register_of(b: Builder, lane: Lane, dtype: DType, width: int) -> Register:
    """A lane as a register of its element type: a scalar if uniform, else a vector."""
    if isinstance(lane, Uniform):
        return lane.x
    is_same = isinstance(lane, Strided) and lane.step.constant == 0
    return to_vector(b, lane, register_element(dtype), 1 if is_same else width)


def from_register(x: Register) -> Lane:
    """A register as a lane."""
    return Vector(x) if x.type.is_vector else Uniform(x)
