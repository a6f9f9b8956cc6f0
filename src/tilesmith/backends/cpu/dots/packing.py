"""Copies an operand into panels ``[k][width]`` of packed elements, or into whole tiles.

For either operand ``major`` is the axis that stays in the result (rows of the left one, columns
of the right one). Elements past the end are read nowhere and become zero. Tiles, for tile
registers, are ``[k / 32][rows][32]``: a row of one is a piece of a row of the left operand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from typing_extensions import Self

from tilesmith.backends.cpu.dots.plans import Order, Packing, Panels
from tilesmith.backends.cpu.llvm.builder import Builder, bitcast, transpose
from tilesmith.backends.cpu.llvm.registers import LType, Register, index, number, parameters
from tilesmith.backends.cpu.math.casts import to_register
from tilesmith.dtypes import ElementKind

_POINTERS = ("source", "target")
_SIGNS = -0x7F7F7F80
"""The sign bits of four bytes, as a number of 32 bits."""


def pack(builder: Builder, packing: Packing, order: Order | None, panels: Panels) -> None:
    """Write all panels, one after the other; an unknown order is found out at run time."""
    if order is not None:
        name = f"pack_{order.value}_{packing.stem}"
        if not builder.module.has(name):
            names = (*Panels._fields[:-1], "count")
            inside = Builder(builder.module, name, parameters(names, _POINTERS))
            packer = _TilePacker if packing.keeps_rows else _PanelPacker
            packer(inside, packing, Panels(*inside.parameters)).emit(order)
            builder.module.add(inside)
        builder.call_void(name, *panels)
        return

    def look_further() -> None:
        builder.if_else(
            builder.compare("eq", panels.major_stride, index(1)),
            lambda: pack(builder, packing, Order.MAJOR, panels),
            lambda: pack(builder, packing, Order.NEITHER, panels),
        )

    builder.if_else(
        builder.compare("eq", panels.depth_stride, index(1)),
        lambda: pack(builder, packing, Order.DEPTH, panels),
        look_further,
    )


@dataclass(frozen=True)
class _Packer:
    """Emits the packing of all panels, or of one of them; what both forms have in common."""

    builder: Builder
    packing: Packing
    at: Panels

    def panel(self, i: Register) -> Self:
        """One of the panels, with all that is there from it on."""
        builder, at = self.builder, self.at
        first = builder.multiply(i, index(self.packing.used))
        position = builder.multiply(i, self.packing.panel_size(builder, at.depth))
        source = self._source(builder.multiply(first, at.major_stride))
        target = self._target(position)
        majors = builder.subtract(at.majors, first)
        return replace(self, at=at._replace(source=source, target=target, majors=majors))

    def _source(self, position: Register) -> Register:
        return self.builder.offset(self.at.source, position, self.packing.loaded)

    def _target(self, position: Register) -> Register:
        return self.builder.offset(self.at.target, position, self.packing.element)

    def _square_function(self, name: str, count: int) -> str:
        """Transposes one square block of which at most ``count`` rows are there."""
        module = self.builder.module
        if not module.has(name):
            names = ("source", "stride", "target", "majors", "depth")
            builder = Builder(module, name, parameters(names, _POINTERS))
            replace(self, builder=builder).emit_square(count)
            module.add(builder)
        return name

    def emit_square(self, count: int) -> None:
        builder, packing = self.builder, self.packing
        source, stride, target, majors, depth = builder.parameters
        width = packing.lanes * packing.group
        has_rows = builder.compare("sge", majors, index(count))
        has_columns = builder.compare("sge", depth, index(width))
        is_whole = builder.binary("and", has_rows, has_columns)
        # Lines in memory go along k, or along the rows where these are contiguous.
        along = (width, depth, majors) if packing.keeps_rows else (count, majors, depth)
        kind = LType(packing.loaded, packing.lanes if packing.keeps_rows else width)

        def copy() -> list[Register]:
            return [_load_part(builder, kind, (source, stride), along), index(kind.lanes)]

        first, step = builder.if_else(is_whole, lambda: [source, stride], copy)

        def line(i: int) -> Register:
            return builder.offset(first, builder.multiply(step, index(i)), packing.loaded)

        if packing.keeps_rows:
            lines = [builder.load(line(k), kind) for k in range(width)]
            starts = range(0, width, packing.group)
            rows = [self._join(lines[k : k + packing.group]) for k in starts]
        else:
            rows = [self._load_along_depth(start) for start in [line(i) for i in range(count)]]
            rows += [number(packing.element, 0, packing.lanes)] * (packing.lanes - count)
        apart = packing.lanes if packing.keeps_rows else packing.width
        for i, row in enumerate(transpose(builder, rows)):
            builder.store(row, builder.offset(target, index(i * apart), packing.element))

    def _load_along_depth(self, pointer: Register) -> Register:
        """A vector of packed elements that lie next to each other along k."""
        packing = self.packing
        x = self.builder.load(pointer, LType(packing.loaded, packing.lanes * packing.group))
        if packing.group == 1:
            return self._computed(x)
        return self._shifted(bitcast(self.builder, x, LType(packing.element, packing.lanes)))

    def _load_element(self, k: Register, i: Register) -> Register:
        """One element as it lies in memory, zero past the end."""
        builder, at, loaded = self.builder, self.at, self.packing.loaded
        down, right = builder.multiply(k, at.depth_stride), builder.multiply(i, at.major_stride)
        position = builder.add(down, right)
        is_there = builder.compare("slt", i, at.majors)
        return builder.if_else(
            builder.binary("and", is_there, builder.compare("slt", k, at.depth)),
            lambda: [builder.load(self._source(position), LType(loaded))],
            lambda: [number(loaded, 0)],
        )[0]

    def _join(self, parts: Sequence[Register]) -> Register:
        """Packed elements of what was loaded at each of the places along k that they hold."""
        builder, element = self.builder, self.packing.element
        if self.packing.group == 1:
            return self._computed(parts[0])
        bits = 32 // self.packing.group
        joined, *others = (builder.convert("zext", part, element) for part in parts)
        for place, part in enumerate(others, 1):
            moved = builder.binary("shl", part, number(element, place * bits, part.lanes))
            joined = builder.binary("or", joined, moved)
        return self._shifted(joined)

    def _shifted(self, x: Register) -> Register:
        """Bytes greater by 128, where packed ones have no sign."""
        if not self.packing.is_shifted:
            return x
        return self.builder.binary("xor", x, number(self.packing.element, _SIGNS, x.lanes))

    def _computed(self, x: Register) -> Register:
        source, dtype, element = self.packing.source, self.packing.dtype, self.packing.element
        held = to_register(self.builder, source, x)
        if dtype.is_float:
            return self.builder.convert("fpext", held, element)
        if held.type.bits > dtype.bits:
            return self.builder.convert("trunc", held, element)
        widen = "sext" if source.kind is ElementKind.SIGNED else "zext"
        return self.builder.convert(widen, held, element)


@dataclass(frozen=True)
class _PanelPacker(_Packer):
    """Panels ``[k][width]``."""

    def emit(self, order: Order) -> None:
        if order is Order.MAJOR:
            self._copy_panels()
            return
        write = _PanelPacker._transpose if order is Order.DEPTH else _PanelPacker._collect
        self.builder.count_up(self.at.num_panels, lambda i: write(self.panel(i)))

    def _copy_panels(self) -> None:
        """The major axis is contiguous: rows of all full panels are copied, memory in its order."""
        builder, packing, at = self.builder, self.packing, self.at
        spare = index(packing.width - packing.used)
        fitting = builder.binary("sdiv", builder.subtract(at.majors, spare), index(packing.used))
        full, whole = builder.minimum(at.num_panels, fitting), at.depth
        if packing.group > 1:
            whole = builder.binary("sdiv", at.depth, index(packing.group))

        def row(step: Register) -> None:
            builder.count_up(full, lambda i: self.panel(i).copy_row(step))

        def rest(i: Register) -> None:
            panel, lanes = self.panel(i), packing.lanes
            starts = map(index, range(0, packing.width, lanes))
            left = [builder.subtract(panel.at.majors, start) for start in starts]
            masks = [_lanes_below(builder, limit, lanes) for limit in left]
            begin = builder.select(builder.compare("slt", i, full), whole, index(0))
            steps = packing.steps(builder, at.depth)
            builder.loop(begin, steps, index(1), lambda k, _: panel.copy_row(k, masks))

        builder.count_up(whole, row)
        builder.count_up(at.num_panels, rest)

    def copy_row(self, step: Register, masks: Sequence[Register] | None = None) -> None:
        """One row of a panel; with masks where it or some of its columns may not exist."""
        builder, packing = self.builder, self.packing
        line = self._target(builder.multiply(step, index(packing.width)))
        for i, first in enumerate(range(0, packing.width, packing.lanes)):
            mask = None if masks is None else masks[i]
            x = self._join([self._row_part(step, n, first, mask) for n in range(packing.group)])
            builder.store(x, builder.offset(line, index(first), packing.element))

    def _row_part(self, step: Register, part: int, first: int, mask: Register | None) -> Register:
        """The vector from one column on, in one of the rows that a packed row holds."""
        builder, packing = self.builder, self.packing
        k = builder.add(builder.multiply(step, index(packing.group)), index(part))
        position = builder.add(builder.multiply(k, self.at.depth_stride), index(first))
        if mask is not None and packing.group > 1:
            is_there = builder.splat(builder.compare("slt", k, self.at.depth), packing.lanes)
            mask = builder.binary("and", mask, is_there)
        kind = LType(packing.loaded, packing.lanes)
        return _load_lanes(builder, kind, self._source(position), mask)

    def _transpose(self) -> None:
        """The contracted axis is contiguous: square blocks of vectors are transposed."""
        builder, packing, at = self.builder, self.packing, self.at

        def block(step: Register, _: tuple[Register, ...]) -> None:
            k = builder.multiply(step, index(packing.group))
            for first in range(0, packing.width, packing.lanes):
                count = min(packing.lanes, packing.used - first)
                name = self._square_function(f"square_{count}_{packing.stem}", count)
                skipped = builder.add(builder.multiply(at.major_stride, index(first)), k)
                line = builder.add(builder.multiply(step, index(packing.width)), index(first))
                source, target = self._source(skipped), self._target(line)
                left = builder.subtract(at.majors, index(first)), builder.subtract(at.depth, k)
                builder.call_void(name, source, at.major_stride, target, *left)

        builder.loop(index(0), packing.steps(builder, at.depth), index(packing.lanes), block)

    def _collect(self) -> None:
        """No axis is contiguous: one element after the other."""
        builder, packing = self.builder, self.packing

        def row(step: Register) -> None:
            def one(i: Register) -> None:
                first = builder.multiply(step, index(packing.group))
                ks = [builder.add(first, index(n)) for n in range(packing.group)]
                x = self._join([self._load_element(k, i) for k in ks])
                place = builder.add(builder.multiply(step, index(packing.width)), i)
                builder.store(x, self._target(place))

            builder.count_up(index(packing.used), one)

        builder.count_up(packing.steps(builder, self.at.depth), row)


@dataclass(frozen=True)
class _TilePacker(_Packer):
    """Tiles ``[k / 32][rows][32]``."""

    def emit(self, order: Order) -> None:
        write = {
            Order.MAJOR: _TilePacker._transpose,
            Order.DEPTH: _TilePacker._copy,
            Order.NEITHER: _TilePacker._collect,
        }[order]
        self.builder.count_up(self.at.num_panels, lambda i: write(self.panel(i)))

    def _transpose(self) -> None:
        """The rows' axis is contiguous: square blocks of pairs are transposed."""
        builder, packing, at = self.builder, self.packing, self.at
        name = self._square_function(f"square_{packing.stem}", packing.lanes)

        def block(k: Register, tile: Register) -> None:
            for first in range(0, packing.width, packing.lanes):
                skipped = builder.add(builder.multiply(k, at.depth_stride), index(first))
                source = self._source(skipped)
                target = builder.offset(tile, index(first * packing.lanes), packing.element)
                left = builder.subtract(at.majors, index(first)), builder.subtract(at.depth, k)
                builder.call_void(name, source, at.depth_stride, target, *left)

        self._each_tile(block)

    def _collect(self) -> None:
        """No axis is contiguous: one element after the other."""
        builder, packing = self.builder, self.packing
        width = index(packing.lanes * packing.group)

        def block(k: Register, tile: Register) -> None:
            def row(i: Register) -> None:
                line = builder.offset(tile, builder.multiply(i, width), packing.loaded)

                def one(j: Register) -> None:
                    x = self._load_element(builder.add(k, j), i)
                    builder.store(x, builder.offset(line, j, packing.loaded))

                builder.count_up(width, one)

            builder.count_up(index(packing.width), row)

        self._each_tile(block)

    def _each_tile(self, write: Callable[[Register, Register], None]) -> None:
        """The tiles one above the other at each position along k, one after the other in memory."""
        builder, packing = self.builder, self.packing
        width = packing.lanes * packing.group

        def block(k: Register, state: tuple[Register, ...]) -> list[Register]:
            write(k, state[0])
            return [builder.offset(state[0], index(packing.width * width), packing.loaded)]

        builder.loop(index(0), self.at.depth, index(width), block, [self.at.target])

    def _copy(self) -> None:
        """The contracted axis is contiguous: rows are copied piece by piece, in order."""
        builder, packing, at = self.builder, self.packing, self.at
        width, loaded = packing.lanes * packing.group, packing.loaded
        kind = LType(loaded, width)
        whole = builder.round_down(at.depth, width)
        mask = _lanes_below(builder, builder.subtract(at.depth, whole), width)
        rows = builder.minimum(at.majors, index(packing.width))

        def put(i: Register, k: Register, x: Register) -> None:
            tile = builder.offset(at.target, builder.multiply(k, index(packing.width)), loaded)
            builder.store(x, builder.offset(tile, builder.multiply(i, index(width)), loaded))

        def row(i: Register) -> None:
            line = self._source(builder.multiply(i, at.major_stride))

            def piece(k: Register, _: tuple[Register, ...]) -> None:
                put(i, k, builder.load(builder.offset(line, k, loaded), kind))

            def rest() -> None:
                start = builder.offset(line, whole, loaded)
                put(i, whole, _load_lanes(builder, kind, start, mask))

            builder.loop(index(0), whole, index(width), piece)
            builder.if_else(builder.compare("slt", whole, at.depth), rest)

        def zero_row(i: Register, _: tuple[Register, ...]) -> None:
            zero = number(loaded, 0, width)
            builder.loop(index(0), at.depth, index(width), lambda k, _: put(i, k, zero))

        builder.count_up(rows, row)
        builder.loop(rows, index(packing.width), index(1), zero_row)


