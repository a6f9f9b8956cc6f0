"""Views of tiles: the elements stay, their arrangement changes."""

from __future__ import annotations

from typing_extensions import override

from tilesmith.ir.axis_roles import Inserted, Permuted, Repeated, Reshaped
from tilesmith.ir.operation import Operation, Trait, attribute, op, operand
from tilesmith.ir.types import Shape, Value


@op("expand_dims", Trait.PURE | Trait.VIEW, axes=Inserted("axes"))
class ExpandDims(Operation):
    """Insert axes of size 1 at ``axes`` (positions in the result, ascending)."""

    x: Value = operand()
    axes: tuple[int, ...] = attribute()

    @override
    def verify(self) -> str | None:
        kept = [dim for i, dim in enumerate(self.result.tile.shape) if i not in self.axes]
        ones = all(self.result.tile.shape[axis].is_one for axis in self.axes)
        return None if ones and tuple(kept) == self.x.tile.shape else "wrong result shape"


@op("broadcast", Trait.PURE | Trait.VIEW, axes=Repeated())
class Broadcast(Operation):
    """Repeat axes of size 1 to the result's shape (same rank)."""

    x: Value = operand()

    @override
    def verify(self) -> str | None:
        pairs = zip(self.x.tile.shape, self.result.tile.shape)
        fits = all(old == new or old.is_one for old, new in pairs)
        has_rank = self.x.tile.rank == self.result.tile.rank
        return None if fits and has_rank else "shapes do not broadcast"


@op("reshape", Trait.PURE | Trait.VIEW, axes=Reshaped())
class Reshape(Operation):
    """Row-major reinterpretation in the result's shape, which has the same number of elements."""

    x: Value = operand()


@op("permute", Trait.PURE | Trait.VIEW, axes=Permuted("order"))
class Permute(Operation):
    """Reorder axes: result axis ``i`` is operand axis ``order[i]``."""

    x: Value = operand()
    order: tuple[int, ...] = attribute()

    @override
    def verify(self) -> str | None:
        if sorted(self.order) != list(range(self.x.tile.rank)):
            return f"{self.order} is no permutation"
        expected = tuple(self.x.tile.shape[axis] for axis in self.order)
        return None if expected == self.result.tile.shape else "wrong result shape"


def inserted_ones(before: Shape, after: Shape) -> tuple[int, ...] | None:
    """The positions of ones in ``after`` without which it is ``before``."""
    axes: list[int] = []
    left = list(before)
    for axis, dim in enumerate(after):
        if left and left[0] == dim:
            left.pop(0)
        elif dim.is_one:
            axes.append(axis)
        else:
            return None
    return None if left else tuple(axes)
