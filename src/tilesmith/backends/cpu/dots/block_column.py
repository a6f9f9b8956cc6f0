"""What micro-kernels have in common: their kinds and their parameters."""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.backends.cpu.dots.shapes import RegisterBlock
from tilesmith.backends.cpu.registers import INDEX, POINTER, LType, Register

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
