"""The innermost loop: a column of register blocks, each kept in registers along all of k."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tilesmith.backends.cpu.dots.joined_steps import add_joined_products
from tilesmith.backends.cpu.dots.plans import BYTES, PAIRS
from tilesmith.backends.cpu.dots.shapes import TILE_ROWS, RegisterBlock
from tilesmith.backends.cpu.llvm.builder import Builder
from tilesmith.backends.cpu.llvm.registers import LType, Register, index, number, parameters


@dataclass(frozen=True)
class MicroKernel:
    """One kind of micro-kernel.

    Attributes:
        element: type of products and sums.
        is_packed: whether the left operand lies in panels ``[k][rows]``; else in rows, at a
            distance given at run time.
        operand: LLVM element that distances in the left operand count.
        uses_tiles: whether operands are pairs of bf16 that go through tile registers.
        joined: steps along k that an element of the operands holds. Bytes of the right one are
            shifted by 128; what that adds too much lies behind each left panel.
        fetches_ahead: whether the next right panel is brought to the second cache meanwhile.
    """

    element: str
    block: RegisterBlock
    is_packed: bool
    operand: str
    uses_tiles: bool = False
    joined: int = 1
    fetches_ahead: bool = False

    @property
    def name(self) -> str:
        """Name of the function."""
        shape = f"{self.block.rows}x{self.block.columns}"
        place = "packed" if self.is_packed else "rows"
        ahead = "_ahead" if self.fetches_ahead else ""
        operand = {BYTES: "bytes", PAIRS: "pairs"}.get(self.joined, self.operand)
        return f"dot_{operand}_{self.element}_{shape}_{place}{ahead}"


class BlockColumn(NamedTuple):
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


_ROW_BYTES = 64
_FIRST_LEFT = 4
_FIRST_RIGHT = 6
_TILES = 8
_PALETTE = 1
_BYTES_AT, _ROWS_AT, _CONFIGURATION_BYTES = 16, 48, 64


def configure_tile_registers(builder: Builder) -> None:
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


def multiply_column(builder: Builder, kernel: MicroKernel, column: BlockColumn) -> None:
    """Call the micro-kernel, adding it to the module on first use."""
    if not builder.module.has(kernel.name):
        accepted = parameters(BlockColumn._fields, ("lhs", "rhs", "out", "ahead"), ("accumulate",))
        inside = Builder(builder.module, kernel.name, accepted)
        _Emitter(inside, kernel, BlockColumn(*inside.parameters)).emit()
        builder.module.add(inside)
    builder.call_void(kernel.name, *column)


@dataclass(frozen=True)
class _Emitter:
    """Emits a micro-kernel: for each left panel products along k, then sums to memory."""

    builder: Builder
    kernel: MicroKernel
    column: BlockColumn

    def emit(self) -> None:
        builder, kernel, column = self.builder, self.kernel, self.column
        down = builder.multiply(column.out_stride, index(kernel.block.rows))

        def block(number: Register, state: tuple[Register, ...]) -> list[Register]:
            lhs, out = state
            if kernel.uses_tiles:
                self._multiply_tiles(lhs, out)
            else:
                self._write_block(out, self._sum_products(lhs, number))
            lhs = builder.offset(lhs, column.lhs_panel, kernel.operand)
            return [lhs, builder.offset(out, down, kernel.element)]

        builder.loop(index(0), column.panels, index(1), block, [column.lhs, column.out])

    def _multiply_tiles(self, lhs: Register, out: Register) -> None:
        """One block: sums from memory or zero, products along k, sums to memory."""
        builder, column, wide = self.builder, self.column, self.kernel.block.vectors
        tall = self.kernel.block.rows // TILE_ROWS
        sums = out, builder.multiply(column.out_stride, index(4))
        spots = [(r * wide + v, r, v) for r in range(tall) for v in range(wide)]

        def load() -> None:
            for spot in spots:
                _move_tile(builder, "tileloadd64", sums, *spot)

        def zero() -> None:
            for tile, _, _ in spots:
                builder.call_void("llvm.x86.tilezero", number("i8", tile))

        builder.if_else(column.accumulate, load, zero)
        self._sum_tile_products(lhs)
        for spot in spots:
            _move_tile(builder, "tilestored64", sums, *spot)

    def _sum_tile_products(self, lhs: Register) -> None:
        builder, block = self.builder, self.kernel.block
        left_row, left_step = index(_ROW_BYTES), index(_ROW_BYTES * block.rows)
        if not self.kernel.is_packed:
            left_row = builder.multiply(self.column.lhs_row, index(2))
            left_step = index(_ROW_BYTES)
        right_row = index(_ROW_BYTES * block.vectors)
        right_step = index(_ROW_BYTES * block.vectors * TILE_ROWS)

        def step(_: Register, state: tuple[Register, ...]) -> list[Register]:
            left, right = state
            for v in range(block.vectors):
                _move_tile(builder, "tileloadd64", (right, right_row), _FIRST_RIGHT + v, 0, v)
            for r in range(block.rows // TILE_ROWS):
                _move_tile(builder, "tileloadd64", (left, left_row), _FIRST_LEFT + r, r, 0)
                for v in range(block.vectors):
                    tiles = r * block.vectors + v, _FIRST_LEFT + r, _FIRST_RIGHT + v
                    numbers = [number("i8", tile) for tile in tiles]
                    builder.call_void("llvm.x86.tdpbf16ps", *numbers)
            return [builder.offset(left, left_step, "i8"), builder.offset(right, right_step, "i8")]

        start = [lhs, self.column.rhs]
        builder.loop(index(0), self.column.depth, index(TILE_ROWS), step, start)

    def _starts(self, lhs: Register) -> list[Register]:
        """What the sums begin with: zero, or what shifted bytes will add too much."""
        builder, block, element = self.builder, self.kernel.block, self.kernel.element
        if self.kernel.joined != BYTES:
            return [number(element, 0, block.lanes)] * (block.rows * block.vectors)
        steps = builder.add(self.column.depth, index(block.lanes - 1))
        size = builder.multiply(builder.round_down(steps, block.lanes), index(block.packed_rows))
        last = builder.offset(lhs, size, element)
        places = [builder.offset(last, index(r), element) for r in range(block.rows)]
        sums = [builder.splat(builder.load(p, LType(element)), block.lanes) for p in places]
        return [total for total in sums for _ in range(block.vectors)]

    def _load_vectors(self, right: Register) -> list[Register]:
        builder, block, operand = self.builder, self.kernel.block, self.kernel.operand
        kind = LType(operand, block.lanes)
        places = [
            builder.offset(right, index(v * block.lanes), operand) for v in range(block.vectors)
        ]
        return [builder.load(place, kind) for place in places]

    def _sum_products(self, lhs: Register, number_of_panel: Register) -> tuple[Register, ...]:
        builder, kernel, column = self.builder, self.kernel, self.column
        block, operand = kernel.block, kernel.operand
        row = index(1) if kernel.is_packed else column.lhs_row
        forward = index(block.packed_rows if kernel.is_packed else 1)
        places = [builder.multiply(row, index(r)) for r in range(block.rows)]

        def step(_: Register, state: tuple[Register, ...]) -> list[Register]:
            left, right, ahead, *sums = state
            vectors = self._load_vectors(right)
            for r in range(block.rows):
                place = builder.offset(left, places[r], operand)
                x = builder.splat(builder.load(place, LType(operand)), block.lanes)
                for v, y in enumerate(vectors):
                    at = r * block.vectors + v
                    sums[at] = _multiply_add(builder, kernel.joined, (y, x), sums[at])
            left = builder.offset(left, forward, operand)
            right = builder.offset(right, column.rhs_step, operand)
            if kernel.fetches_ahead:
                builder.prefetch(ahead)
                ahead = builder.offset(ahead, column.ahead_step, "i8")
            return [left, right, ahead, *sums]

        steps = builder.multiply(number_of_panel, column.depth)
        skipped = builder.multiply(steps, column.ahead_step)
        start = [lhs, column.rhs, builder.offset(column.ahead, skipped, "i8")]
        start += self._starts(lhs)
        return builder.loop(index(0), column.depth, index(1), step, start)[3:]

    def _write_block(self, out: Register, sums: Sequence[Register]) -> None:
        builder, block, element = self.builder, self.kernel.block, self.kernel.element
        stride, starts = self.column.out_stride, range(0, block.columns, block.lanes)
        lines = [
            builder.offset(out, builder.multiply(stride, index(r)), element)
            for r in range(block.rows)
        ]
        places = [builder.offset(line, index(n), element) for line in lines for n in starts]

        def overwrite() -> None:
            for place, total in zip(places, sums, strict=True):
                builder.store(total, place)

        def add() -> None:
            plus = "fadd" if sums[0].type.is_float else "add"
            for place, total in zip(places, sums, strict=True):
                builder.store(builder.binary(plus, total, builder.load(place, total.type)), place)

        builder.if_else(self.column.accumulate, add, overwrite)


def _move_tile(
    builder: Builder, intrinsic: str, memory: tuple[Register, Register], tile: int, r: int, v: int
) -> None:
    """Load or store one of a grid of tiles in memory, whose rows lie some bytes apart."""
    start, row_bytes = memory
    down = builder.multiply(row_bytes, index(r * TILE_ROWS))
    place = builder.offset(start, builder.add(down, index(v * _ROW_BYTES)), "i8")
    builder.call_void(f"llvm.x86.{intrinsic}", number("i8", tile), place, row_bytes)


def _multiply_add(
    builder: Builder, joined: int, factors: tuple[Register, Register], total: Register
) -> Register:
    x, y = factors
    if joined > 1:
        return add_joined_products(builder, joined, x, y, total)
    if x.type.is_float:
        # Where there is no fused instruction this becomes two, not a library call.
        return builder.intrinsic("fmuladd", x, y, total)
    return builder.binary("add", builder.binary("mul", x, y), total)
