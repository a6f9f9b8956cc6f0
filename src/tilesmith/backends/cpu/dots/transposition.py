"""Copies rows of a left operand into whole tiles, for tile registers: ``[k / 32][rows][32]``.

A row of a tile is a piece of a row of the operand; what does not exist becomes zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilesmith.backends.cpu.dots.panels import (
    Order,
    Packing,
    Panels,
    join_neighbours,
    lanes_below,
    load_element,
    load_lanes,
    load_part,
)
from tilesmith.backends.cpu.llvm.builder import Builder
from tilesmith.backends.cpu.llvm.instructions import Module
from tilesmith.backends.cpu.llvm.registers import INDEX, POINTER, LType, Register, index, number


def _copy_rows(b: Builder, packing: Packing, at: Panels) -> None:
    """The contracted axis is contiguous: rows are copied piece by piece, memory in its order."""
    width = packing.lanes * packing.group
    kind = LType(packing.loaded, width)
    whole = b.round_down(at.depth, width)
    mask = lanes_below(b, b.subtract(at.depth, whole), width)
    rows = b.minimum(at.majors, index(packing.width))

    def put(i: Register, k: Register, x: Register) -> None:
        tile = b.offset(at.target, b.multiply(k, index(packing.width)), packing.loaded)
        b.store(x, b.offset(tile, b.multiply(i, index(width)), packing.loaded))

    def row(i: Register) -> None:
        line = b.offset(at.source, b.multiply(i, at.major_stride), packing.loaded)

        def piece(k: Register, _: tuple[Register, ...]) -> None:
            put(i, k, b.load(b.offset(line, k, packing.loaded), kind))

        def rest() -> None:
            put(i, whole, load_lanes(b, kind, b.offset(line, whole, packing.loaded), mask))

        b.loop(index(0), whole, index(width), piece)
        b.if_else(b.compare("slt", whole, at.depth), rest)

    def zero_row(i: Register, _: tuple[Register, ...]) -> None:
        zero = number(packing.loaded, 0, width)
        b.loop(index(0), at.depth, index(width), lambda k, _: put(i, k, zero))

    b.count_up(rows, row)
    b.loop(rows, index(packing.width), index(1), zero_row)


def _transpose_rows(b: Builder, packing: Packing, at: Panels) -> None:
    """The rows' axis is contiguous: square blocks of pairs are transposed."""
    name = _square_function(b.module, packing)

    def block(k: Register, tile: Register) -> None:
        for first in range(0, packing.width, packing.lanes):
            position = b.add(b.multiply(k, at.depth_stride), index(first))
            b.call_void(
                name,
                b.offset(at.source, position, packing.loaded),
                at.depth_stride,
                b.offset(tile, index(first * packing.lanes), packing.element),
                b.subtract(at.majors, index(first)),
                b.subtract(at.depth, k),
            )

    _each_block(b, packing, at, block)


def _square_function(module: Module, packing: Packing) -> str:
    name = f"square_{packing.stem}"
    if not module.has(name):
        kinds = (POINTER, INDEX, POINTER, INDEX, INDEX)
        names = ("source", "stride", "target", "majors", "depth")
        b = Builder(module, name, [(n, LType(k)) for n, k in zip(names, kinds, strict=True)])
        _emit_square(b, packing)
        module.add(b)
    return name


def _emit_square(b: Builder, packing: Packing) -> None:
    source, stride, target, majors, depth = b.parameters
    kind = LType(packing.loaded, packing.lanes)
    count = packing.lanes * packing.group
    has_rows = b.compare("sge", majors, index(packing.lanes))
    has_depth = b.compare("sge", depth, index(count))

    def copy() -> list[Register]:
        part = load_part(b, kind, (source, stride), (count, depth, majors))
        return [part, index(packing.lanes)]

    first, step = b.if_else(b.binary("and", has_rows, has_depth), lambda: [source, stride], copy)
    lines = [
        b.load(b.offset(first, b.multiply(step, index(k)), packing.loaded), kind)
        for k in range(count)
    ]
    steps = [lines[k : k + packing.group] for k in range(0, count, packing.group)]
    square = transpose(b, [join_neighbours(b, packing, parts) for parts in steps])
    for i, row in enumerate(square):
        b.store(row, b.offset(target, index(i * packing.lanes), packing.element))


