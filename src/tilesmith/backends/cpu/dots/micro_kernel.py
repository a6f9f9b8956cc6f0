"""The innermost loop: a column of register blocks, each kept in registers along all of k."""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.backends.cpu.builder import Builder
from tilesmith.backends.cpu.dots.block_column import COLUMN_PARAMETERS, BlockColumn, MicroKernel
from tilesmith.backends.cpu.dots.tile_kernel import multiply_tiles
from tilesmith.backends.cpu.instructions import Module
from tilesmith.backends.cpu.registers import LType, Register, index, number


def multiply_column(b: Builder, kernel: MicroKernel, column: BlockColumn) -> None:
    """Call the micro-kernel, adding it to the module on first use."""
    _add_kernel(b.module, kernel)
    b.call_void(kernel.name, *column.arguments())


def _add_kernel(module: Module, kernel: MicroKernel) -> None:
    if module.has(kernel.name):
        return
    b = Builder(module, kernel.name, COLUMN_PARAMETERS)
    column = BlockColumn(*b.parameters)
    down = b.multiply(column.out_stride, index(kernel.block.rows))

    def block(number: Register, state: tuple[Register, ...]) -> list[Register]:
        lhs, out = state
        if kernel.uses_tiles:
            multiply_tiles(b, kernel, column, (lhs, out))
        else:
            sums = _sum_products(b, kernel, column, (lhs, number))
            _write_block(b, kernel, column, (out, sums))
        return [
            b.offset(lhs, column.lhs_panel, kernel.operand),
            b.offset(out, down, kernel.element),
        ]

    b.loop(index(0), column.panels, index(1), block, [column.lhs, column.out])
    module.add(b)


def _sum_products(
    b: Builder, kernel: MicroKernel, column: BlockColumn, panel: tuple[Register, Register]
) -> tuple[Register, ...]:
    block = kernel.block
    lhs, number_of_panel = panel
    kind = LType(kernel.operand, block.lanes)
    row = index(1) if kernel.is_packed else column.lhs_row
    forward = index(block.packed_rows if kernel.is_packed else 1)
    places = [b.multiply(row, index(r)) for r in range(block.rows)]
    zeros = [number(kernel.element, 0, block.lanes)] * (block.rows * block.vectors)

    def step(_: Register, state: tuple[Register, ...]) -> list[Register]:
        left, right, ahead, *sums = state
        vectors = [
            b.load(b.offset(right, index(v * block.lanes), kernel.operand), kind)
            for v in range(block.vectors)
        ]
        for r in range(block.rows):
            place = b.offset(left, places[r], kernel.operand)
            x = b.splat(b.load(place, LType(kernel.operand)), block.lanes)
            for v, y in enumerate(vectors):
                at = r * block.vectors + v
                sums[at] = _multiply_add(b, x, y, sums[at])
        left = b.offset(left, forward, kernel.operand)
        right = b.offset(right, column.rhs_step, kernel.operand)
        return [left, right, _fetch(b, kernel, column, ahead), *sums]

    skipped = b.multiply(b.multiply(number_of_panel, column.depth), column.ahead_step)
    places_before = [lhs, column.rhs, b.offset(column.ahead, skipped, "i8")]
    return b.loop(index(0), column.depth, index(1), step, [*places_before, *zeros])[3:]


def _fetch(b: Builder, kernel: MicroKernel, column: BlockColumn, ahead: Register) -> Register:
    """Bring memory to the second cache; where to go on."""
    if not kernel.fetches_ahead:
        return ahead
    read, second_cache, data = (number("i32", value) for value in (0, 2, 1))
    b.call_void("llvm.prefetch.p0", ahead, read, second_cache, data)
    return b.offset(ahead, column.ahead_step, "i8")


def _multiply_add(b: Builder, x: Register, y: Register, total: Register) -> Register:
    if x.type.is_float:
        # Where there is no fused instruction this becomes two, not a library call.
        return b.intrinsic("fmuladd", x, y, total)
    return b.binary("add", b.binary("mul", x, y), total)


def _write_block(
    b: Builder,
    kernel: MicroKernel,
    column: BlockColumn,
    result: tuple[Register, Sequence[Register]],
) -> None:
    out, sums = result
    block = kernel.block
    lines = [
        b.offset(out, b.multiply(column.out_stride, index(r)), kernel.element)
        for r in range(block.rows)
    ]
    places = [
        b.offset(line, index(v * block.lanes), kernel.element)
        for line in lines
        for v in range(block.vectors)
    ]

    def overwrite() -> None:
        for place, total in zip(places, sums, strict=True):
            b.store(total, place)

    def add() -> None:
        plus = "fadd" if sums[0].type.is_float else "add"
        for place, total in zip(places, sums, strict=True):
            b.store(b.binary(plus, total, b.load(place, total.type)), place)

    b.if_else(column.accumulate, add, overwrite)
