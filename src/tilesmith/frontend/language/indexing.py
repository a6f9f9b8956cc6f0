"""Subscripts of host tensors: from index elements and slices to aligned integer tiles.

Tiles and one-dimensional index tensors in different positions form a Cartesian product;
neighbouring index tensors of higher rank, and those in ``hl.paired``, broadcast together. A slice
has static bounds, or runtime ones of a known length.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NoReturn

import torch

import tilesmith.exc as errors
from tilesmith.diagnostics.wording import kind_of
from tilesmith.dtypes import I32, I64
from tilesmith.frontend.refusals import invalid_value
from tilesmith.frontend.tracing import emission
from tilesmith.frontend.tracing.known_sizes import config_length, length_between, linear_form
from tilesmith.frontend.tracing.settled_sizes import is_only_tile, is_whole_block
from tilesmith.frontend.tracing.tensors import TensorRef, reference_of_unknown, size_dim
from tilesmith.frontend.tracing.tile import Tile
from tilesmith.frontend.tracing.tracer import INT32_LIMIT, current_tracer
from tilesmith.frontend.tracing.values import TileValue, shape_text
from tilesmith.ir.types import ONE, Dim, Shape, Value

_PAIR_THEM = (
    "an axis stands twice in the value: align operands by [:, None] or keepdim=True;\n"
    "index tensors of one tile form a product unless they are paired: x[hl.paired(i, j)]"
)


@dataclass(frozen=True)
class PairedIndices:
    """Index elements that go together: ``hl.paired`` makes them. Unpacked they would not."""

    indices: tuple[Any, ...]

    def __iter__(self) -> NoReturn:
        raise invalid_value("hl.paired", "it gives one index, which is not to be unpacked")


def paired(*indices: Any) -> PairedIndices:
    """Index tensors that pick elements together, one for each position, as torch pairs them.

    Without it, one-dimensional index tensors form a product: every row with every column.

    Example:
        ``picked[t] = scores[hl.paired(t.index, labels[t])]``
    """
    current_tracer("hl.paired")
    if len(indices) < 2:
        raise invalid_value("hl.paired", f"{len(indices)} index: it pairs two or more")
    return PairedIndices(indices)


@dataclass(frozen=True)
class Position:
    """One index element: what indexes a dimension, or a new axis (``index`` None)."""

    index: TileValue | None
    pair: int = 0
    """The number of the ``hl.paired`` that it stands in; 0: none."""
    is_tensor: bool = False
    """Whether it is an index tensor, not a tile, slice or number."""
    limit: Any = None
    """The size of its dimension where the indices may pass that: such lanes are masked off."""

    @property
    def shape(self) -> Shape:
        """The axes it contributes."""
        return (ONE,) if self.index is None else self.index.tile.shape


@dataclass(frozen=True)
class Access:
    """An aligned access: one index value per tensor dimension, and the shape they broadcast to."""

    indices: tuple[Value, ...]
    shape: Shape
    within: TileValue | None = None
    """Which lanes are inside the tensor, where some may not be."""


def resolve_access(ref: TensorRef, index: Any) -> Access:
    """Turn a subscript into aligned indices."""
    positions = [
        replace(_position(ref, axis, element), pair=pair)
        for axis, element, pair in _expand(ref, index)
    ]
    groups = _group(positions)
    _warn_of_product(ref, groups)
    shape: list[Dim] = []
    placed: list[tuple[Position, int, Shape]] = []
    for group in groups:
        indices = [p.index for p in group if p.index is not None]
        group_shape = group[0].shape if len(group) == 1 else emission.broadcast_shapes(indices)
        placed.extend((position, len(shape), group_shape) for position in group)
        shape.extend(group_shape)
    result = tuple(shape)
    aligned = [
        _align(position.index, start, group_shape, len(result)).value
        for position, start, group_shape in placed
        if position.index is not None
    ]
    return Access(tuple(aligned), result, _within(placed, len(result)))


def _within(placed: list[tuple[Position, int, Shape]], rank: int) -> TileValue | None:
    """Lanes whose indices are below their limits; None where no index has one."""
    within: TileValue | None = None
    for position, start, shape in placed:
        if position.index is not None and position.limit is not None:
            below = emission.apply("lt", _align(position.index, start, shape, rank), position.limit)
            within = below if within is None else emission.apply("and", within, below)
    return within


def _expand(ref: TensorRef, index: Any) -> list[tuple[int, Any, int]]:
    """Index elements with their dimensions (-1 for new axes) and the ``hl.paired`` they stand in.

    ``...`` and the tail are filled.
    """
    elements: list[tuple[Any, int]] = []
    given = _flatten_single_tuple(list(index) if isinstance(index, (tuple, list)) else [index])
    for number, element in enumerate(given, 1):
        is_pair = isinstance(element, PairedIndices)
        elements += [(item, number) for item in element.indices] if is_pair else [(element, 0)]
    consumed = sum(
        bool(pair) or not (element is None or element is Ellipsis) for element, pair in elements
    )
    if consumed > ref.ndim:
        raise errors.RankMismatch(tensor=ref.source, rank=ref.ndim, given=consumed)
    fill = [(slice(None), 0)] * (ref.ndim - consumed)
    ellipses = [i for i, (element, pair) in enumerate(elements) if not pair and element is Ellipsis]
    if len(ellipses) > 1:
        raise errors.TypeInferenceError(
            problem=f"an index of `{ref.source}` has more than one `...`"
        )
    place = ellipses[0] if ellipses else len(elements)
    elements[place : place + len(ellipses)] = fill
    found: list[tuple[int, Any, int]] = []
    axis = 0
    for element, pair in elements:
        is_new = not pair and element is None
        found.append((-1 if is_new else axis, element, pair))
        axis += not is_new
    return found


def _flatten_single_tuple(elements: list[Any]) -> list[Any]:
    nested = [element for element in elements if isinstance(element, (tuple, list))]
    if not nested:
        return elements
    if len(elements) == 1:
        return list(nested[0])
    raise errors.OverpackedTile()


def _host_index(ref: TensorRef) -> errors.BaseError:
    """The error for a host tensor as an index."""
    if ref.dtype == torch.bool:
        return errors.DataDependentOutputShapeNotSupported(operation="indexing with a boolean")
    return errors.HostTensorDirectUsage(name=ref.source, use="an index")


def _position(ref: TensorRef, axis: int, element: Any) -> Position:
    if axis < 0:
        return Position(None)
    if isinstance(element, torch.Tensor):
        element = reference_of_unknown(element)
    if isinstance(element, Tile):
        # An axis of size 1 is read by every lane, as broadcasting would have it.
        is_only = ref.type.shape[axis] == 1
        return Position(emission.full(0, I32, (element.dim,)) if is_only else element.index)
    if isinstance(element, slice):
        index = slice_position(ref, axis, element)
        limit = ref.shape[axis] if _has_config_length(element) else None
        return Position(index, limit=limit)
    if isinstance(element, TensorRef):
        raise _host_index(element)
    if isinstance(element, bool) or not isinstance(element, (int, TileValue)):
        raise errors.InvalidIndexingType(kind=kind_of(element), tensor=ref.source)
    if isinstance(element, int):
        return Position(_constant_position(ref, axis, element))
    if element.tile.dtype.is_bool:
        raise errors.DataDependentOutputShapeNotSupported(operation="indexing with a boolean")
    if not element.tile.dtype.is_integer:
        raise errors.InvalidIndexingType(kind=f"a tensor of {element.dtype}", tensor=ref.source)
    return _tensor_position(ref, axis, element)


def _tensor_position(ref: TensorRef, axis: int, element: TileValue) -> Position:
    # One runtime index broadcasts too: a mask of one batch serves all, `mask[tile_b.begin]`.
    is_only = ref.type.shape[axis] == 1 and not element.tile.rank
    return Position(emission.full(0, I32)) if is_only else Position(element, is_tensor=True)


def check_tiles(ref: TensorRef, index: Any) -> None:
    """Raise where a tile is known to leave the tensor. A branch may keep it from being read."""
    if any(region.kind in ("if", "while") for region in current_tracer("a subscript").regions):
        return
    for axis, element, _ in _expand(ref, index):
        if isinstance(element, Tile) and element.lengths is None:
            _check_tile(ref, axis, element)


def _check_tile(ref: TensorRef, axis: int, tile: Tile) -> None:
    extent = ref.type.shape[axis]
    begin, end = (linear_form(bound) for bound in (tile.range_begin, tile.range_end))
    if {*begin, *end} - {None} or extent == 1 or not isinstance(extent, int):
        return
    last = end.get(None, 0)
    if begin.get(None, 0) < last > extent:
        raise errors.TileOutOfRange(tensor=ref.source, dim=axis, end=last, size=extent)


def _constant_position(ref: TensorRef, axis: int, element: int) -> TileValue:
    extent = ref.type.shape[axis]
    if element < 0:
        if isinstance(extent, str):
            return emission.apply("add", ref.shape[axis], element)
        element += extent
    if isinstance(extent, int) and not 0 <= element < extent:
        raise errors.IndexOutOfRange(tensor=ref.source, dim=axis, index=element, size=extent)
    return emission.full(element, I32 if element <= INT32_LIMIT else I64)


def _group(positions: list[Position]) -> list[list[Position]]:
    """Index tensors in one ``hl.paired``, or neighbours of rank two or more, form one group.

    Everything else stands alone.
    """
    groups: list[list[Position]] = []
    for position in positions:
        last = groups[-1] if groups else []
        is_wide = len(position.shape) >= 2
        if position.pair:
            joins = bool(last) and last[0].pair == position.pair
        else:
            joins = bool(last) and is_wide and all(len(p.shape) >= 2 and not p.pair for p in last)
        if joins:
            groups[-1].append(position)
        else:
            groups.append([position])
    return groups


def _warn_of_product(ref: TensorRef, groups: list[list[Position]]) -> None:
    """Remark that index tensors of one tile form a product, where torch would pair them."""
    lines = [g[0] for g in groups if len(g) == 1 and len(g[0].shape) == 1 and g[0].shape[0].symbol]
    for first, second in pairwise(lines):
        if first.shape == second.shape and (first.is_tensor or second.is_tensor):
            current_tracer("a subscript").warn(
                errors.IndicesFormProduct,
                tensor=ref.source,
                shape=shape_text((*first.shape, *second.shape)),
                tile=first.shape[0],
            )
            return


def _align(index: TileValue, start: int, group_shape: Shape, rank: int) -> TileValue:
    """Place an index's axes at ``start`` of ``rank`` dimensions, the others of size 1."""
    if not group_shape:
        return index
    own = index.tile.rank
    first = start + len(group_shape) - own
    return emission.expand_dims(
        index, tuple(i for i in range(rank) if not first <= i < first + own)
    )