def _collect_rows(b: Builder, packing: Packing, at: Panels) -> None:
    """No axis is contiguous: one element after the other."""
    width = index(packing.lanes * packing.group)

    def block(k: Register, tile: Register) -> None:
        def row(i: Register) -> None:
            line = b.offset(tile, b.multiply(i, width), packing.loaded)

            def one(j: Register) -> None:
                x = load_element(b, packing, at, b.add(k, j), i)
                b.store(x, b.offset(line, j, packing.loaded))

            b.count_up(width, one)

        b.count_up(index(packing.width), row)

    _each_block(b, packing, at, block)


def _each_block(
    b: Builder, packing: Packing, at: Panels, write: Callable[[Register, Register], None]
) -> None:
    """The tiles one above the other at each position along k, one after the other in memory."""
    width = packing.lanes * packing.group

    def block(k: Register, state: tuple[Register, ...]) -> list[Register]:
        write(k, state[0])
        return [b.offset(state[0], index(packing.width * width), packing.loaded)]

    b.loop(index(0), at.depth, index(width), block, [at.target])


ROW_WRITERS = {
    Order.MAJOR: _transpose_rows,
    Order.DEPTH: _copy_rows,
    Order.NEITHER: _collect_rows,
}

_LANE_BITS = 128
_WIDEST_BITS = 64


def transpose(b: Builder, rows: Sequence[Register]) -> list[Register]:
    """As many vectors as each has lanes; element ``j`` of row ``i`` moves to ``i`` of ``j``."""
    unit = min(_LANE_BITS // rows[0].type.bits, len(rows))
    result = list(rows)
    for start in range(0, len(rows), unit):
        result[start : start + unit] = _within_lanes(b, rows[start : start + unit])
    for column in range(unit):
        result[column::unit] = _across_lanes(b, result[column::unit], unit)
    return result


def _within_lanes(b: Builder, rows: Sequence[Register]) -> list[Register]:
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
                merged += [_interleave(b, x, y, (unit, width, high)) for high in (0, 1)]
        result = merged
        width *= 2
    return result


def _interleave(b: Builder, x: Register, y: Register, pattern: tuple[int, int, int]) -> Register:
    """Alternate groups of ``width`` elements from one half of every lane of two vectors."""
    unit, width, high = pattern
    picked: list[int] = []
    for lane in range(0, x.lanes, unit):
        for group in range(lane + high * unit // 2, lane + (high + 1) * unit // 2, width):
            picked += [group // width, (x.lanes + group) // width]
    return _pick_groups(b, x, y, picked, width)


def _across_lanes(b: Builder, rows: Sequence[Register], unit: int) -> list[Register]:
    """Transpose whole lanes: each step separates the even from the odd ones."""
    if len(rows) == 1:
        return list(rows)
    lanes = range(2 * rows[0].lanes // unit)
    result: list[Register] = [rows[0]] * len(rows)
    for parity in (0, 1):
        pairs = zip(rows[::2], rows[1::2], strict=True)
        halves = [_pick_groups(b, x, y, lanes[parity::2], unit) for x, y in pairs]
        result[parity::2] = _across_lanes(b, halves, unit)
    return result


def _pick_groups(
    b: Builder, x: Register, y: Register, groups: Sequence[int], width: int
) -> Register:
    """Groups of neighbours from two vectors, as wide elements: LLVM is quick with few of them."""
    joined = min(width, _WIDEST_BITS // x.type.bits)
    kind = x.type if joined == 1 else LType(f"i{x.type.bits * joined}", x.lanes // joined)
    parts = width // joined
    picked = [group * parts + i for group in groups for i in range(parts)]
    return _as(b, b.shuffle(_as(b, x, kind), _as(b, y, kind), picked), x.type)


def _as(b: Builder, x: Register, kind: LType) -> Register:
    return x if x.type == kind else b.value(kind, f"bitcast {x} to {kind}")
