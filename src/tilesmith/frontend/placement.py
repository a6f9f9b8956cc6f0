"""The vocabulary of rules that put elements elsewhere: join, pick, gather and sort.

Axes are counted from 0 and positions lie within them; the rules above check both.
"""

from __future__ import annotations

from tilesmith.dtypes import I32
from tilesmith.frontend.emission import apply, broadcast_to, expand_dims, full, reshape
from tilesmith.frontend.sessions import current_tracer
from tilesmith.frontend.slices import arange
from tilesmith.frontend.values import TileValue
from tilesmith.ir.ops.rearrangement import Gather, Join, Select, Sort
from tilesmith.ir.types import Dim, Shape


def join_pair(lhs: TileValue, rhs: TileValue) -> TileValue:
    """Two values of one type side by side along a new last axis."""
    joined = lhs.tile.with_shape((*lhs.tile.shape, Dim.of(2)))
    return TileValue(current_tracer("join").create(Join, joined, lhs=lhs.value, rhs=rhs.value))


def pick(x: TileValue, axis: int, position: int) -> TileValue:
    """The elements at one position of a constant axis, which the result lacks."""
    shape = x.tile.shape[:axis] + x.tile.shape[axis + 1 :]
    if x.tile.shape[axis].is_one:
        return reshape(x, shape)
    value = current_tracer("select").create(
        Select, x.tile.with_shape(shape), x=x.value, axis=axis, position=position
    )
    return TileValue(value, is_reduced=True)


def gather(x: TileValue, index: TileValue, axis: int) -> TileValue:
    """The elements at positions of the rank of ``x``; other axes of size 1 are repeated."""
    shape = with_dim(x.tile.shape, axis, index.tile.shape[axis])
    positions = broadcast_to(index, shape)
    value = current_tracer("gather").create(
        Gather, x.tile.with_shape(shape), x=x.value, index=positions.value, axis=axis
    )
    return TileValue(value)


def sort_integers(x: TileValue, axis: int) -> TileValue:
    """Integers in ascending order along an axis."""
    return TileValue(current_tracer("sort").create(Sort, x.tile, x=x.value, axis=axis))


def with_dim(shape: Shape, axis: int, dim: Dim) -> Shape:
    """The shape with one axis of another size."""
    return (*shape[:axis], dim, *shape[axis + 1 :])


def line(dim: Dim) -> TileValue:
    """``[0, 1, ...)`` along an axis."""
    return full(0, I32, (dim,)) if dim.is_one else arange(dim)


def along(positions: TileValue, axis: int, rank: int) -> TileValue:
    """A line of numbers as one axis of ``rank``."""
    return expand_dims(positions, tuple(other for other in range(rank) if other != axis))


def positions_in(shape: Shape, axis: int) -> TileValue:
    """The position of every element along an axis; the other axes have size 1."""
    return along(line(shape[axis]), axis, len(shape))


def take_range(x: TileValue, axis: int, picked: range) -> TileValue:
    """The positions of a range, of a constant axis."""
    size = x.tile.shape[axis].constant or 0
    length = len(picked)
    if picked == range(size):
        return x
    if length == 0:
        return full(0, x.tile.dtype, with_dim(x.tile.shape, axis, Dim.of(0)))
    if length == 1:
        return expand_dims(pick(x, axis, picked[0]), (axis,))
    if picked.step == 1 and _is_block(size, length, picked.start):
        parts = (Dim.of(size // length), Dim.of(length))
        split = reshape(x, (*x.tile.shape[:axis], *parts, *x.tile.shape[axis + 1 :]))
        return pick(split, axis, picked.start // length)
    positions = positions_in(with_dim(x.tile.shape, axis, Dim.of(length)), axis)
    scaled = apply("mul", positions, picked.step) if picked.step != 1 else positions
    return gather(x, apply("add", scaled, picked.start) if picked.start else scaled, axis)


def _is_block(size: int, length: int, start: int) -> bool:
    """Whether a range is one of equal parts whose sizes need no padding anywhere."""
    is_even = size & (size - 1) == 0 and length & (length - 1) == 0
    return is_even and start % length == 0
