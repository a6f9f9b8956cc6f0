"""Reads and writes of one step's elements, by how their positions are spaced."""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.backends.cpu.builder import Builder
from tilesmith.backends.cpu.lanes import Lane, Strided, Uniform, Vector, from_register, to_vector
from tilesmith.backends.cpu.registers import INDEX, LType, Register, number


@dataclass(frozen=True)
class Lanes:
    """How many lanes a step has, and which of them count: ``tail`` in the last step of a loop."""

    width: int
    tail: Register | None = None

    def mask(self, b: Builder, explicit: Register | None) -> Register | None:
        """The lanes to touch; None for all of them."""
        if explicit is None:
            return self.tail
        explicit = b.splat(explicit, self.width)
        return explicit if self.tail is None else b.binary("and", explicit, self.tail)


@dataclass(frozen=True)
class Elements:
    """Elements of one kind in memory, counted from a pointer, or from one in each lane."""

    pointer: Register
    element: str

    def has_neighbours(self, position: Lane) -> bool:
        """Whether the lanes go through memory element by element."""
        is_dense = isinstance(position, Strided) and position.step.constant == 1
        return is_dense and not self.pointer.type.is_vector


def read(
    b: Builder, memory: Elements, position: Lane, lanes: Lanes, explicit: Register | None = None
) -> Lane:
    """The elements at a position; 0 where ``explicit`` does not hold."""
    element = memory.element
    if not memory.pointer.type.is_vector and _is_single(position, lanes.width):
        scalar = explicit is None or not explicit.type.is_vector
        if scalar:
            return Uniform(_read_one(b, memory, _single(b, position), explicit))
    kind = LType(element, lanes.width)
    mask = lanes.mask(b, explicit)
    if isinstance(position, Strided) and memory.has_neighbours(position):
        pointer = b.offset(memory.pointer, position.base, element)
        if mask is None:
            return Vector(b.load(pointer, kind))
        return Vector(b.masked_load(pointer, mask, number(element, 0, lanes.width)))
    pointers = b.offset(memory.pointer, to_vector(b, position, INDEX, lanes.width), element)
    mask = mask or number("i1", 1, lanes.width)
    return Vector(b.gather(pointers, mask, number(element, 0, lanes.width)))


def write(
    b: Builder,
    memory: Elements,
    position: Lane,
    x: Register,
    lanes: Lanes,
    explicit: Register | None = None,
) -> None:
    """Replace the elements at a position where ``explicit`` holds."""
    element = memory.element
    if lanes.width == 1:
        _write_one(b, b.offset(memory.pointer, _single(b, position), element), x, explicit)
        return
    x = b.splat(x, lanes.width)
    mask = lanes.mask(b, explicit)
    if isinstance(position, Strided) and memory.has_neighbours(position):
        pointer = b.offset(memory.pointer, position.base, element)
        if mask is None:
            b.store(x, pointer)
        else:
            b.masked_store(x, pointer, mask)
        return
    pointers = b.offset(memory.pointer, to_vector(b, position, INDEX, lanes.width), element)
    pointers = b.splat(pointers, lanes.width)
    b.scatter(x, pointers, mask or number("i1", 1, lanes.width))


def _is_single(position: Lane, width: int) -> bool:
    if width == 1 or isinstance(position, Uniform):
        return True
    return isinstance(position, Strided) and position.step.constant == 0


def _single(b: Builder, position: Lane) -> Register:
    if isinstance(position, Strided):
        return position.base
    return b.index_of(position.x)


def _read_one(
    b: Builder, memory: Elements, position: Register, condition: Register | None
) -> Register:
    kind = LType(memory.element)
    pointer = b.offset(memory.pointer, position, memory.element)
    if condition is None:
        return b.load(pointer, kind)
    zero = number(memory.element, 0)
    (found,) = b.if_else(condition, lambda: [b.load(pointer, kind)], lambda: [zero])
    return found


def _write_one(b: Builder, pointer: Register, x: Register, condition: Register | None) -> None:
    if condition is None:
        b.store(x, pointer)
    else:
        b.if_else(condition, lambda: b.store(x, pointer))


def offset_of(b: Builder, parts: list[tuple[Lane, Register]], width: int) -> Lane:
    """``sum(index * stride)``: positions in memory."""
    base, step, vector = number(INDEX, 0), number(INDEX, 0), None
    for lane, stride in parts:
        if isinstance(lane, Vector) and lane.x.type.is_vector:
            wide = b.convert("sext", lane.x, INDEX)
            term = wide if stride.constant == 1 else b.binary("mul", wide, b.splat(stride, width))
            vector = term if vector is None else b.binary("add", vector, term)
            continue
        first = lane.base if isinstance(lane, Strided) else b.index_of(lane.x)
        base = b.add(base, b.multiply(first, stride))
        if isinstance(lane, Strided):
            step = b.add(step, b.multiply(lane.step, stride))
    total = Strided(base, step)
    if vector is None:
        return total
    return from_register(b.binary("add", vector, to_vector(b, total, INDEX, width)))
