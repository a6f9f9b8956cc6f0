"""Subscripts of host tensors: from index elements and slices to aligned integer tiles.

Tiles and one-dimensional index tensors in different positions form a Cartesian product;
neighbouring index tensors of higher rank broadcast together. A slice has static bounds, or runtime
ones of a known length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

import tilesmith.exc as errors
from tilesmith.diagnostics.wording import kind_of
from tilesmith.dtypes import I32, I64
from tilesmith.frontend.tracing.emission import (
    apply,
    as_tile,
    broadcast_shapes,
    broadcast_to,
    expand_dims,
    full,
    reshape,
    spaced_range,
)
from tilesmith.frontend.tracing.known_sizes import length_between
from tilesmith.frontend.tracing.tensors import TensorRef, reference_of_unknown, size_dim
from tilesmith.frontend.tracing.tile import Tile
from tilesmith.frontend.tracing.tracer import INT32_LIMIT, current_tracer
from tilesmith.frontend.tracing.values import TileValue
from tilesmith.ir.types import ONE, Dim, Shape, Value


@dataclass(frozen=True)
class Position:
    """One index element: what indexes a dimension, or a new axis (``index`` None)."""

    index: TileValue | None

    @property
    def shape(self) -> Shape:
        """The axes it contributes."""
        return (ONE,) if self.index is None else self.index.tile.shape


@dataclass(frozen=True)
class Access:
    """An aligned access: one index value per tensor dimension, and the shape they broadcast to."""

    indices: tuple[Value, ...]
    shape: Shape


def resolve_access(ref: TensorRef, index: Any) -> Access:
    """Turn a subscript into aligned indices."""
    positions = [_position(ref, axis, element) for axis, element in _expand(ref, index)]
    groups = _group(positions)
    shape: list[Dim] = []
    placed: list[tuple[Position, int, Shape]] = []
    for group in groups:
        group_shape = _group_shape(group)
        placed.extend((position, len(shape), group_shape) for position in group)
        shape.extend(group_shape)
    result = tuple(shape)
    indices = [
        _align(position.index, start, group_shape, len(result)).value
        for position, start, group_shape in placed
        if position.index is not None
    ]
    return Access(tuple(indices), result)


def _expand(ref: TensorRef, index: Any) -> list[tuple[int, Any]]:
    """Pair index elements with dimensions (-1 for new axes), filling ``...`` and the tail."""
    elements = list(index) if isinstance(index, (tuple, list)) else [index]
    elements = _flatten_single_tuple(elements)
    consumed = sum(element is not None and element is not Ellipsis for element in elements)
    if consumed > ref.ndim:
        raise errors.RankMismatch(tensor=ref.source, rank=ref.ndim, given=consumed)
    fill = [slice(None)] * (ref.ndim - consumed)
    ellipses = [position for position, element in enumerate(elements) if element is Ellipsis]
    if len(ellipses) > 1:
        raise errors.TypeInferenceError(
            problem=f"an index of `{ref.source}` has more than one `...`"
        )
    place = ellipses[0] if ellipses else len(elements)
    elements[place : place + len(ellipses)] = fill
    pairs: list[tuple[int, Any]] = []
    axis = 0
    for element in elements:
        pairs.append((-1, None) if element is None else (axis, element))
        axis += element is not None
    return pairs


def _flatten_single_tuple(elements: list[Any]) -> list[Any]:
    nested = [element for element in elements if isinstance(element, (tuple, list))]
    if not nested:
        return elements
    if len(elements) == 1:
        return list(nested[0])
    raise errors.OverpackedTile()


def _position(ref: TensorRef, axis: int, element: Any) -> Position:
    if axis < 0:
        return Position(None)
    if isinstance(element, torch.Tensor):
        element = reference_of_unknown(element)
    if isinstance(element, Tile):
        return Position(_tile_position(ref, axis, element))
    if isinstance(element, slice):
        return Position(slice_position(ref, axis, element))
    if isinstance(element, TensorRef):
        raise errors.HostTensorDirectUsage(name=element.source, use="an index")
    if isinstance(element, bool) or not isinstance(element, (int, TileValue)):
        raise errors.InvalidIndexingType(kind=kind_of(element), tensor=ref.source)
    if isinstance(element, int):
        return Position(_constant_position(ref, axis, element))
    if element.tile.dtype.is_bool:
        raise errors.DataDependentOutputShapeNotSupported(operation="indexing with a boolean")
    if not element.tile.dtype.is_integer:
        raise errors.InvalidIndexingType(kind=f"a tensor of {element.dtype}", tensor=ref.source)
    return Position(element)


def _tile_position(ref: TensorRef, axis: int, tile: Tile) -> TileValue:
    # An axis of size 1 is read by every lane, as broadcasting would have it.
    if ref.type.shape[axis] == 1 and tile.block is not None:
        return full(0, I32, (tile.dim,))
    return tile.index


def _constant_position(ref: TensorRef, axis: int, element: int) -> TileValue:
    extent = ref.type.shape[axis]
    if element < 0:
        if isinstance(extent, str):
            return apply("add", ref.shape[axis], element)
        element += extent
    if isinstance(extent, int) and not 0 <= element < extent:
        raise errors.IndexOutOfRange(tensor=ref.source, dim=axis, index=element, size=extent)
    return full(element, I32 if element <= INT32_LIMIT else I64)


def _group(positions: list[Position]) -> list[list[Position]]:
    """Neighbouring index tensors of rank two or more form one group.

    Everything else stands alone.
    """
    groups: list[list[Position]] = []
    for position in positions:
        is_wide = len(position.shape) >= 2
        if is_wide and groups and all(len(p.shape) >= 2 for p in groups[-1]):
            groups[-1].append(position)
        else:
            groups.append([position])
    return groups


def _group_shape(group: list[Position]) -> Shape:
    if len(group) == 1:
        return group[0].shape
    return broadcast_shapes([p.index for p in group if p.index is not None])


def _align(index: TileValue, start: int, group_shape: Shape, rank: int) -> TileValue:
    """Place an index's axes at ``start`` of ``rank`` dimensions, the others of size 1."""
    if not group_shape:
        return index
    own = index.tile.rank
    first = start + len(group_shape) - own
    return expand_dims(index, tuple(i for i in range(rank) if not first <= i < first + own))


