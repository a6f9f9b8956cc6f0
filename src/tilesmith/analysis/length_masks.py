"""Comparisons of a tile's indices with lengths, where the loop ends at the greatest length.

``index < length`` is false past the end of such a loop, in every lane of the lengths that is valid
itself: the comparison says all that the mask of the loop's range would say.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Loop
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Mask, TileIndex
from tilesmith.ir.ops.reduction import Reduce, ReduceKind
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape
from tilesmith.ir.values import Value

Definitions = Mapping[Value, Operation]


def is_false_past_end(
    comparison: Operation, axis: int, loop: Loop, defined_by: Definitions
) -> bool:
    """Whether a comparison is false in the lanes past the end of axis ``axis`` of the loop."""
    if not isinstance(comparison, Elementwise) or comparison.fn != "lt":
        return False
    index, length = (_origin(arg, defined_by) for arg in comparison.args)
    tile = defined_by.get(index)
    is_index = isinstance(tile, TileIndex) and tile.begin is loop.body.args[axis]
    return is_index and length is _lengths_behind(loop.ends[axis], defined_by)


def _origin(value: Value, defined_by: Definitions) -> Value:
    """The value before it was arranged along other axes or widened."""
    while True:
        op = defined_by.get(value)
        if not isinstance(op, (Broadcast, ExpandDims, Permute, Reshape, Cast)):
            return value
        if isinstance(op, Cast) and not _is_widening(op):
            return value
        value = op.x


def _is_widening(op: Cast) -> bool:
    source, target = op.x.tile.dtype, op.dtype
    return source.is_integer and source.kind is target.kind and source.bits <= target.bits


def _lengths_behind(end: Value, defined_by: Definitions) -> Value:
    """The lengths whose maximum is the end; an end of 32 bits is meant to be enough for it."""
    while True:
        end = _origin(end, defined_by)
        op = defined_by.get(end)
        is_maximum = isinstance(op, Reduce) and op.reduction is ReduceKind.MAX
        is_narrowing = isinstance(op, Cast) and op.x.tile.dtype.is_integer and not op.bitcast
        if not (is_maximum or is_narrowing or isinstance(op, Mask)):
            return end
        assert isinstance(op, (Reduce, Cast, Mask))
        end = op.x
