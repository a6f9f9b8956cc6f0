"""Subscripts of host tensors: from index elements to aligned integer tiles (language section 3.1).

Tiles and one-dimensional index tensors in different positions form a Cartesian product;
neighbouring index tensors of higher rank broadcast together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from tilesmith.diagnostics import errors
from tilesmith.diagnostics.wording import kind_of
from tilesmith.dtypes import I32, I64
from tilesmith.frontend.emission import (
    apply,
    as_tile,
    broadcast_shapes,
    broadcast_to,
    expand_dims,
    full,
    reshape,
)
from tilesmith.frontend.slices import slice_position
from tilesmith.frontend.tensors import TensorRef, reference_of_unknown
from tilesmith.frontend.tile import Tile
from tilesmith.frontend.tracer import INT32_LIMIT, locate
from tilesmith.frontend.values import TileValue
from tilesmith.ir.types import ONE, Dim, Shape
from tilesmith.ir.values import Value


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
        raise errors.RankMismatch(tensor=ref.source, rank=ref.ndim, given=consumed, loc=locate())
    fill = [slice(None)] * (ref.ndim - consumed)
    ellipses = [position for position, element in enumerate(elements) if element is Ellipsis]
    if len(ellipses) > 1:
        raise errors.TypeInferenceError(
            problem=f"an index of `{ref.source}` has more than one `...`", loc=locate()
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
    raise errors.OverpackedTile(loc=locate())


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
        raise errors.HostTensorDirectUsage(name=element.source, use="an index", loc=locate())
    if isinstance(element, bool) or not isinstance(element, (int, TileValue)):
        raise errors.InvalidIndexingType(kind=kind_of(element), tensor=ref.source, loc=locate())
    if isinstance(element, int):
        return Position(_constant_position(ref, axis, element))
    if element.tile.dtype.is_bool:
        raise errors.DataDependentOutputShapeNotSupported(
            operation="indexing with a boolean", loc=locate()
        )
    if not element.tile.dtype.is_integer:
        raise errors.InvalidIndexingType(
            kind=f"a tensor of {element.dtype}", tensor=ref.source, loc=locate()
        )
    return Position(element)


def _tile_position(ref: TensorRef, axis: int, tile: Tile) -> TileValue:
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
        raise errors.IndexOutOfRange(
            tensor=ref.source, dim=axis, index=element, size=extent, loc=locate()
        )
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
                tensor=ref.source,
                rank=len(access.shape),
                given=tile.tile.rank,
                loc=locate(),
            )
        tile = reshape(tile, tile.tile.shape[extra:])
    return broadcast_to(tile, access.shape)