def _load_lanes(builder: Builder, kind: LType, start: Register, mask: Register | None) -> Register:
    """Elements as they lie in memory, zero where the mask does not hold."""
    if mask is None:
        return builder.load(start, kind)
    return builder.masked_load(start, mask, number(kind.element, 0, kind.lanes))


def _lanes_below(builder: Builder, limit: Register, lanes: int) -> Register:
    capped = builder.convert("trunc", builder.minimum(limit, index(lanes)), "i32")
    return builder.first_lanes(capped, lanes)


def _load_part(
    builder: Builder,
    kind: LType,
    source: tuple[Register, Register],
    extents: tuple[int, Register, Register],
) -> Register:
    """What there is of ``count`` rows, with zeros around, in memory of its own."""
    (start, stride), (count, rows, columns) = source, extents
    buffer = builder.alloca(kind.element, kind.lanes * count)
    mask = _lanes_below(builder, columns, kind.lanes)

    def row(i: Register) -> None:
        exists = builder.splat(builder.compare("slt", i, rows), kind.lanes)
        line = builder.offset(start, builder.multiply(i, stride), kind.element)
        x = _load_lanes(builder, kind, line, builder.binary("and", mask, exists))
        position = builder.multiply(i, index(kind.lanes))
        builder.store(x, builder.offset(buffer, position, kind.element))

    builder.count_up(index(count), row)
    return buffer
