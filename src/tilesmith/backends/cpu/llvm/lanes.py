"""What one step of a vector loop computes: a scalar for all lanes, a vector, or evenly spaced.

Evenly spaced integers are what loads and stores of neighbouring elements are recognised by.
Positions in memory are taken not to wrap, so their first value is held in 64 bits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilesmith.backends.cpu.llvm.builder import Builder
from tilesmith.backends.cpu.llvm.registers import (
    INDEX,
    LType,
    Register,
    index,
    lane_numbers,
    number,
    register_element,
)
from tilesmith.dtypes import DType

_NEAR = 1 << 16


@dataclass(frozen=True)
class Strided:
    """``base + lane * step`` (both 64 bits); as a number, only the last ``bits`` of it count."""

    base: Register
    step: Register
    bits: int = 64


Lane = Register | Strided
"""A register that is no vector is the same in all lanes."""


@dataclass(frozen=True)
class Scattered:
    """``base`` and in each lane an offset of its own: where an element lies in memory.

    ``steps`` are the offsets as they were read, if nothing has scaled them: in integers of their
    own type, which may turn out to be neighbours.
    """

    base: Register
    offsets: Register
    steps: Register | None


Place = Lane | Scattered


def to_vector(builder: Builder, lane: Place, element: str, width: int) -> Register:
    """All lanes as one register (a scalar where there is one lane)."""
    if isinstance(lane, Register):
        return builder.splat(lane, width)
    if isinstance(lane, Scattered):
        return builder.binary("add", builder.splat(lane.base, width), lane.offsets)
    if f"i{lane.bits}" != element == INDEX:
        return builder.convert("sext", to_vector(builder, lane, f"i{lane.bits}", width), element)
    first = builder.splat(_narrow(builder, lane.base, element), width)
    if width == 1 or lane.step.constant == 0:
        return first
    numbers = lane_numbers(element, width)
    if lane.step.constant != 1:
        step = builder.splat(_narrow(builder, lane.step, element), width)
        numbers = builder.binary("mul", numbers, step)
    return builder.binary("add", first, numbers)


def _narrow(builder: Builder, x: Register, element: str) -> Register:
    if x.constant is not None:
        return number(element, x.constant)
    return x if element == INDEX else builder.convert("trunc", x, element)


def combine_strided(builder: Builder, fn: str, args: list[Lane], bits: int) -> Lane | None:
    """A function of integers, at least one of them evenly spaced; None if the result is not so."""
    spaced = [arg for arg in args if isinstance(arg, Strided)]
    if not spaced or any(arg.bits < bits for arg in spaced):
        return None
    found = _combine(builder, fn, args)
    return found if found is None or _is_near(fn, args) else replace(found, bits=bits)


def _combine(builder: Builder, fn: str, args: list[Lane]) -> Strided | None:
    if any(map(_is_vector, args)):
        return None
    if fn in ("neg", "sub"):
        y, zero = _strided(builder, args[-1]), index(0)
        y = Strided(builder.subtract(zero, y.base), builder.subtract(zero, y.step))
        return y if fn == "neg" else _add(builder, args[0], y)
    if fn == "add":
        return _add(builder, *args)
    if fn == "mul" and any(isinstance(arg, Register) for arg in args):
        # Positions are multiplied by a number.
        x, factor = args if isinstance(args[1], Register) else args[::-1]
        by, x = _strided(builder, factor).base, _strided(builder, x)
        return Strided(builder.multiply(x.base, by), builder.multiply(x.step, by))
    return None


def _is_vector(lane: Lane) -> bool:
    return isinstance(lane, Register) and lane.type.is_vector


def _strided(builder: Builder, lane: Lane) -> Strided:
    return lane if isinstance(lane, Strided) else Strided(builder.index_of(lane), index(0))


def _add(builder: Builder, x: Lane, y: Lane) -> Strided:
    x, y = _strided(builder, x), _strided(builder, y)
    return Strided(builder.add(x.base, y.base), builder.add(x.step, y.step))


def _is_near(fn: str, args: list[Lane]) -> bool:
    """Whether positions are only moved a little, which is taken not to wrap."""
    if fn not in ("add", "sub"):
        return False
    numbers = [arg.constant for arg in args if not isinstance(arg, Strided)]
    is_whole = all(arg.bits == 64 for arg in args if isinstance(arg, Strided))
    return is_whole and all(x is not None and abs(x) < _NEAR for x in numbers)


def register_of(builder: Builder, lane: Lane, dtype: DType, width: int) -> Register:
    """A lane as a register of its element type: a scalar if uniform, else a vector."""
    if isinstance(lane, Register):
        return lane
    count = 1 if lane.step.constant == 0 else width
    return to_vector(builder, lane, register_element(dtype), count)


@dataclass(frozen=True)
class Lanes:
    """How many lanes a step has, and which of them count: ``tail`` in the last step of a loop."""

    width: int
    tail: Register | None = None

    def mask(self, builder: Builder, explicit: Register | None) -> Register | None:
        """The lanes to touch; None for all of them."""
        if explicit is None:
            return self.tail
        explicit = builder.splat(explicit, self.width)
        return explicit if self.tail is None else builder.binary("and", explicit, self.tail)


@dataclass(frozen=True)
class Elements:
    """Elements of one kind in memory, counted from a pointer, or from one in each lane."""

    pointer: Register
    element: str

    def has_neighbours(self, position: Place) -> bool:
        """Whether the lanes go through memory element by element."""
        is_dense = isinstance(position, Strided) and position.step.constant == 1
        return is_dense and not self.pointer.type.is_vector


def read(
    builder: Builder,
    memory: Elements,
    position: Place,
    lanes: Lanes,
    explicit: Register | None = None,
) -> Register:
    """The elements at a position; 0 where ``explicit`` does not hold."""
    given = [memory.pointer] if explicit is None else [memory.pointer, explicit]
    has_scalars = not any(register.type.is_vector for register in given)
    if has_scalars and _is_single(position, lanes.width):
        return _read_one(builder, memory, _single(builder, position), explicit)
    mask = lanes.mask(builder, explicit)
    pointer = _address(builder, memory, position, lanes.width)
    if mask is None and not pointer.type.is_vector:
        return builder.load(pointer, LType(memory.element, lanes.width))
    mask = mask or number("i1", 1, lanes.width)
    return builder.masked_load(pointer, mask, number(memory.element, 0, lanes.width))


def _address(builder: Builder, memory: Elements, position: Place, width: int) -> Register:
    """Of the first of neighbours, or of the element of each lane."""
    if isinstance(position, Strided) and memory.has_neighbours(position):
        return builder.offset(memory.pointer, position.base, memory.element)
    if isinstance(position, Scattered):
        pointer = builder.offset(memory.pointer, position.base, memory.element)
        return builder.offset(pointer, position.offsets, memory.element)
    positions = to_vector(builder, position, INDEX, width)
    return builder.offset(memory.pointer, positions, memory.element)


def write(
    builder: Builder,
    memory: Elements,
    position: Place,
    x: Register,
    lanes: Lanes,
    explicit: Register | None = None,
) -> None:
    """Replace the elements at a position where ``explicit`` holds."""
    if lanes.width == 1:
        pointer = builder.offset(memory.pointer, _single(builder, position), memory.element)
        if explicit is None:
            builder.store(x, pointer)
        else:
            builder.if_else(explicit, lambda: builder.store(x, pointer))
        return
    x = builder.splat(x, lanes.width)
    mask = lanes.mask(builder, explicit)
    pointer = _address(builder, memory, position, lanes.width)
    if mask is None and not pointer.type.is_vector:
        builder.store(x, pointer)
    else:
        builder.masked_store(x, pointer, mask or number("i1", 1, lanes.width))


def _is_single(position: Place, width: int) -> bool:
    if isinstance(position, Strided):
        return width == 1 or position.step.constant == 0
    return isinstance(position, Register) and not position.type.is_vector


def _single(builder: Builder, position: Place) -> Register:
    assert not isinstance(position, Scattered)
    return position.base if isinstance(position, Strided) else builder.index_of(position)


def _read_one(
    builder: Builder, memory: Elements, position: Register, condition: Register | None
) -> Register:
    kind = LType(memory.element)
    pointer = builder.offset(memory.pointer, position, memory.element)
    if condition is None:
        return builder.load(pointer, kind)
    zero = number(memory.element, 0)
    (found,) = builder.if_else(condition, lambda: [builder.load(pointer, kind)], lambda: [zero])
    return found


def offset_of(builder: Builder, parts: list[tuple[Lane, Register]], width: int) -> Lane:
    """``sum(index * stride)``: positions in memory, as numbers."""
    place = place_of(builder, parts, width)
    if not isinstance(place, Scattered):
        return place
    return builder.binary("add", place.offsets, builder.splat(place.base, width))


def place_of(builder: Builder, parts: list[tuple[Lane, Register]], width: int) -> Place:
    """``sum(index * stride)``: where an element lies in memory."""
    base, step = number(INDEX, 0), number(INDEX, 0)
    vectors: list[tuple[Register, Register]] = []
    for lane, stride in parts:
        if isinstance(lane, Register) and lane.type.is_vector:
            vectors.append((lane, stride))
            continue
        base = builder.add(base, builder.multiply(_single(builder, lane), stride))
        if isinstance(lane, Strided):
            step = builder.add(step, builder.multiply(lane.step, stride))
    if not vectors:
        return Strided(base, step)
    offsets = to_vector(builder, Strided(index(0), step), INDEX, width)
    for lane, stride in vectors:
        wide = builder.convert("sext", lane, INDEX)
        if stride.constant != 1:
            wide = builder.binary("mul", wide, builder.splat(stride, width))
        is_first = step.constant == 0 and lane is vectors[0][0]
        offsets = wide if is_first else builder.binary("add", offsets, wide)
    is_plain = len(vectors) == 1 and step.constant == 0 and vectors[0][1].constant == 1
    return Scattered(base, offsets, vectors[0][0] if is_plain else None)
