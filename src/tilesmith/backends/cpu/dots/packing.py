"""Copies an operand into panels ``[k][width]`` of packed elements.

For either operand ``major`` is the axis that stays in the result (rows of the left one, columns
of the right one). Elements past the end are read nowhere and become zero.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from tilesmith.backends.cpu.builder import Builder
from tilesmith.backends.cpu.dots.packed_elements import (
    Packing,
    join_neighbours,
    load_along_depth,
    load_lanes,
)
from tilesmith.backends.cpu.dots.transposition import transpose
from tilesmith.backends.cpu.instructions import Module
from tilesmith.backends.cpu.registers import (
    INDEX,
    POINTER,
    LType,
    Register,
    index,
    lane_numbers,
    number,
)


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


_PARAMETERS = (
    ("source", LType(POINTER)),
    ("major_stride", LType(INDEX)),
    ("depth_stride", LType(INDEX)),
    ("target", LType(POINTER)),
    ("majors", LType(INDEX)),
    ("depth", LType(INDEX)),
    ("count", LType(INDEX)),
)


def pack(b: Builder, packing: Packing, order: Order | None, panels: Panels) -> None:
    """Write all panels, one after the other; an unknown order is found out at run time."""
    if order is not None:
        b.call_void(_pack_function(b.module, packing, order), *panels.arguments())
        return

    def look_further() -> None:
        b.if_else(
            b.compare("eq", panels.major_stride, index(1)),
            lambda: pack(b, packing, Order.MAJOR, panels),
            lambda: pack(b, packing, Order.NEITHER, panels),
        )

    b.if_else(
        b.compare("eq", panels.depth_stride, index(1)),
        lambda: pack(b, packing, Order.DEPTH, panels),
        look_further,
    )


def _pack_function(module: Module, packing: Packing, order: Order) -> str:
    name = f"pack_{order.value}_{packing.stem}"
    if not module.has(name):
        b = Builder(module, name, _PARAMETERS)
        _emit_panels(b, packing, order)
        module.add(b)
    return name


def _emit_panels(b: Builder, packing: Packing, order: Order) -> None:
    at = Panels(*b.parameters)
    write = {
        Order.MAJOR: _copy_panel,
        Order.DEPTH: _transpose_panel,
        Order.NEITHER: _collect_panel,
    }[order]
    size = packing.panel_size(b, at.depth)

    def panel(i: Register, carried: tuple[Register, ...]) -> list[Register]:
        first = b.multiply(i, index(packing.used))
        start = b.offset(at.source, b.multiply(first, at.major_stride), packing.loaded)
        left = b.subtract(at.majors, first)
        write(b, packing, replace(at, source=start, target=carried[0], majors=left))
        return [b.offset(carried[0], size, packing.element)]

    b.loop(index(0), at.count, index(1), panel, [at.target])


def _copy_panel(b: Builder, packing: Packing, at: Panels) -> None:
    """The major axis is contiguous: vectors are converted and stored as they are."""
    firsts = range(0, packing.width, packing.lanes)
    is_full = b.compare("sge", at.majors, index(packing.width))

    def rows(is_full: bool) -> None:
        left = [] if is_full else [b.subtract(at.majors, index(first)) for first in firsts]
        masks = [_lanes_below(b, limit, packing.lanes) for limit in left]

        def row(step: Register) -> None:
            line = b.offset(at.target, b.multiply(step, index(packing.width)), packing.element)
            for i, first in enumerate(firsts):
                mask = None if is_full else masks[i]
                parts = _load_neighbours(b, packing, at, (step, first, mask))
                x = join_neighbours(b, packing, parts)
                b.store(x, b.offset(line, index(first), packing.element))

        b.count_up(packing.steps(b, at.depth), row)

    b.if_else(is_full, lambda: rows(True), lambda: rows(False))


def _load_neighbours(
    b: Builder, packing: Packing, at: Panels, where: tuple[Register, int, Register | None]
) -> list[Register]:
    """The vectors from one column on in each row that a packed row holds."""
    step, first, mask = where
    kind = LType(packing.loaded, packing.lanes)
    parts: list[Register] = []
    for neighbour in range(packing.group):
        k = b.add(b.multiply(step, index(packing.group)), index(neighbour))
        position = b.add(b.multiply(k, at.depth_stride), index(first))
        if neighbour > 0:
            exists = b.splat(b.compare("slt", k, at.depth), packing.lanes)
            mask = exists if mask is None else b.binary("and", mask, exists)
        parts.append(load_lanes(b, kind, b.offset(at.source, position, packing.loaded), mask))
    return parts


def _transpose_panel(b: Builder, packing: Packing, at: Panels) -> None:
    """The contracted axis is contiguous: square blocks of vectors are transposed."""

    def block(step: Register, _: tuple[Register, ...]) -> None:
        k = b.multiply(step, index(packing.group))
        for first in range(0, packing.width, packing.lanes):
            count = min(packing.lanes, packing.used - first)
            name = _square_function(b.module, packing, count)
            skipped = b.add(b.multiply(at.major_stride, index(first)), k)
            line = b.add(b.multiply(step, index(packing.width)), index(first))
            b.call_void(
                name,
                b.offset(at.source, skipped, packing.loaded),
                at.major_stride,
                b.offset(at.target, line, packing.element),
                b.subtract(at.majors, index(first)),
                b.subtract(at.depth, k),
            )

    b.loop(index(0), packing.steps(b, at.depth), index(packing.lanes), block)


def _square_function(module: Module, packing: Packing, count: int) -> str:
    """Transposes one square block of which at most ``count`` rows are there."""
    name = f"square_{count}_{packing.stem}"
    if not module.has(name):
        kinds = (POINTER, INDEX, POINTER, INDEX, INDEX)
        names = ("source", "stride", "target", "majors", "depth")
        b = Builder(module, name, [(n, LType(k)) for n, k in zip(names, kinds, strict=True)])
        _emit_square(b, packing, count)
        module.add(b)
    return name


def _emit_square(b: Builder, packing: Packing, count: int) -> None:
    source, stride, target, majors, depth = b.parameters
    width = packing.lanes * packing.group
    has_rows = b.compare("sge", majors, index(count))
    has_columns = b.compare("sge", depth, index(width))

    def copy() -> list[Register]:
        return [_copy_part(b, LType(packing.loaded, width), count), index(width)]

    first, step = b.if_else(b.binary("and", has_rows, has_columns), lambda: [source, stride], copy)
    starts = [b.offset(first, b.multiply(step, index(i)), packing.loaded) for i in range(count)]
    rows = [load_along_depth(b, packing, start) for start in starts]
    zero = number(packing.element, 0, packing.lanes)
    square = transpose(b, [*rows, *[zero] * (packing.lanes - count)])
    for k, row in enumerate(square):
        b.store(row, b.offset(target, index(k * packing.width), packing.element))


def _copy_part(b: Builder, kind: LType, count: int) -> Register:
    """What there is of a square block, with zeros around, in memory of its own."""
    source, stride, _, majors, depth = b.parameters
    buffer = b.alloca(kind.element, kind.lanes * count)
    columns = _lanes_below(b, depth, kind.lanes)

    def row(i: Register) -> None:
        exists = b.splat(b.compare("slt", i, majors), kind.lanes)
        start = b.offset(source, b.multiply(i, stride), kind.element)
        x = load_lanes(b, kind, start, b.binary("and", columns, exists))
        b.store(x, b.offset(buffer, b.multiply(i, index(kind.lanes)), kind.element))

    b.count_up(index(count), row)
    return buffer


def _collect_panel(b: Builder, packing: Packing, at: Panels) -> None:
    """No axis is contiguous: one element after the other."""
    kind = LType(packing.loaded)

    def fetch(k: Register, i: Register) -> Register:
        position = b.add(b.multiply(k, at.depth_stride), b.multiply(i, at.major_stride))
        is_there = b.compare("slt", i, at.majors)
        exists = b.binary("and", is_there, b.compare("slt", k, at.depth))
        return b.if_else(
            exists,
            lambda: [b.load(b.offset(at.source, position, packing.loaded), kind)],
            lambda: [number(packing.loaded, 0)],
        )[0]

    def row(step: Register) -> None:
        def one(i: Register) -> None:
            first = b.multiply(step, index(packing.group))
            ks = [b.add(first, index(neighbour)) for neighbour in range(packing.group)]
            x = join_neighbours(b, packing, [fetch(k, i) for k in ks])
            place = b.add(b.multiply(step, index(packing.width)), i)
            b.store(x, b.offset(at.target, place, packing.element))

        b.count_up(index(packing.used), one)

    b.count_up(packing.steps(b, at.depth), row)


def _lanes_below(b: Builder, limit: Register, lanes: int) -> Register:
    capped = b.convert("trunc", b.minimum(limit, index(lanes)), "i32")
    return b.compare("slt", lane_numbers("i32", lanes), b.splat(capped, lanes))
