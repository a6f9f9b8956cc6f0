"""Elements put into another place by a rule of their own: joined, picked, gathered, sorted."""

from __future__ import annotations

from typing_extensions import override

from tilesmith.ir.axis_roles import Gathered, Joined, Mixed, Picked
from tilesmith.ir.operation import Operation, Trait, attribute, op, operand
from tilesmith.ir.types import Constant, Dim, Value


@op("join", Trait.PURE, axes=Joined())
class Join(Operation):
    """Two tiles of one type side by side along a new last axis of size 2."""

    lhs: Value = operand()
    rhs: Value = operand()

    @override
    def verify(self) -> str | None:
        if self.lhs.type != self.rhs.type:
            return "joined tiles differ in type"
        wanted = (*self.lhs.tile.shape, Dim.of(2))
        return None if self.result.tile == self.lhs.tile.with_shape(wanted) else "wrong result type"


@op("select", Trait.PURE | Trait.VIEW, axes=Picked("axis"))
class Select(Operation):
    """The elements at a constant ``position`` along an axis of constant size, without the axis."""

    x: Value = operand()
    axis: int = attribute()
    position: int = attribute()

    @override
    def verify(self) -> str | None:
        shape = self.x.tile.shape
        if not 0 <= self.axis < len(shape):
            return f"axis {self.axis} of a tile of rank {len(shape)}"
        size = shape[self.axis].constant
        if size is None or not 0 <= self.position < size:
            return f"position {self.position} of an axis of size {shape[self.axis]}"
        wanted = shape[: self.axis] + shape[self.axis + 1 :]
        return None if self.result.tile == self.x.tile.with_shape(wanted) else "wrong result type"


@op("gather", Trait.PURE, axes=Gathered("axis"))
class Gather(Operation):
    """``x`` at the positions ``index`` along ``axis``; other axes have the same size in both.

    The result has the shape of ``index``. Positions of valid lanes lie within the axis.
    """

    x: Value = operand()
    index: Value = operand()
    axis: int = attribute()

    @override
    def verify(self) -> str | None:
        shape, index = self.x.tile.shape, self.index.tile
        if len(shape) != index.rank or not 0 <= self.axis < len(shape):
            return "the tile and its positions differ in rank, or the axis is not theirs"
        if not index.dtype.is_integer:
            return "positions must be integers"
        others = [axis for axis in range(index.rank) if axis != self.axis]
        if any(shape[axis] != index.shape[axis] for axis in others):
            return "the tile and its positions differ along another axis"
        return None if self.result.tile == self.x.tile.with_shape(index.shape) else "wrong type"


@op("sort", Trait.PURE, axes=Mixed("axis"))
class Sort(Operation):
    """Integers in ascending order along ``axis``. Masked lanes must hold the greatest integer.

    Everything else (floats, positions, descending order) is packed into the integers before. With
    ``count`` only so many are asked for: behind them may be any elements of the line.
    """

    x: Value = operand()
    axis: int = attribute()
    count: int = attribute(default=0)

    @override
    def neutral(self, position: int) -> Constant | None:
        return self.x.tile.dtype.highest

    @override
    def verify(self) -> str | None:
        if not self.x.tile.dtype.is_integer:
            return "only integers are sorted"
        if not 0 <= self.axis < self.x.tile.rank:
            return f"axis {self.axis} of a tile of rank {self.x.tile.rank}"
        return None if self.x.type == self.result.type else "sort changes the type"


EXCHANGING = (Sort,)
"""Ops that exchange lanes in many steps, each of which shapes the tile anew."""
