"""Which lanes of a tile are valid, as Triton expressions.

An axis is masked only where the schedule lets its last tile be shorter than the block.
"""

from __future__ import annotations

from tilesmith.backends.triton.axes import AxisScope
from tilesmith.backends.triton.expressions import Expr, binary, call, subscript
from tilesmith.backends.triton.spelling import Spelling
from tilesmith.ir.types import ONE, Dim, Shape


def expand(expr: Expr, axis: int, rank: int) -> Expr:
    """A one-dimensional tile as ``axis`` of a tile of ``rank`` dimensions."""
    if rank == 1:
        return expr
    shape = tuple(expr.shape[0] if i == axis else ONE for i in range(rank))
    return subscript(expr, tuple(i for i in range(rank) if i != axis), shape)


def conjunction(masks: list[Expr]) -> Expr | None:
    """All masks at once; None when there is none."""
    if not masks:
        return None
    result = masks[0]
    for mask in masks[1:]:
        result = binary("&", result, mask)
    return result


class Masks:
    """Makes mask expressions for the place being emitted."""

    def __init__(self, spelling: Spelling, scope: AxisScope) -> None:
        self._spelling = spelling
        self._scope = scope

    def of_shape(self, shape: Shape, axes: tuple[int, ...] | None = None) -> Expr | None:
        """The valid lanes of a tile along ``axes`` (all of them by default); None for all lanes."""
        masks: list[Expr] = []
        for axis, dim in enumerate(shape):
            mask = self._of_dim(dim) if axes is None or axis in axes else None
            if mask is not None:
                masks.append(expand(mask, axis, len(shape)))
        return conjunction(masks)

    def is_partial(self, dim: Dim) -> bool:
        """Whether some lane of the dimension may be invalid here."""
        return any(self._factor_is_partial(factor) for factor in _factors(dim))

    def _factor_is_partial(self, factor: Dim) -> bool:
        axis = self._scope.axis_of(factor)
        return axis is not None and axis.is_partial

    def _of_dim(self, dim: Dim) -> Expr | None:
        if not self.is_partial(dim):
            return None
        factors = _factors(dim)
        if len(factors) == 1:
            return self._of_factor(dim)
        return self._of_product(dim, factors)

    def _of_factor(self, dim: Dim) -> Expr | None:
        axis = self._scope.axis_of(dim)
        return axis.mask(self._spelling) if axis is not None and axis.is_partial else None

    def _of_product(self, dim: Dim, factors: Shape) -> Expr:
        mask = self.of_shape(factors)
        assert mask is not None
        if mask.shape != factors:
            whole = self._spelling.shape(factors)
            mask = call("tl.broadcast_to", mask, whole, shape=factors)
        return call("tl.reshape", mask, self._spelling.shape((dim,)), shape=(dim,))


def _factors(dim: Dim) -> Shape:
    """The axes a merged axis consists of, outermost first."""
    return tuple(Dim.of(factor) for factor in dim.factors)
