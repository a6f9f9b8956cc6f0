"""Formulas on tiles in the notation of arithmetic, for tables of derivatives."""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.dtypes import F32, DType
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.types import TileType, Value


def cotangent_dtype(dtype: DType) -> DType:
    """What gradients of such elements are computed in: half types lose nothing on the way."""
    return F32 if dtype.is_low_precision_float else dtype


def cotangent_type(value: Value) -> TileType:
    """The type of a tile's cotangent."""
    return value.tile.with_dtype(cotangent_dtype(value.tile.dtype))


@dataclass(frozen=True)
class Term:
    """A tile in a formula; numbers are tiles of the same type."""

    writer: TileWriter
    value: Value

    def apply(self, fn: str, *others: Term | float) -> Term:
        """A scalar function of this term and others."""
        operands = [self.of(other).value for other in others]
        return Term(self.writer, self.writer.apply(fn, self.value, *operands))

    def of(self, other: Term | float) -> Term:
        """A number as a term of this type; a term as it is."""
        if isinstance(other, Term):
            return other
        return Term(self.writer, self.writer.full(self.value.tile, float(other)))

    def where(self, condition: Term, other: Term | float) -> Term:
        """This term where a condition holds, another one elsewhere."""
        chosen = (condition.value, self.value, self.of(other).value)
        return Term(self.writer, self.writer.apply("where", *chosen))

    def __add__(self, other: Term | float) -> Term:
        return self.apply("add", other)

    def __sub__(self, other: Term | float) -> Term:
        return self.apply("sub", other)

    def __rsub__(self, other: float) -> Term:
        return self.of(other).apply("sub", self)

    def __mul__(self, other: Term | float) -> Term:
        return self.apply("mul", other)

    def __truediv__(self, other: Term | float) -> Term:
        return self.apply("div", other)

    def __neg__(self) -> Term:
        return self.apply("neg")

    def __lt__(self, other: Term | float) -> Term:
        return self.apply("lt", other)

    def same(self, other: Term | float) -> Term:
        """Where both are equal."""
        return self.apply("eq", other)