def broadcast_value(value: Any, access: Access, ref: TensorRef) -> TileValue:
    """A stored value in the tensor's element type and the accessed shape."""
    tile = as_tile(value, ref.type.dtype)
    extra = tile.tile.rank - len(access.shape)
    if extra > 0:
        if not all(dim.is_one for dim in tile.tile.shape[:extra]):
            raise errors.StoredRankMismatch(
                tensor=ref.source, rank=len(access.shape), given=tile.tile.rank
            )
        tile = reshape(tile, tile.tile.shape[extra:])
    return broadcast_to(tile, access.shape)


def slice_position(ref: TensorRef, axis: int, element: slice) -> TileValue:
    """The indices that a slice of one dimension stands for."""
    extent = ref.type.shape[axis]
    bounds = (element.start, element.stop, element.step)
    if all(bound is None for bound in bounds):
        hint = ref.host_tensor.shape[axis]
        dim = Dim.of(extent) if isinstance(extent, int) else size_dim(extent, hint)
        return spaced_range(0, dim, 1)
    step = 1 if element.step is None else element.step
    if isinstance(step, bool) or not isinstance(step, int) or step <= 0:
        shown = step if isinstance(step, (int, float)) else kind_of(step)
        raise errors.InvalidSliceStep(step=shown)
    for bound in bounds[:2]:
        _check_bound(ref, bound)
    if any(isinstance(bound, TileValue) for bound in bounds[:2]):
        return _runtime_slice(ref, axis, element)
    start, stop, step = element.indices(_known_extent(ref, axis, element))
    return spaced_range(start, Dim.of(len(range(start, stop, step))), step)


def _check_bound(ref: TensorRef, bound: Any) -> None:
    if isinstance(bound, TileValue):
        if bound.tile.rank or not bound.tile.dtype.is_integer:
            raise errors.TensorSliceBound()
    elif isinstance(bound, bool) or not (bound is None or isinstance(bound, int)):
        raise errors.InvalidIndexingType(
            kind=f"a slice bounded by {kind_of(bound)}", tensor=ref.source
        )


def _known_extent(ref: TensorRef, axis: int, element: slice) -> int:
    """A size that a slice with static bounds may be taken from; a runtime size is guarded."""
    extent = ref.type.shape[axis]
    if isinstance(extent, int):
        return extent
    tracer = current_tracer("a slice")
    start, stop = element.start or 0, element.stop
    hint = int(ref.host_tensor.shape[axis])
    if stop is not None and 0 <= start <= stop <= hint:
        tracer.guards.require(f"{ref.source}.size({axis}) >= {stop}", value=True)
        return stop
    # The length of the slice depends on the size, so the trace is for this size only.
    tracer.guards.require(f"{ref.source}.size({axis})", value=hint)
    return hint


def _runtime_slice(ref: TensorRef, axis: int, element: slice) -> TileValue:
    """``s : s + t.block_size``: a range of a known length, from a runtime start."""
    step = element.step or 1
    start = 0 if element.start is None else element.start
    stop = ref.shape[axis] if element.stop is None else element.stop
    is_backward = any(isinstance(bound, int) and bound < 0 for bound in (start, stop))
    dim = None if is_backward else length_between(start, stop, step)
    if dim is None:
        raise errors.TensorSliceBound()
    return spaced_range(start, dim, step)
