"""Copies rows of a left operand into whole tiles, for tile registers: ``[k / 32][rows][32]``.

A row of a tile is a piece of a row of the operand; what does not exist becomes zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilesmith.backends.cpu.dots import panels as packed_form
from tilesmith.backends.cpu.llvm.builder import Builder
from tilesmith.backends.cpu.llvm.instructions import Module
from tilesmith.backends.cpu.llvm.registers import INDEX, POINTER, LType, Register, index, number


def _copy_rows(builder: Builder, packing: packed_form.Packing, at: packed_form.Panels) -> None:
    """The contracted axis is contiguous: rows are copied piece by piece, memory in its order."""
    width = packing.lanes * packing.group
    kind = LType(packing.loaded, width)
    whole = builder.round_down(at.depth, width)
    mask = packed_form.lanes_below(builder, builder.subtract(at.depth, whole), width)
    rows = builder.minimum(at.majors, index(packing.width))

    def put(i: Register, k: Register, x: Register) -> None:
        tile = builder.offset(at.target, builder.multiply(k, index(packing.width)), packing.loaded)
        builder.store(x, builder.offset(tile, builder.multiply(i, index(width)), packing.loaded))

    def row(i: Register) -> None:
        line = builder.offset(at.source, builder.multiply(i, at.major_stride), packing.loaded)

        def piece(k: Register, _: tuple[Register, ...]) -> None:
            put(i, k, builder.load(builder.offset(line, k, packing.loaded), kind))

        def rest() -> None:
            put(
                i,
                whole,
                packed_form.load_lanes(
                    builder, kind, builder.offset(line, whole, packing.loaded), mask
                ),
            )

        builder.loop(index(0), whole, index(width), piece)
        builder.if_else(builder.compare("slt", whole, at.depth), rest)

    def zero_row(i: Register, _: tuple[Register, ...]) -> None:
        zero = number(packing.loaded, 0, width)
        builder.loop(index(0), at.depth, index(width), lambda k, _: put(i, k, zero))

    builder.count_up(rows, row)
    builder.loop(rows, index(packing.width), index(1), zero_row)


def _transpose_rows(builder: Builder, packing: packed_form.Packing, at: packed_form.Panels) -> None:
    """The rows' axis is contiguous: square blocks of pairs are transposed."""
    name = _square_function(builder.module, packing)

    def block(k: Register, tile: Register) -> None:
        for first in range(0, packing.width, packing.lanes):
            position = builder.add(builder.multiply(k, at.depth_stride), index(first))
            builder.call_void(
                name,
                builder.offset(at.source, position, packing.loaded),
                at.depth_stride,
                builder.offset(tile, index(first * packing.lanes), packing.element),
                builder.subtract(at.majors, index(first)),
                builder.subtract(at.depth, k),
            )

    _each_block(builder, packing, at, block)


def _square_function(module: Module, packing: packed_form.Packing) -> str:
    name = f"square_{packing.stem}"
    if not module.has(name):
        kinds = (POINTER, INDEX, POINTER, INDEX, INDEX)
        names = ("source", "stride", "target", "majors", "depth")
        builder = Builder(module, name, [(n, LType(k)) for n, k in zip(names, kinds, strict=True)])
        _emit_square(builder, packing)
        module.add(builder)
    return name


def _emit_square(builder: Builder, packing: packed_form.Packing) -> None:
    source, stride, target, majors, depth = builder.parameters
    kind = LType(packing.loaded, packing.lanes)
    count = packing.lanes * packing.group
    has_rows = builder.compare("sge", majors, index(packing.lanes))
    has_depth = builder.compare("sge", depth, index(count))

    def copy() -> list[Register]:
        part = packed_form.load_part(builder, kind, (source, stride), (count, depth, majors))
        return [part, index(packing.lanes)]

    first, step = builder.if_else(
        builder.binary("and", has_rows, has_depth), lambda: [source, stride], copy
    )
    lines = [
        builder.load(builder.offset(first, builder.multiply(step, index(k)), packing.loaded), kind)
        for k in range(count)
    ]
    steps = [lines[k : k + packing.group] for k in range(0, count, packing.group)]
    square = transpose(
        builder, [packed_form.join_neighbours(builder, packing, parts) for parts in steps]
    )
    for i, row in enumerate(square):
        builder.store(row, builder.offset(target, index(i * packing.lanes), packing.element))


