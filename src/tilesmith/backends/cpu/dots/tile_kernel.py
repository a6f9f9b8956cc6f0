"""The innermost loop on tile registers (AMX): a block of up to two by two tiles of fp32 sums.

A tile is 16 rows of 64 bytes: of sums, of the left operand along k, or of pairs of k of the right
one. Products of bf16 are exact and sums are rounded to nearest; denormal numbers, in the operands
and in the sums, count as zero.
"""

from __future__ import annotations

from tilesmith.backends.cpu.builder import Builder
from tilesmith.backends.cpu.dots.block_column import BlockColumn, MicroKernel
from tilesmith.backends.cpu.dots.shapes import TILE_ROWS
from tilesmith.backends.cpu.registers import LType, Register, index, number

_ROW_BYTES = 64
_FIRST_LEFT = 4
_FIRST_RIGHT = 6
_TILES = 8
_PALETTE = 1
_BYTES_AT, _ROWS_AT, _CONFIGURATION_BYTES = 16, 48, 64


def configure_tiles(b: Builder) -> None:
    """Make all tile registers 16 rows of 64 bytes; other code of the thread has none meanwhile."""
    content = [0] * _CONFIGURATION_BYTES
    content[0] = _PALETTE
    for tile in range(_TILES):
        content[_BYTES_AT + 2 * tile] = _ROW_BYTES
        content[_ROWS_AT + tile] = TILE_ROWS
    listed = ", ".join(f"i8 {byte}" for byte in content)
    place = b.alloca("i8", _CONFIGURATION_BYTES)
    b.store(Register(f"<{listed}>", LType("i8", _CONFIGURATION_BYTES)), place)
    b.call_void("llvm.x86.ldtilecfg", place)


def release_tiles(b: Builder) -> None:
    """Give the tile registers back: they slow down switches between threads."""
    b.call_void("llvm.x86.tilerelease")


def multiply_tiles(
    b: Builder, kernel: MicroKernel, column: BlockColumn, places: tuple[Register, Register]
) -> None:
    """One block: sums from memory or zero, products along k, sums to memory."""
    lhs, out = places
    wide = kernel.block.vectors
    tall = kernel.block.rows // TILE_ROWS
    sums = _Tiles(b, out, b.multiply(column.out_stride, index(4)))
    spots = [(r, v, r * wide + v) for r in range(tall) for v in range(wide)]

    def begin(is_added: bool) -> None:
        for r, v, tile in spots:
            if is_added:
                sums.load(tile, r, v)
            else:
                b.call_void("llvm.x86.tilezero", _number(tile))

    b.if_else(column.accumulate, lambda: begin(True), lambda: begin(False))
    _sum_products(b, kernel, column, lhs)
    for r, v, tile in spots:
        sums.store(tile, r, v)


def _sum_products(b: Builder, kernel: MicroKernel, column: BlockColumn, lhs: Register) -> None:
    block = kernel.block
    left_row, left_step = index(_ROW_BYTES), index(_ROW_BYTES * block.rows)
    if not kernel.is_packed:
        left_row, left_step = b.multiply(column.lhs_row, index(2)), index(_ROW_BYTES)
    right_row = index(_ROW_BYTES * block.vectors)
    right_step = index(_ROW_BYTES * block.vectors * TILE_ROWS)

    def step(_: Register, state: tuple[Register, ...]) -> list[Register]:
        left, right = state
        for v in range(block.vectors):
            _Tiles(b, right, right_row).load(_FIRST_RIGHT + v, 0, v)
        for r in range(block.rows // TILE_ROWS):
            _Tiles(b, left, left_row).load(_FIRST_LEFT + r, r, 0)
            for v in range(block.vectors):
                tiles = r * block.vectors + v, _FIRST_LEFT + r, _FIRST_RIGHT + v
                b.call_void("llvm.x86.tdpbf16ps", *map(_number, tiles))
        return [b.offset(left, left_step, "i8"), b.offset(right, right_step, "i8")]

    b.loop(index(0), column.depth, index(TILE_ROWS), step, [lhs, column.rhs])


class _Tiles:
    """A grid of tiles in memory whose rows lie some bytes apart."""

    def __init__(self, b: Builder, start: Register, row_bytes: Register) -> None:
        self._b = b
        self._start = start
        self._row_bytes = row_bytes

    def load(self, tile: int, r: int, v: int) -> None:
        place = self._place(r, v)
        self._b.call_void("llvm.x86.tileloadd64", _number(tile), place, self._row_bytes)

    def store(self, tile: int, r: int, v: int) -> None:
        place = self._place(r, v)
        self._b.call_void("llvm.x86.tilestored64", _number(tile), place, self._row_bytes)

    def _place(self, r: int, v: int) -> Register:
        down = self._b.multiply(self._row_bytes, index(r * TILE_ROWS))
        return self._b.offset(self._start, self._b.add(down, index(v * _ROW_BYTES)), "i8")


def _number(tile: int) -> Register:
    return number("i8", tile)
