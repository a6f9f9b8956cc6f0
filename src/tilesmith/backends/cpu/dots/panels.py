"""What packed operands consist of: numbers of the computing type, or pairs of bf16.

A pair holds two neighbours along k in 32 bits, as tile registers want them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from tilesmith.backends.cpu.dots.shapes import round_up
from tilesmith.backends.cpu.llvm.builder import Builder
from tilesmith.backends.cpu.llvm.registers import (
    INDEX,
    POINTER,
    LType,
    Register,
    index,
    lane_numbers,
    memory_element,
    number,
    register_element,
)
from tilesmith.backends.cpu.math.casts import to_register
from tilesmith.dtypes import DType, ElementKind


class Order(Enum):
    """Which axis of an operand lies contiguously."""

    MAJOR = "major"
    DEPTH = "depth"
    NEITHER = "neither"


@dataclass(frozen=True)
class Panels:
    """Where the panels of an operand come from and go to.

    ``majors`` elements are there along the major axis, which may be more than ``count`` panels.
    """

    source: Register
    major_stride: Register
    depth_stride: Register
    target: Register
    majors: Register
    depth: Register
    count: Register

    def arguments(self) -> tuple[Register, ...]:
        """In the order in which packing functions take them."""
        source = self.source, self.major_stride, self.depth_stride
        return *source, self.target, self.majors, self.depth, self.count


PANEL_PARAMETERS = (
    ("source", LType(POINTER)),
    ("major_stride", LType(INDEX)),
    ("depth_stride", LType(INDEX)),
    ("target", LType(POINTER)),
    ("majors", LType(INDEX)),
    ("depth", LType(INDEX)),
    ("count", LType(INDEX)),
)


@dataclass(frozen=True)
class Packing:
    """What one operand is packed into.

    Attributes:
        source: type of the elements in memory.
        dtype: type computed in.
        width: elements of a panel along the major axis.
        used: how many of them matter.
        lanes: elements of a vector of ``dtype``.
        group: neighbours along k in one packed element: 1, or 2 for pairs of bf16.
        keeps_rows: whether panels are ``[k / lanes][width][lanes]``, each row a piece of a row of
            the operand, instead of ``[k][width]``.
    """

    source: DType
    dtype: DType
    width: int
    used: int
    lanes: int
    group: int = 1
    keeps_rows: bool = False

    @property
    def loaded(self) -> str:
        """LLVM element in memory."""
        return memory_element(self.source)

    @property
    def element(self) -> str:
        """LLVM element of the panels."""
        return register_element(self.dtype) if self.group == 1 else "i32"

    @property
    def stem(self) -> str:
        """Part of function names."""
        kinds = f"{self.source}_{self.dtype}" if self.group == 1 else "pairs"
        rows = "_rows" if self.keeps_rows else ""
        return f"{kinds}_{self.used}in{self.width}x{self.lanes}{rows}"

    def steps(self, builder: Builder, depth: Register) -> Register:
        """Packed elements along k; tile registers take whole vectors of pairs."""
        return depth if self.group == 1 else self._whole_vectors(builder, depth)

    def panel_size(self, builder: Builder, depth: Register) -> Register:
        """Elements of one panel: transposition writes whole vectors along k."""
        return builder.multiply(self._whole_vectors(builder, depth), index(self.width))

    def _whole_vectors(self, builder: Builder, depth: Register) -> Register:
        steps = builder.ceiling_quotient(depth, index(self.group))
        return builder.round_down(builder.add(steps, index(self.lanes - 1)), self.lanes)

    def count_elements(self, depth: int, majors: int) -> int:
        """Elements of all panels."""
        steps = round_up(-(-depth // self.group), self.lanes)
        return -(-majors // self.used) * self.width * steps


def load_along_depth(builder: Builder, packing: Packing, pointer: Register) -> Register:
    """A vector of packed elements that lie next to each other along k."""
    x = builder.load(pointer, LType(packing.loaded, packing.lanes * packing.group))
    if packing.group == 1:
        return _computed(builder, packing, x)
    pairs = LType(packing.element, packing.lanes)
    return builder.value(pairs, f"bitcast {x} to {pairs}")


def join_neighbours(builder: Builder, packing: Packing, parts: Sequence[Register]) -> Register:
    """Packed elements of what was loaded at each of the places along k that they hold."""
    if packing.group == 1:
        return _computed(builder, packing, parts[0])
    low, high = (builder.convert("zext", part, packing.element) for part in parts)
    return builder.binary(
        "or", low, builder.binary("shl", high, number(packing.element, 16, high.lanes))
    )


def load_lanes(builder: Builder, kind: LType, pointer: Register, mask: Register | None) -> Register:
    """Elements as they lie in memory, zero where the mask does not hold."""
    if mask is None:
        return builder.load(pointer, kind)
    return builder.masked_load(pointer, mask, number(kind.element, 0, kind.lanes))


def lanes_below(builder: Builder, limit: Register, lanes: int) -> Register:
    """Which lanes stand before a position."""
    capped = builder.convert("trunc", builder.minimum(limit, index(lanes)), "i32")
    return builder.compare("slt", lane_numbers("i32", lanes), builder.splat(capped, lanes))


def load_part(
    builder: Builder,
    kind: LType,
    source: tuple[Register, Register],
    extents: tuple[int, Register, Register],
) -> Register:
    """What there is of ``count`` rows, with zeros around, in memory of its own."""
    (start, stride), (count, rows, columns) = source, extents
    buffer = builder.alloca(kind.element, kind.lanes * count)
    mask = lanes_below(builder, columns, kind.lanes)

    def row(i: Register) -> None:
        exists = builder.splat(builder.compare("slt", i, rows), kind.lanes)
        line = builder.offset(start, builder.multiply(i, stride), kind.element)
        x = load_lanes(builder, kind, line, builder.binary("and", mask, exists))
        builder.store(
            x, builder.offset(buffer, builder.multiply(i, index(kind.lanes)), kind.element)
        )

    builder.count_up(index(count), row)
    return buffer


def load_element(
    builder: Builder, packing: Packing, at: Panels, k: Register, i: Register
) -> Register:
    """One element as it lies in memory, zero past the end."""
    position = builder.add(
        builder.multiply(k, at.depth_stride), builder.multiply(i, at.major_stride)
    )
    is_there = builder.compare("slt", i, at.majors)
    return builder.if_else(
        builder.binary("and", is_there, builder.compare("slt", k, at.depth)),
        lambda: [
            builder.load(builder.offset(at.source, position, packing.loaded), LType(packing.loaded))
        ],
        lambda: [number(packing.loaded, 0)],
    )[0]


def _computed(builder: Builder, packing: Packing, x: Register) -> Register:
    held = to_register(builder, packing.source, x)
    if packing.dtype.is_float:
        return builder.convert("fpext", held, packing.element)
    if held.type.bits > packing.dtype.bits:
        return builder.convert("trunc", held, packing.element)
    is_signed = packing.source.kind is ElementKind.SIGNED
    return builder.convert("sext" if is_signed else "zext", held, packing.element)