def broadcast_value(value: Any, access: Access, ref: TensorRef) -> TileValue:
    """A stored value in the tensor's element type and the accessed shape."""
    tile = emission.as_tile(value, ref.type.dtype)
    extra = tile.tile.rank - len(access.shape)
    if extra > 0:
        if not all(dim.is_one for dim in tile.tile.shape[:extra]):
            symbols = [dim.symbol for dim in tile.tile.shape if dim.symbol]
            fix: dict[str, Any] = {"fix": _PAIR_THEM} if len(set(symbols)) < len(symbols) else {}
            raise errors.StoredRankMismatch(
                tensor=ref.source, rank=len(access.shape), given=tile.tile.rank, **fix
            )
        tile = emission.reshape(tile, tile.tile.shape[extra:])
    for axis in range(-tile.tile.rank, 0):
        wanted, given = access.shape[axis], tile.tile.shape[axis]
        if emission.is_rounded_up(wanted, given) or is_only_tile(given, wanted):
            tile = emission.take_range(tile, axis + tile.tile.rank, range(wanted.constant or 0))
        elif is_whole_block(given, wanted):
            place = axis + tile.tile.rank
            tile = emission.reshape(tile, emission.with_dim(tile.tile.shape, place, wanted))
    return emission.broadcast_to(tile, access.shape)


