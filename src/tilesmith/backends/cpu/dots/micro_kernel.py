"""The innermost loop: a column of register blocks, each kept in registers along all of k."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilesmith.backends.cpu.dots.shapes import TILE_ROWS, RegisterBlock
from tilesmith.backends.cpu.llvm.builder import Builder
from tilesmith.backends.cpu.llvm.instructions import Module
from tilesmith.backends.cpu.llvm.registers import INDEX, POINTER, LType, Register, index, number

COLUMN_PARAMETERS = (
    ("lhs", LType(POINTER)),
    ("lhs_row", LType(INDEX)),
    ("lhs_panel", LType(INDEX)),
    ("rhs", LType(POINTER)),
    ("rhs_step", LType(INDEX)),
    ("out", LType(POINTER)),
    ("out_stride", LType(INDEX)),
    ("panels", LType(INDEX)),
    ("depth", LType(INDEX)),
    ("accumulate", LType("i1")),
    ("ahead", LType(POINTER)),
    ("ahead_step", LType(INDEX)),
)


@dataclass(frozen=True)
class MicroKernel:
    """One kind of micro-kernel.

    Attributes:
        element: type of products and sums.
        block: rows and vectors kept in registers.
        is_packed: whether the left operand lies in panels ``[k][rows]``; else in rows, at a
            distance given at run time.
        operand: LLVM element that distances in the left operand count.
        uses_tiles: whether operands are pairs of bf16 that go through tile registers.
        fetches_ahead: whether the next right panel is brought to the second cache meanwhile.
    """

    element: str
    block: RegisterBlock
    is_packed: bool
    operand: str
    uses_tiles: bool = False
    fetches_ahead: bool = False

    @property
    def name(self) -> str:
        """Name of the function."""
        shape = f"{self.block.rows}x{self.block.columns}"
        place = "packed" if self.is_packed else "rows"
        ahead = "_ahead" if self.fetches_ahead else ""
        return f"dot_{self.operand}_{self.element}_{shape}_{place}{ahead}"


@dataclass(frozen=True)
class BlockColumn:
    """Operands of a call: a run of left panels, one right panel and where the results go.

    At each step along k of each left panel ``ahead_step`` bytes from ``ahead`` on are fetched.
    """

    lhs: Register
    lhs_row: Register
    lhs_panel: Register
    rhs: Register
    rhs_step: Register
    out: Register
    out_stride: Register
    panels: Register
    depth: Register
    accumulate: Register
    ahead: Register
    ahead_step: Register

    def arguments(self) -> tuple[Register, ...]:
        """In the order in which micro-kernels take them."""
        operands = self.lhs, self.lhs_row, self.lhs_panel, self.rhs, self.rhs_step
        out = self.out, self.out_stride
        ahead = self.ahead, self.ahead_step
        return *operands, *out, self.panels, self.depth, self.accumulate, *ahead


_ROW_BYTES = 64
_FIRST_LEFT = 4
_FIRST_RIGHT = 6
_TILES = 8
_PALETTE = 1
_BYTES_AT, _ROWS_AT, _CONFIGURATION_BYTES = 16, 48, 64


def configure_tiles(builder: Builder) -> None:
    """Make all tile registers 16 rows of 64 bytes; other code of the thread has none meanwhile."""
    content = [0] * _CONFIGURATION_BYTES
    content[0] = _PALETTE
    for tile in range(_TILES):
        content[_BYTES_AT + 2 * tile] = _ROW_BYTES
        content[_ROWS_AT + tile] = TILE_ROWS
    listed = ", ".join(f"i8 {byte}" for byte in content)
    place = builder.alloca("i8", _CONFIGURATION_BYTES)
    builder.store(Register(f"<{listed}>", LType("i8", _CONFIGURATION_BYTES)), place)
    builder.call_void("llvm.x86.ldtilecfg", place)


def release_tiles(builder: Builder) -> None:
    """Give the tile registers back: they slow down switches between threads."""
    builder.call_void("llvm.x86.tilerelease")


def multiply_tiles(
    builder: Builder, kernel: MicroKernel, column: BlockColumn, places: tuple[Register, Register]
) -> None:
    """One block: sums from memory or zero, products along k, sums to memory."""
    lhs, out = places
    wide = kernel.block.vectors
    tall = kernel.block.rows // TILE_ROWS
    sums = _Tiles(builder, out, builder.multiply(column.out_stride, index(4)))
    spots = [(r, v, r * wide + v) for r in range(tall) for v in range(wide)]

    def begin(is_added: bool) -> None:
        for r, v, tile in spots:
            if is_added:
                sums.load(tile, r, v)
            else:
                builder.call_void("llvm.x86.tilezero", _number(tile))

    builder.if_else(column.accumulate, lambda: begin(True), lambda: begin(False))
    _sum_tile_products(builder, kernel, column, lhs)
    for r, v, tile in spots:
        sums.store(tile, r, v)


def _sum_tile_products(
    builder: Builder, kernel: MicroKernel, column: BlockColumn, lhs: Register
) -> None:
    block = kernel.block
    left_row, left_step = index(_ROW_BYTES), index(_ROW_BYTES * block.rows)
    if not kernel.is_packed:
        left_row, left_step = builder.multiply(column.lhs_row, index(2)), index(_ROW_BYTES)
    right_row = index(_ROW_BYTES * block.vectors)
    right_step = index(_ROW_BYTES * block.vectors * TILE_ROWS)

    def step(_: Register, state: tuple[Register, ...]) -> list[Register]:
        left, right = state
        for v in range(block.vectors):
            _Tiles(builder, right, right_row).load(_FIRST_RIGHT + v, 0, v)
        for r in range(block.rows // TILE_ROWS):
            _Tiles(builder, left, left_row).load(_FIRST_LEFT + r, r, 0)
            for v in range(block.vectors):
                tiles = r * block.vectors + v, _FIRST_LEFT + r, _FIRST_RIGHT + v
                builder.call_void("llvm.x86.tdpbf16ps", *map(_number, tiles))
        return [builder.offset(left, left_step, "i8"), builder.offset(right, right_step, "i8")]

    builder.loop(index(0), column.depth, index(TILE_ROWS), step, [lhs, column.rhs])


class _Tiles:
    """A grid of tiles in memory whose rows lie some bytes apart."""

    def __init__(self, builder: Builder, start: Register, row_bytes: Register) -> None:
        self._builder = builder
        self._start = start
        self._row_bytes = row_bytes

    def load(self, tile: int, r: int, v: int) -> None:
        place = self._place(r, v)
        self._builder.call_void("llvm.x86.tileloadd64", _number(tile), place, self._row_bytes)

    def store(self, tile: int, r: int, v: int) -> None:
        place = self._place(r, v)
        self._builder.call_void("llvm.x86.tilestored64", _number(tile), place, self._row_bytes)

    def _place(self, r: int, v: int) -> Register:
        down = self._builder.multiply(self._row_bytes, index(r * TILE_ROWS))
        return self._builder.offset(
            self._start, self._builder.add(down, index(v * _ROW_BYTES)), "i8"
        )


def _number(tile: int) -> Register:
    return number("i8", tile)


def multiply_column(builder: Builder, kernel: MicroKernel, column: BlockColumn) -> None:
    """Call the micro-kernel, adding it to the module on first use."""
    _add_kernel(builder.module, kernel)
    builder.call_void(kernel.name, *column.arguments())


def _add_kernel(module: Module, kernel: MicroKernel) -> None:
    if module.has(kernel.name):
        return
    builder = Builder(module, kernel.name, COLUMN_PARAMETERS)
    column = BlockColumn(*builder.parameters)
    down = builder.multiply(column.out_stride, index(kernel.block.rows))

    def block(number: Register, state: tuple[Register, ...]) -> list[Register]:
        lhs, out = state
        if kernel.uses_tiles:
            multiply_tiles(builder, kernel, column, (lhs, out))
        else:
            sums = _sum_products(builder, kernel, column, (lhs, number))
            _write_block(builder, kernel, column, (out, sums))
        return [
            builder.offset(lhs, column.lhs_panel, kernel.operand),
            builder.offset(out, down, kernel.element),
        ]

    builder.loop(index(0), column.panels, index(1), block, [column.lhs, column.out])
    module.add(builder)


def _sum_products(
    builder: Builder, kernel: MicroKernel, column: BlockColumn, panel: tuple[Register, Register]
) -> tuple[Register, ...]:
    block = kernel.block
    lhs, number_of_panel = panel
    kind = LType(kernel.operand, block.lanes)
    row = index(1) if kernel.is_packed else column.lhs_row
    forward = index(block.packed_rows if kernel.is_packed else 1)
    places = [builder.multiply(row, index(r)) for r in range(block.rows)]
    zeros = [number(kernel.element, 0, block.lanes)] * (block.rows * block.vectors)

    def step(_: Register, state: tuple[Register, ...]) -> list[Register]:
        left, right, ahead, *sums = state
        vectors = [
            builder.load(builder.offset(right, index(v * block.lanes), kernel.operand), kind)
            for v in range(block.vectors)
        ]
        for r in range(block.rows):
            place = builder.offset(left, places[r], kernel.operand)
            x = builder.splat(builder.load(place, LType(kernel.operand)), block.lanes)
            for v, y in enumerate(vectors):
                at = r * block.vectors + v
                sums[at] = _multiply_add(builder, x, y, sums[at])
        left = builder.offset(left, forward, kernel.operand)
        right = builder.offset(right, column.rhs_step, kernel.operand)
        return [left, right, _fetch(builder, kernel, column, ahead), *sums]

    skipped = builder.multiply(builder.multiply(number_of_panel, column.depth), column.ahead_step)
    places_before = [lhs, column.rhs, builder.offset(column.ahead, skipped, "i8")]
    return builder.loop(index(0), column.depth, index(1), step, [*places_before, *zeros])[3:]


def _fetch(builder: Builder, kernel: MicroKernel, column: BlockColumn, ahead: Register) -> Register:
    """Bring memory to the second cache; where to go on."""
    if not kernel.fetches_ahead:
        return ahead
    read, second_cache, data = (number("i32", value) for value in (0, 2, 1))
    builder.call_void("llvm.prefetch.p0", ahead, read, second_cache, data)
    return builder.offset(ahead, column.ahead_step, "i8")


def _multiply_add(builder: Builder, x: Register, y: Register, total: Register) -> Register:
    if x.type.is_float:
        # Where there is no fused instruction this becomes two, not a library call.
        return builder.intrinsic("fmuladd", x, y, total)
    return builder.binary("add", builder.binary("mul", x, y), total)


def _write_block(
    builder: Builder,
    kernel: MicroKernel,
    column: BlockColumn,
    result: tuple[Register, Sequence[Register]],
) -> None:
    out, sums = result
    block = kernel.block
    lines = [
        builder.offset(out, builder.multiply(column.out_stride, index(r)), kernel.element)
        for r in range(block.rows)
    ]
    places = [
        builder.offset(line, index(v * block.lanes), kernel.element)
        for line in lines
        for v in range(block.vectors)
    ]

    def overwrite() -> None:
        for place, total in zip(places, sums, strict=True):
            builder.store(total, place)

    def add() -> None:
        plus = "fadd" if sums[0].type.is_float else "add"
        for place, total in zip(places, sums, strict=True):
            builder.store(builder.binary(plus, total, builder.load(place, total.type)), place)

    builder.if_else(column.accumulate, add, overwrite)
