"""Values put together and taken apart: ``hl.join``, ``hl.split``, stack, cat, chunk, gather.

Axes that are cut or lengthened must have a constant size; tile axes may only be gathered along.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import tilesmith.exc as errors
from tilesmith.frontend.functions.moved_elements import check_gathered
from tilesmith.frontend.functions.promotion import common_dtype
from tilesmith.frontend.functions.shape import constant_size, flatten, resolve_axis
from tilesmith.frontend.language.parameter_names import also_named
from tilesmith.frontend.refusals import invalid_kind, invalid_value
from tilesmith.frontend.tracing.emission import (
    Rule,
    along,
    apply,
    broadcast_shapes,
    broadcast_to,
    cast,
    device_value,
    expand_dims,
    gather,
    join_pair,
    permute,
    pick,
    positions_in,
    reshape,
    select,
    take_range,
    with_dim,
)
from tilesmith.frontend.tracing.tensors import TensorRef
from tilesmith.frontend.tracing.tracer import current_tracer
from tilesmith.frontend.tracing.values import TileValue, shape_text
from tilesmith.ir.types import Dim, Shape


@also_named(a="tensor0", b="tensor1")
def join(tensor0: Any, tensor1: Any) -> TileValue:
    """Two values of one element type along a new last dimension of size 2; shapes broadcast.

    Example:
        ``out[t, :] = hl.join(x.cos(), x.sin()).reshape(t, -1)``
    """
    current_tracer("hl.join")
    lhs, rhs = (_device_value(x, "hl.join") for x in (tensor0, tensor1))
    if lhs.tile.dtype != rhs.tile.dtype:
        raise invalid_kind(
            "hl.join", f"the values have element types {lhs.dtype} and {rhs.dtype}, expected one"
        )
    shape = broadcast_shapes([lhs, rhs])
    return join_pair(broadcast_to(lhs, shape), broadcast_to(rhs, shape))


@also_named(v="tensor")
def split(tensor: Any) -> tuple[TileValue, TileValue]:
    """The two halves of a value whose last dimension is 2, without that dimension.

    Example:
        ``real, imaginary = hl.split(x[t, :].reshape(t, -1, 2))``
    """
    current_tracer("hl.split")
    x = _device_value(tensor, "hl.split")
    if not x.tile.rank or x.tile.shape[-1].constant != 2:
        raise invalid_value(
            "hl.split", f"the last dimension of {shape_text(x.tile.shape)} is not 2"
        )
    return pick(x, x.tile.rank - 1, 0), pick(x, x.tile.rank - 1, 1)


def _device_value(x: Any, function: str) -> TileValue:
    if isinstance(x, TensorRef):
        raise errors.HostTensorDirectUsage(name=x.source)
    return device_value(x, function)


def _parts(tensors: Any, function: str) -> list[TileValue]:
    """A sequence of values in the element type that all of them promote to."""
    values = [_device_value(x, function) for x in tensors]
    if not values:
        raise invalid_value(function, "the list of values is empty")
    dtype = common_dtype(*values)
    return [cast(value, dtype) for value in values]


# --- stacked and concatenated values --------------------------------------------------------------


def stack(tensors: Sequence[Any], dim: int = 0) -> TileValue:
    """``torch.stack``: values of one shape along a new axis."""
    parts = _parts(tensors, "torch.stack")
    _check_shapes("torch.stack", parts, [part.tile.shape for part in parts])
    return _stack(parts, resolve_axis(parts[0], dim, "stack", num_new=1))


def _check_shapes(function: str, parts: list[TileValue], comparable: list[Shape]) -> None:
    """Raise where the shapes of parts differ in what must be alike."""
    for part, shape in zip(parts, comparable):
        if shape != comparable[0]:
            left, right = (shape_text(x.tile.shape) for x in (parts[0], part))
            raise errors.ShapeMismatch(operation=function, left=left, right=right)


def _stack(parts: list[TileValue], axis: int) -> TileValue:
    if len(parts) & (len(parts) - 1) == 0:
        joined = _joined(parts)
        order = list(range(joined.tile.rank - 1))
        order.insert(axis, joined.tile.rank - 1)
        return permute(joined, tuple(order))
    shape = parts[0].tile.shape
    whole = (*shape[:axis], Dim.of(len(parts)), *shape[axis:])
    positions = positions_in(whole, axis)
    parts = [expand_dims(part, (axis,)) for part in parts]
    result = parts[-1]
    for number in reversed(range(len(parts) - 1)):
        result = select(apply("eq", positions, number), parts[number], result)
    return broadcast_to(result, whole)


def _joined(parts: list[TileValue]) -> TileValue:
    """A power of two of values along a new last axis, in pairs: even ones left, odd ones right."""
    if len(parts) == 1:
        return expand_dims(parts[0], (parts[0].tile.rank,))
    if len(parts) == 2:
        return join_pair(*parts)
    pairs = join_pair(_joined(parts[::2]), _joined(parts[1::2]))
    return reshape(pairs, (*pairs.tile.shape[:-2], Dim.of(len(parts))))


def cat(tensors: Sequence[Any], dim: int = 0) -> TileValue:
    """``torch.cat`` along an axis of constant size."""
    parts = _parts(tensors, "torch.cat")
    axis = resolve_axis(parts[0], dim, "cat")
    sizes = [constant_size(part, axis, "torch.cat") for part in parts]
    others = [p.tile.shape[:axis] + p.tile.shape[axis + 1 :] for p in parts]
    _check_shapes("torch.cat", parts, others)
    size, count = sizes[0], len(parts)
    if count == 1:
        return parts[0]
    shape = with_dim(parts[0].tile.shape, axis, Dim.of(sum(sizes)))
    # Powers of two need no gather: their parts are joined in pairs.
    is_even = len({*sizes}) == 1 and size & (size - 1) == 0 and count & (count - 1) == 0
    if is_even:
        return reshape(_stack(parts, axis), shape)
    return _concatenated([p for p, n in zip(parts, sizes) if n], axis, positions_in(shape, axis))


def _concatenated(parts: list[TileValue], axis: int, positions: TileValue) -> TileValue:
    """Each part spread over the whole axis, of which it shows its own positions."""
    sizes = [part.tile.shape[axis].constant or 0 for part in parts]
    starts = [0, *accumulate(sizes)]
    spread = [_spread(part, axis, positions, start) for part, start in zip(parts, starts[:-1])]
    result = spread[-1]
    for part, end in reversed(list(zip(spread[:-1], starts[1:]))):
        result = select(apply("lt", positions, end), part, result)
    return result


def _spread(x: TileValue, axis: int, positions: TileValue, start: int) -> TileValue:
    """``x`` from a position on, its first and last elements repeated to both sides."""
    size = x.tile.shape[axis].constant or 0
    if size == 1:
        return broadcast_to(x, with_dim(x.tile.shape, axis, positions.tile.shape[axis]))
    if start:
        positions = apply("maximum", apply("sub", positions, start), 0)
    if start + size < (positions.tile.shape[axis].constant or 0):
        positions = apply("minimum", positions, size - 1)
    return gather(x, positions, axis)


def hstack(tensors: Sequence[Any]) -> TileValue:
    """``torch.hstack``: along the second axis, or the only one."""
    parts = [_at_least(x, 1) for x in _parts(tensors, "torch.hstack")]
    return cat(parts, 0 if parts[0].tile.rank == 1 else 1)


def vstack(tensors: Sequence[Any]) -> TileValue:
    """``torch.vstack``: rows, one below the other."""
    return cat([_at_least(x, 2) for x in _parts(tensors, "torch.vstack")], 0)


def _at_least(x: TileValue, rank: int) -> TileValue:
    return expand_dims(x, tuple(range(rank - x.tile.rank)))


# --- parts of values ------------------------------------------------------------------------------


_cut_size = partial(constant_size, error=errors.UnsupportedSplitOperation)


def unbind(x: TileValue, dim: int = 0) -> tuple[TileValue, ...]:
    """``torch.unbind``: one value for each position of an axis."""
    axis = resolve_axis(x, dim, "unbind")
    return tuple(pick(x, axis, i) for i in range(_cut_size(x, axis, "torch.unbind")))


def narrow(x: TileValue, dim: int, start: int, length: int) -> TileValue:
    """``torch.narrow``: some neighbouring positions of an axis."""
    axis = resolve_axis(x, dim, "narrow")
    size = _cut_size(x, axis, "torch.narrow")
    start = start + size if start < 0 else start
    if not 0 <= start <= start + length <= size:
        raise invalid_value(
            "torch.narrow", f"{length} positions from {start} on are not within {size}"
        )
    return take_range(x, axis, range(start, start + length))


def _pieces(x: TileValue, axis: int, ends: Sequence[int]) -> tuple[TileValue, ...]:
    return tuple(take_range(x, axis, range(a, max(a, b))) for a, b in zip([0, *ends], ends))


def split_sizes(x: TileValue, split_size_or_sections: Any, dim: int = 0) -> tuple[TileValue, ...]:
    """``torch.split``: parts of one size, or of the sizes given."""
    axis = resolve_axis(x, dim, "split")
    size = _cut_size(x, axis, "torch.split")
    given = split_size_or_sections
    if isinstance(given, int):
        return _pieces(x, axis, [min(i + given, size) for i in range(0, max(size, 1), given)])
    ends = list(accumulate(given))
    if not ends or ends[-1] != size:
        raise invalid_value("torch.split", f"the sizes {list(given)} do not add up to {size}")
    return _pieces(x, axis, ends)


def chunk(x: TileValue, chunks: int, dim: int = 0) -> tuple[TileValue, ...]:
    """``torch.chunk``: at most that many parts of one size."""
    axis = resolve_axis(x, dim, "chunk")
    size = _cut_size(x, axis, "torch.chunk")
    return split_sizes(x, max(1, -(-size // chunks)), axis)


def tensor_split(x: TileValue, indices_or_sections: Any, dim: int = 0) -> tuple[TileValue, ...]:
    """``torch.tensor_split``: that many parts, as equal as can be, or between positions."""
    axis = resolve_axis(x, dim, "tensor_split")
    size = _cut_size(x, axis, "torch.tensor_split")
    given = indices_or_sections
    if isinstance(given, int):
        least, more = divmod(size, given)
        return _pieces(x, axis, list(accumulate(least + (i < more) for i in range(given))))
    cuts = [range(size)[:end].stop for end in given]
    return _pieces(x, axis, [*cuts, size])


# --- elements by position -------------------------------------------------------------------------


def gather_elements(x: TileValue, dim: int, index: Any, *, sparse_grad: bool = False) -> TileValue:
    """``torch.gather``; positions must lie within the axis."""
    axis = resolve_axis(x, dim, "gather")
    positions = _positions(index, "torch.gather")
    if positions.tile.rank != x.tile.rank:
        raise errors.RankMismatch(
            tensor="the index of torch.gather", rank=x.tile.rank, given=positions.tile.rank
        )
    check_gathered(x, axis, "torch.gather")
    for other, dim_ in enumerate(positions.tile.shape):
        size = dim_.constant
        if other != axis and dim_ != x.tile.shape[other] and size is not None:
            x = take_range(x, other, range(min(size, constant_size(x, other, "torch.gather"))))
    return gather(x, positions, axis)


def take_along_dim(x: TileValue, indices: Any, dim: int | None = None) -> TileValue:
    """``torch.take_along_dim``: like gather, other axes broadcast."""
    positions = _positions(indices, "torch.take_along_dim")
    if dim is None:
        x, positions, dim = flatten(x), flatten(positions), 0
    axis = resolve_axis(x, dim, "take_along_dim")
    check_gathered(x, axis, "torch.take_along_dim")
    size = x.tile.shape[axis].constant
    if size is not None:
        # Unlike gather it counts negative positions from the end.
        from_end = apply("add", positions, size)
        positions = select(apply("lt", positions, 0), from_end, positions)
    pairs = zip(x.tile.shape, positions.tile.shape)
    shape = [old if axis == other or new.is_one else new for other, (old, new) in enumerate(pairs)]
    return gather(broadcast_to(x, tuple(shape)), positions, axis)


def index_select(x: TileValue, dim: int, index: Any) -> TileValue:
    """``torch.index_select``: positions of one axis, in the order given."""
    axis = resolve_axis(x, dim, "index_select")
    check_gathered(x, axis, "torch.index_select")
    positions = _positions(index, "torch.index_select")
    if positions.tile.rank > 1:
        raise errors.RankMismatch(
            tensor="the index of torch.index_select", rank=1, given=positions.tile.rank
        )
    return gather(x, along(_at_least(positions, 1), axis, x.tile.rank), axis)


def _positions(index: Any, function: str) -> TileValue:
    found = _device_value(index, function)
    if not found.tile.dtype.is_integer:
        raise invalid_kind(function, f"the index is of {found.dtype}")
    return found


REARRANGEMENTS: dict[str, Rule] = {
    "stack": stack, "cat": cat, "concat": cat, "concatenate": cat, "hstack": hstack,
    "vstack": vstack, "row_stack": vstack, "unbind": unbind, "narrow": narrow,
    "split": split_sizes, "split_with_sizes": split_sizes, "chunk": chunk,
    "tensor_split": tensor_split, "gather": gather_elements, "take_along_dim": take_along_dim,
    "index_select": index_select,
}  # fmt: skip
