"""Matrix products."""

from __future__ import annotations

from typing_extensions import override

from tilesmith.ir.axis_roles import Contracted
from tilesmith.ir.operation import Operation, Trait, attribute, op, operand
from tilesmith.ir.types import Constant, Value

PRECISIONS = ("ieee", "tf32", "tf32x3")


@op("dot", Trait.PURE, axes=Contracted())
class Dot(Operation):
    """``lhs @ rhs (+ acc)`` over the last two axes, accumulated in the result's element type.

    Operands are rank 2, or rank 3 with a leading batch axis. Their masked lanes must hold 0 along
    the contracted axis.
    """

    lhs: Value = operand()
    rhs: Value = operand()
    acc: Value | None = operand(optional=True)
    precision: str = attribute(default="ieee")

    @override
    def neutral(self, position: int) -> Constant | None:
        # Both operands are reset, since 0 * NaN is NaN.
        return 0.0 if (self.lhs, self.rhs)[position].tile.dtype.is_float else 0

    @override
    def verify(self) -> str | None:
        lhs, rhs, out = self.lhs.tile, self.rhs.tile, self.result.tile
        if lhs.rank not in (2, 3) or rhs.rank != lhs.rank or out.rank != lhs.rank:
            return "dot operands must be both rank 2 or both rank 3"
        if lhs.shape[-1] != rhs.shape[-2]:
            return f"contracted axes differ: {lhs.shape[-1]} and {rhs.shape[-2]}"
        if (lhs.shape[-2], rhs.shape[-1]) != out.shape[-2:]:
            return "result shape does not follow from the operands"
        if self.acc is not None and self.acc.type != self.result.type:
            return "accumulator and result differ in type"
        return None if self.precision in PRECISIONS else f"unknown precision {self.precision!r}"
