"""Slices of host tensors as index tiles: static bounds, and runtime ones of known length."""

from __future__ import annotations

from typing import Any

from tilesmith.diagnostics import errors
from tilesmith.diagnostics.wording import kind_of
from tilesmith.dtypes import I32, I64, DType
from tilesmith.frontend.emission import apply, full
from tilesmith.frontend.linear_sizes import length_between
from tilesmith.frontend.sessions import current_tracer
from tilesmith.frontend.tensors import TensorRef, size_dim
from tilesmith.frontend.tracer import locate
from tilesmith.frontend.values import TileValue
from tilesmith.ir.ops.indexing import Arange
from tilesmith.ir.types import ONE, Dim, TileType


def arange(dim: Dim, dtype: DType = I32) -> TileValue:
    """``[0, 1, ...)`` along a new axis of that dimension."""
    tracer = current_tracer("arange")
    return TileValue(tracer.create(Arange, TileType(dtype, (dim,))))


def spaced_range(start: Any, dim: Dim, step: int, dtype: DType = I32) -> TileValue:
    """``start, start + step, ...`` along a new axis."""
    indices = full(0, dtype, (ONE,)) if dim.is_one else arange(dim, dtype)
    if step != 1:
        indices = apply("mul", indices, step)
    if isinstance(start, int):
        return apply("add", indices, start) if start else indices
    return apply("add", indices, start, dtype=I64 if start.tile.dtype == I64 else dtype)


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
        raise errors.InvalidSliceStep(step=shown, loc=locate())
    for bound in bounds[:2]:
        _check_bound(ref, bound)
    if any(isinstance(bound, TileValue) for bound in bounds[:2]):
        return _runtime_slice(ref, axis, element)
    start, stop, step = element.indices(_known_extent(ref, axis, element))
    return spaced_range(start, Dim.of(len(range(start, stop, step))), step)


def _check_bound(ref: TensorRef, bound: Any) -> None:
    if isinstance(bound, TileValue):
        if bound.tile.rank or not bound.tile.dtype.is_integer:
            raise errors.TensorSliceBound(loc=locate())
    elif isinstance(bound, bool) or not (bound is None or isinstance(bound, int)):
        raise errors.InvalidIndexingType(
            kind=f"a slice bounded by {kind_of(bound)}", tensor=ref.source, loc=locate()
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
        raise errors.TensorSliceBound(loc=locate())
    return spaced_range(start, dim, step)