def _collect_rows(builder: Builder, packing: packed_form.Packing, at: packed_form.Panels) -> None:
    """No axis is contiguous: one element after the other."""
    width = index(packing.lanes * packing.group)

    def block(k: Register, tile: Register) -> None:
        def row(i: Register) -> None:
            line = builder.offset(tile, builder.multiply(i, width), packing.loaded)

            def one(j: Register) -> None:
                x = packed_form.load_element(builder, packing, at, builder.add(k, j), i)
                builder.store(x, builder.offset(line, j, packing.loaded))

            builder.count_up(width, one)

        builder.count_up(index(packing.width), row)

    _each_block(builder, packing, at, block)


def _each_block(
    builder: Builder,
    packing: packed_form.Packing,
    at: packed_form.Panels,
    write: Callable[[Register, Register], None],
) -> None:
    """The tiles one above the other at each position along k, one after the other in memory."""
    width = packing.lanes * packing.group

    def block(k: Register, state: tuple[Register, ...]) -> list[Register]:
        write(k, state[0])
        return [builder.offset(state[0], index(packing.width * width), packing.loaded)]

    builder.loop(index(0), at.depth, index(width), block, [at.target])


ROW_WRITERS = {
    packed_form.Order.MAJOR: _transpose_rows,
    packed_form.Order.DEPTH: _copy_rows,
    packed_form.Order.NEITHER: _collect_rows,
}

_LANE_BITS = 128
_WIDEST_BITS = 64


def transpose(builder: Builder, rows: Sequence[Register]) -> list[Register]:
    """As many vectors as each has lanes; element ``j`` of row ``i`` moves to ``i`` of ``j``."""
    unit = min(_LANE_BITS // rows[0].type.bits, len(rows))
    result = list(rows)
    for start in range(0, len(rows), unit):
        result[start : start + unit] = _within_lanes(builder, rows[start : start + unit])
    for column in range(unit):
        result[column::unit] = _across_lanes(builder, result[column::unit], unit)
    return result


def _within_lanes(builder: Builder, rows: Sequence[Register]) -> list[Register]:
    """Transpose the square blocks that stand in each 128-bit lane, by interleaving."""
    unit = len(rows)
    result = list(rows)
    width = 1
    while width < unit:
        merged: list[Register] = []
        for start in range(0, unit, 2 * width):
            for x, y in zip(
                result[start : start + width],
                result[start + width : start + 2 * width],
                strict=True,
            ):
                merged += [_interleave(builder, x, y, (unit, width, high)) for high in (0, 1)]
        result = merged
        width *= 2
    return result


def _interleave(
    builder: Builder, x: Register, y: Register, pattern: tuple[int, int, int]
) -> Register:
    """Alternate groups of ``width`` elements from one half of every lane of two vectors."""
    unit, width, high = pattern
    picked: list[int] = []
    for lane in range(0, x.lanes, unit):
        for group in range(lane + high * unit // 2, lane + (high + 1) * unit // 2, width):
            picked += [group // width, (x.lanes + group) // width]
    return _pick_groups(builder, x, y, picked, width)


def _across_lanes(builder: Builder, rows: Sequence[Register], unit: int) -> list[Register]:
    """Transpose whole lanes: each step separates the even from the odd ones."""
    if len(rows) == 1:
        return list(rows)
    lanes = range(2 * rows[0].lanes // unit)
    result: list[Register] = [rows[0]] * len(rows)
    for parity in (0, 1):
        pairs = zip(rows[::2], rows[1::2], strict=True)
        halves = [_pick_groups(builder, x, y, lanes[parity::2], unit) for x, y in pairs]
        result[parity::2] = _across_lanes(builder, halves, unit)
    return result


def _pick_groups(
    builder: Builder, x: Register, y: Register, groups: Sequence[int], width: int
) -> Register:
    """Groups of neighbours from two vectors, as wide elements: LLVM is quick with few of them."""
    joined = min(width, _WIDEST_BITS // x.type.bits)
    kind = x.type if joined == 1 else LType(f"i{x.type.bits * joined}", x.lanes // joined)
    parts = width // joined
    picked = [group * parts + i for group in groups for i in range(parts)]
    return _as(
        builder, builder.shuffle(_as(builder, x, kind), _as(builder, y, kind), picked), x.type
    )


def _as(builder: Builder, x: Register, kind: LType) -> Register:
    return x if x.type == kind else builder.value(kind, f"bitcast {x} to {kind}")
