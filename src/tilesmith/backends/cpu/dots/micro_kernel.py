"""The innermost loop: a column of register blocks, each kept in registers along all of k."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilesmith.backends.cpu.builder import Builder
from tilesmith.backends.cpu.dots.shapes import RegisterBlock
from tilesmith.backends.cpu.instructions import Module
from tilesmith.backends.cpu.registers import INDEX, POINTER, LType, Register, index, number

_MULTIPLY_PAIRS = "llvm.x86.avx512bf16.dpbf16ps.512"

_PARAMETERS = (
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
)


@dataclass(frozen=True)
class MicroKernel:
    """One kind of micro-kernel.

    Attributes:
        element: type of products and sums.
        block: rows and vectors kept in registers.
        is_packed: whether the left operand lies in panels ``[k][rows]``; else in rows, at a
            distance given at run time.
        operand: LLVM element of the panels: ``element``, or ``i32`` for pairs of bf16.
    """

    element: str
    block: RegisterBlock
    is_packed: bool
    operand: str

    @property
    def name(self) -> str:
        """Name of the function."""
        shape = f"{self.block.rows}x{self.block.columns}"
        place = "packed" if self.is_packed else "rows"
        return f"dot_{self.operand}_{self.element}_{shape}_{place}"


@dataclass(frozen=True)
class BlockColumn:
    """Operands of a call: a run of left panels, one right panel and where the results go."""

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

    def arguments(self) -> tuple[Register, ...]:
        """In the order in which micro-kernels take them."""
        operands = self.lhs, self.lhs_row, self.lhs_panel, self.rhs, self.rhs_step
        out = self.out, self.out_stride
        return *operands, *out, self.panels, self.depth, self.accumulate


def multiply_column(b: Builder, kernel: MicroKernel, column: BlockColumn) -> None:
    """Call the micro-kernel, adding it to the module on first use."""
    _add_kernel(b.module, kernel)
    b.call_void(kernel.name, *column.arguments())


def _add_kernel(module: Module, kernel: MicroKernel) -> None:
    if module.has(kernel.name):
        return
    b = Builder(module, kernel.name, _PARAMETERS)
    column = BlockColumn(*b.parameters)
    down = b.multiply(column.out_stride, index(kernel.block.rows))

    def block(_: Register, state: tuple[Register, ...]) -> list[Register]:
        lhs, out = state
        sums = _sum_products(b, kernel, column, lhs)
        _write_block(b, kernel, column, (out, sums))
        return [
            b.offset(lhs, column.lhs_panel, kernel.operand),
            b.offset(out, down, kernel.element),
        ]

    b.loop(index(0), column.panels, index(1), block, [column.lhs, column.out])
    module.add(b)


def _sum_products(
    b: Builder, kernel: MicroKernel, column: BlockColumn, lhs: Register
) -> tuple[Register, ...]:
    block = kernel.block
    kind = LType(kernel.operand, block.lanes)
    row = index(1) if kernel.is_packed else column.lhs_row
    forward = index(block.packed_rows if kernel.is_packed else 1)
    places = [b.multiply(row, index(r)) for r in range(block.rows)]
    zeros = [number(kernel.element, 0, block.lanes)] * (block.rows * block.vectors)

    def step(_: Register, state: tuple[Register, ...]) -> list[Register]:
        left, right, *sums = state
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
        return [left, b.offset(right, column.rhs_step, kernel.operand), *sums]

    return b.loop(index(0), column.depth, index(1), step, [lhs, column.rhs, *zeros])[2:]


def _multiply_add(b: Builder, x: Register, y: Register, total: Register) -> Register:
    if x.type.is_float:
        # Where there is no fused instruction this becomes two, not a library call.
        return b.intrinsic("fmuladd", x, y, total)
    if total.type.is_float:
        # Products are exact, sums round to nearest; denormals count as zero.
        pairs = LType("bfloat", 2 * x.lanes)
        factors = [b.value(pairs, f"bitcast {factor} to {pairs}") for factor in (x, y)]
        return b.call(_MULTIPLY_PAIRS, total.type, total, *factors)
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
