"""Subscripts of device values, and values with elements moved, repeated, padded or cleared.

All of these are gathers, selections or views; positions are those of the value itself, not of the
tensor that it was loaded from.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import tilesmith.exc as errors
from tilesmith.diagnostics.wording import kind_of
from tilesmith.frontend.functions.shape import constant_size, flatten, move_axes, resolve_axis
from tilesmith.frontend.language.parameter_names import also_named
from tilesmith.frontend.refusals import invalid_value, unsupported_argument, unsupported_axis
from tilesmith.frontend.tracing.emission import (
    Rule,
    along,
    apply,
    as_tile,
    broadcast_to,
    expand_dims,
    full,
    gather,
    one_by_one,
    pick,
    positions_in,
    reshape,
    take_range,
    with_dim,
)
from tilesmith.frontend.tracing.emission import select as select_lanes
from tilesmith.frontend.tracing.tracer import current_tracer
from tilesmith.frontend.tracing.values import TileValue, size_of_dim
from tilesmith.ir.types import ONE, Dim, Shape

_moved_size = partial(constant_size, error=errors.UnsupportedIndexRemapping)


@also_named(x="tensor", v="tensor")
def subscript(tensor: TileValue, index: Any) -> TileValue:
    """``x[:, None]``, ``x[0]``, ``x[..., 2:5]``: new axes, positions, slices of constant axes."""
    current_tracer("hl.subscript")
    x = tensor
    elements = list(index) if isinstance(index, (tuple, list)) else [index]
    taken = sum(element is not None and element is not Ellipsis for element in elements)
    if taken > x.tile.rank:
        raise errors.RankMismatch(tensor=x.value.name or "the value", rank=x.tile.rank, given=taken)
    places = [i for i, element in enumerate(elements) if element is Ellipsis]
    if places:
        elements[places[0] : places[0] + 1] = [slice(None)] * (x.tile.rank - taken)
    axis = 0
    for element in elements:
        x, kept = _subscript_axis(x, axis, element)
        axis += kept
    return x


def _subscript_axis(x: TileValue, axis: int, element: Any) -> tuple[TileValue, int]:
    """One element of a subscript applied, and how many axes of the result it stands for."""
    if element is None:
        return expand_dims(x, (axis,)), 1
    if isinstance(element, slice):
        return _slice(x, axis, element), 1
    if isinstance(element, int) and not isinstance(element, bool):
        return select(x, axis, element), 0
    if isinstance(element, TileValue) and element.tile.dtype.is_integer:
        return _pick_computed(x, axis, element)
    raise _unsupported_index(element)


def _slice(x: TileValue, axis: int, element: slice) -> TileValue:
    if element == slice(None):
        return x
    bounds = (element.start, element.stop, element.step)
    if not all(bound is None or isinstance(bound, int) for bound in bounds):
        raise errors.TensorSliceBound()
    if element.step is not None and element.step <= 0:
        raise errors.InvalidSliceStep(step=element.step)
    size = constant_size(x, axis, "a slice of a device value")
    return take_range(x, axis, range(*element.indices(size)))


def _pick_computed(x: TileValue, axis: int, index: TileValue) -> tuple[TileValue, int]:
    """``x[i]`` with a number or a line of positions computed on the device."""
    rank = index.tile.rank
    if rank > 1:
        raise _unsupported_index(index)
    check_gathered(x, axis, "indexing a device value")
    positions = index if rank else reshape(index, (ONE,))
    found = gather(x, along(positions, axis, x.tile.rank), axis)
    return (found, 1) if rank else (pick(found, axis, 0), 0)


def check_gathered(x: TileValue, axis: int, function: str) -> None:
    """Elements are found by position where an axis counts from one end to the other."""
    if any(isinstance(factor, str) for factor in x.tile.shape[axis].factors[1:]):
        operation = f"{function} along the merged axis {x.tile.shape[axis]}"
        raise unsupported_axis(operation, "do it before merging the axes")


def select(x: TileValue, dim: int, index: int) -> TileValue:
    """``torch.select``: one position of a constant axis."""
    axis = resolve_axis(x, dim, "select")
    size = constant_size(x, axis, "picking a position")
    if not -size <= index < size:
        raise errors.IndexOutOfRange(
            tensor=x.value.name or "the value", dim=axis, index=index, size=size
        )
    return pick(x, axis, index % size)


def _unsupported_index(element: Any) -> errors.BaseError:
    if isinstance(element, TileValue) and element.tile.dtype.is_bool:
        return errors.DataDependentOutputShapeNotSupported(operation="indexing with a bool tensor")
    return errors.BackendUnsupported(
        operation=f"indexing a device value with {kind_of(element)}",
        backend="triton",
        fix="use `:`, `None`, `...`, integers, slices or a line of integers; or index the host "
        "tensor where it is loaded",
    )


def flip(x: TileValue, *axes: Any, dims: Any = None) -> TileValue:
    """``torch.flip``: axes from their end to their beginning."""
    for dim in one_by_one(axes if dims is None else (dims,)):
        axis = resolve_axis(x, dim, "flip")
        size = _row_size(x, axis, "torch.flip")
        if not isinstance(size, int) or size > 1:
            x = gather(x, apply("sub", size - 1, positions_in(x.tile.shape, axis)), axis)
    return x


def roll(x: TileValue, shifts: Any, dims: Any = None) -> TileValue:
    """``torch.roll``: elements that leave an axis come back at its other end."""
    if dims is None:
        whole = [Dim.of(constant_size(x, axis, "torch.roll")) for axis in range(x.tile.rank)]
        return reshape(roll(flatten(x), shifts, 0), tuple(whole))
    given = zip(*([v] if isinstance(v, int) else list(v) for v in (shifts, dims)))
    for shift, dim in given:
        axis = resolve_axis(x, dim, "roll")
        size = _row_size(x, axis, "torch.roll")
        by = shift % (size or 1) if isinstance(size, int) else shift
        if by:
            offset = size - by if isinstance(size, int) else -by
            moved = apply("add", positions_in(x.tile.shape, axis), offset)
            x = gather(x, apply("mod", moved, size), axis)
    return x


def _row_size(x: TileValue, axis: int, function: str) -> Any:
    """The size of an axis of which all elements are here: a number, or a runtime size."""
    dim = x.tile.shape[axis]
    if dim.symbol in current_tracer(function).sizes:
        return size_of_dim(dim)
    return _moved_size(x, axis, function)


def pad(x: TileValue, pad: Any, mode: str = "constant", value: Any = None) -> TileValue:
    """``torch.nn.functional.pad`` with a constant: pairs of counts, the last axis first."""
    if mode != "constant":
        raise unsupported_argument("torch.nn.functional.pad", f"mode={mode!r}")
    counts = list(pad)
    for number, (before, after) in enumerate(zip(counts[::2], counts[1::2])):
        x = _pad_axis(x, x.tile.rank - 1 - number, (before, after), value or 0)
    return x


def _pad_axis(x: TileValue, axis: int, counts: tuple[int, int], value: Any) -> TileValue:
    """Negative counts cut off."""
    if counts == (0, 0):
        return x
    size = _moved_size(x, axis, "torch.nn.functional.pad")
    before, after = (max(count, 0) for count in counts)
    x = take_range(x, axis, range(max(-counts[0], 0), size - max(-counts[1], 0)))
    size = x.tile.shape[axis].constant or 0
    if not before and not after:
        return x
    shape = with_dim(x.tile.shape, axis, Dim.of(before + size + after))
    if not size:
        return full(value, x.tile.dtype, shape)
    moved = apply("sub", positions_in(shape, axis), before)
    inside = apply("minimum", apply("maximum", moved, 0), size - 1)
    found = gather(x, inside, axis)
    return select_lanes(apply("eq", moved, inside), found, as_tile(value, x.tile.dtype))


# --- repeated elements ----------------------------------------------------------------------------


def repeat(x: TileValue, *sizes: Any) -> TileValue:
    """``Tensor.repeat``: the whole value, side by side as often as asked along each axis."""
    sizes = one_by_one(sizes)
    if len(sizes) < x.tile.rank:
        raise invalid_value(
            "repeat", f"{len(sizes)} counts for a value of {x.tile.rank} dimensions"
        )
    x = expand_dims(x, tuple(range(len(sizes) - x.tile.rank)))
    for axis, count in enumerate(sizes):
        x = _repeat_axis(x, axis, count)
    return x


def _repeat_axis(x: TileValue, axis: int, count: int) -> TileValue:
    if count == 1:
        return x
    if x.tile.shape[axis].is_one:
        return broadcast_to(x, with_dim(x.tile.shape, axis, Dim.of(count)))
    _moved_size(x, axis, "repeat")
    return flatten(_along_new_axis(x, axis, count), axis, axis + 1)


def _along_new_axis(x: TileValue, axis: int, count: int) -> TileValue:
    apart = expand_dims(x, (axis,))
    return broadcast_to(apart, with_dim(apart.tile.shape, axis, Dim.of(count)))


def tile(x: TileValue, *dims: Any) -> TileValue:
    """``torch.tile``: like ``repeat``; counts for leading axes may be left out."""
    dims = one_by_one(dims)
    return repeat(x, *[1] * (x.tile.rank - len(dims)), *dims)


def repeat_interleave(x: TileValue, repeats: Any, dim: int | None = None, **_: Any) -> TileValue:
    """``torch.repeat_interleave``: every element that many times in a row."""
    if not isinstance(repeats, int):
        raise unsupported_argument("torch.repeat_interleave", "a tensor of counts")
    if dim is None:
        x, dim = flatten(x), 0
    axis = resolve_axis(x, dim, "repeat_interleave")
    if repeats == 1:
        return x
    return flatten(_along_new_axis(x, axis + 1, repeats), axis, axis + 1)


def unfold(x: TileValue, dimension: int, size: int, step: int) -> TileValue:
    """``Tensor.unfold``: windows of an axis, with a new last axis inside of each."""
    axis = resolve_axis(x, dimension, "unfold")
    whole = _moved_size(x, axis, "unfold")
    count = (whole - size) // step + 1
    if not 0 < size <= whole:
        raise invalid_value("unfold", f"windows of {size} in an axis of {whole}")
    windows = (Dim.of(count), Dim.of(size))
    first, inner = (positions_in(windows, i) for i in (0, 1))
    positions = flatten(apply("add", apply("mul", first, step), inner))
    taken = gather(x, along(positions, axis, x.tile.rank), axis)
    shape = (*x.tile.shape[:axis], *windows, *x.tile.shape[axis + 1 :])
    return move_axes(reshape(taken, shape), axis + 1, -1)


# --- diagonals ------------------------------------------------------------------------------------


def _keep_where(comparison: str, x: TileValue, shape: Shape, offset: int) -> TileValue:
    """``x`` where the column compares so with the row of a matrix, elsewhere 0."""
    rows, columns = (positions_in(shape, len(shape) + axis) for axis in (-2, -1))
    limit = apply("add", rows, offset) if offset else rows
    return select_lanes(apply(comparison, columns, limit), x, 0)


def triangle(x: TileValue, diagonal: int = 0, *, comparison: str) -> TileValue:
    """``torch.tril``, ``torch.triu``."""
    if x.tile.rank < 2:
        raise invalid_value("tril/triu", "a matrix is expected")
    return _keep_where(comparison, x, x.tile.shape, diagonal)


def diagonal(x: TileValue, offset: int = 0, dim1: int = 0, dim2: int = 1) -> TileValue:
    """``torch.diagonal`` of two constant axes."""
    x = move_axes(x, (dim1, dim2), (-2, -1))
    rank = x.tile.rank
    rows, columns = (constant_size(x, rank + axis, "torch.diagonal") for axis in (-2, -1))
    top, left = max(-offset, 0), max(offset, 0)
    length = max(0, min(rows - top, columns - left))
    x = take_range(x, rank - 2, range(top, top + length))
    if not length:
        return reshape(x, x.tile.shape[:-1])
    positions = positions_in((*x.tile.shape[:-1], ONE), rank - 2)
    found = gather(x, apply("add", positions, left) if left else positions, rank - 1)
    return pick(found, rank - 1, 0)


def diagonal_matrix(x: TileValue, offset: int = 0) -> TileValue:
    """``torch.diag_embed``: the last axis along the diagonal of a matrix of zeros."""
    size = constant_size(x, x.tile.rank - 1, "torch.diag_embed")
    whole = Dim.of(size + abs(offset))
    shape = (*x.tile.shape[:-1], whole, whole)
    padded = pad(x, (max(offset, 0), max(-offset, 0)))
    return _keep_where("eq", expand_dims(padded, (x.tile.rank - 1,)), shape, offset)


def diag(x: TileValue, diagonal_: int = 0, **named: int) -> TileValue:
    """``torch.diag``: a line becomes a matrix, a matrix a line."""
    offset = named.get("diagonal", diagonal_)
    return diagonal_matrix(x, offset) if x.tile.rank == 1 else diagonal(x, offset)


SUBSCRIPTS: dict[str, Rule] = {"subscript": subscript, "select": select}
MOVES: dict[str, Rule] = {
    "flip": flip, "fliplr": lambda x: flip(x, 1), "flipud": lambda x: flip(x, 0),
    "roll": roll, "pad": pad, "repeat": repeat, "tile": tile,
    "repeat_interleave": repeat_interleave, "unfold": unfold,
    "tril": partial(triangle, comparison="le"), "triu": partial(triangle, comparison="ge"),
    "diagonal": diagonal, "diag": diag, "diag_embed": diagonal_matrix,
}  # fmt: skip