def slice_position(ref: TensorRef, axis: int, element: slice) -> TileValue:
    """The indices that a slice of one dimension stands for."""
    extent = ref.type.shape[axis]
    bounds = (element.start, element.stop, element.step)
    if all(bound is None for bound in bounds):
        hint = ref.host_tensor.shape[axis]
        dim = Dim.of(extent) if isinstance(extent, int) else size_dim(extent, hint)
        return emission.spaced_range(0, dim, 1)
    step = 1 if element.step is None else element.step
    if isinstance(step, bool) or not isinstance(step, int) or step <= 0:
        shown = step if isinstance(step, (int, float)) else kind_of(step)
        raise errors.InvalidSliceStep(step=shown)
    for bound in bounds[:2]:
        _check_bound(ref, bound)
    if any(isinstance(bound, TileValue) for bound in bounds[:2]):
        return _runtime_slice(ref, axis, element)
    start, stop, step = element.indices(_known_extent(ref, axis, element))
    return emission.spaced_range(start, Dim.of(len(range(start, stop, step))), step)


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


def _has_config_length(element: slice) -> bool:
    """Whether a slice is as long as the Config says: its last part may be shorter."""
    start, stop = 0 if element.start is None else element.start, element.stop
    step = 1 if element.step is None else element.step
    if not isinstance(stop, TileValue) or not isinstance(step, int) or step < 1:
        return False
    return length_between(start, stop, step) is None


def _runtime_slice(ref: TensorRef, axis: int, element: slice) -> TileValue:
    """``s : s + t.block_size``: a range of a known length, from a runtime start."""
    step = element.step or 1
    start = 0 if element.start is None else element.start
    stop = ref.shape[axis] if element.stop is None else element.stop
    is_backward = any(isinstance(bound, int) and bound < 0 for bound in (start, stop))
    dim = None if is_backward else length_between(start, stop, step)
    if dim is None and not is_backward:
        dim = config_length(start, stop, step)
    if dim is None:
        raise errors.TensorSliceBound()
    return emission.spaced_range(start, dim, step)
