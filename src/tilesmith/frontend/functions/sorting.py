"""Torch's sorting functions on one op that sorts integers, and lookups among sorted values.

Every element becomes an integer that orders like it, with its position in the low bits: equal
elements keep their order, and positions tell where each one came from. NaN counts as the greatest.
Elements of 64 bits are sorted by their low halves first, then by their high ones. Lookups compare
values with positions or with sorted values: all pairs of them, none of which touches memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, floor
from typing import Any

import tilesmith.exc as errors
from tilesmith.diagnostics.wording import kind_of
from tilesmith.dtypes import F32, I16, I32, I64, ElementKind
from tilesmith.frontend.functions.promotion import common_dtype
from tilesmith.frontend.functions.reduction import require_elements, valid_count
from tilesmith.frontend.functions.shape import flatten, resolve_axis
from tilesmith.frontend.language.jagged import reset_lanes
from tilesmith.frontend.refusals import invalid_kind, unsupported_argument, unsupported_axis
from tilesmith.frontend.tracing.emission import (
    Rule,
    apply,
    as_tile,
    broadcast_to,
    cast,
    expand_dims,
    gather,
    pick,
    positions_in,
    reduce,
    reinterpret,
    select,
    sort_integers,
    spaced_range,
    take_range,
    with_dim,
)
from tilesmith.frontend.tracing.known_sizes import known_count, known_counts
from tilesmith.frontend.tracing.tracer import current_tracer
from tilesmith.frontend.tracing.values import TileValue, ValuesAndIndices, shape_text
from tilesmith.ir.ops.reduction import ReduceKind
from tilesmith.ir.types import Dim

_INTEGER_OF_BITS = {16: I16, 32: I32, 64: I64}
_HALF = 32


@dataclass(frozen=True)
class _Order:
    """Elements in order: what they are and where they came from, in one integer each."""

    packed: TileValue
    shift: int

    def positions(self, kept: TileValue | None = None) -> TileValue:
        """Where the elements came from: all of them, or those kept."""
        return apply("and", self.packed if kept is None else kept, (1 << self.shift) - 1)


def _order(x: TileValue, axis: int, *, descending: bool, count: int = 0) -> _Order:
    """All in order, or the first ``count``."""
    if len(x.tile.shape[axis].factors) > 1:
        operation = f"sorting along the merged axis {x.tile.shape[axis]}"
        raise unsupported_axis(operation, "sort before merging the axes")
    key = _ordered_integer(x)
    if descending:
        key = apply("xor", key, -1)
    if key.tile.dtype == I64:
        return _order_of_wide(key, axis, count)
    # Key and position share an integer: 16 bits each where both fit, else 32.
    size = x.tile.shape[axis].constant
    is_short = size is not None and size <= 1 << 16
    # 8-bit floats are compared in fp32.
    is_narrow = x.tile.dtype.bits == 16 or (x.tile.dtype.bits < 16 and not x.tile.dtype.is_float)
    return _sorted(key, axis, 16 if is_short and is_narrow else _HALF, count)


def _sorted(key: TileValue, axis: int, shift: int, count: int = 0) -> _Order:
    """Sort keys of ``shift`` bits."""
    dtype = I32 if shift == 16 else I64
    # Lanes past the lengths of a jagged tile come last; their own positions stay valid ones.
    key = reset_lanes(key, (axis,), (1 << (shift - 1)) - 1)
    high = apply("shl", cast(key, dtype), shift)
    positions = cast(positions_in(key.tile.shape, axis), dtype)
    return _Order(sort_integers(apply("or", high, positions), axis, count), shift)


def _order_of_wide(key: TileValue, axis: int, count: int) -> _Order:
    """By the low halves, then by the high ones: the second sort keeps what the first one did."""
    low = apply("sub", apply("and", key, (1 << _HALF) - 1), 1 << (_HALF - 1))
    once = _sorted(low, axis, _HALF).positions()
    high = gather(apply("shr", key, _HALF), once, axis)
    twice = _sorted(high, axis, _HALF, count)
    return _Order(gather(once, twice.positions(), axis), _HALF)


def _ordered_integer(x: TileValue) -> TileValue:
    """Integers in the order of the elements, as wide as they are but at least of 32 bits."""
    dtype = x.tile.dtype
    if dtype.is_float:
        return _of_float(cast(x, F32) if dtype.bits == 8 else x)
    if dtype.kind is not ElementKind.UNSIGNED or dtype.bits < 16:
        return cast(x, I32) if dtype.bits < 32 else x
    if dtype.bits == 16:
        return apply("sub", cast(x, I32), 1 << 15)
    signed = reinterpret(x, _INTEGER_OF_BITS[dtype.bits])
    return apply("xor", signed, int(signed.tile.dtype.lowest))


def _of_float(x: TileValue) -> TileValue:
    """Sign and magnitude as one number; zeros are equal, and so are NaNs."""
    bits = x.tile.dtype.bits
    held = reinterpret(x, _INTEGER_OF_BITS[bits])
    held = cast(held, I32) if bits < 32 else held
    greatest = (1 << (bits - 1)) - 1
    mirrored = apply("xor", held, greatest)
    key = select(apply("lt", held, 0), mirrored, held)
    key = select(apply("eq", x, 0), 0, key)
    return select(_is_nan(x), greatest, key)


def _is_nan(x: TileValue) -> TileValue:
    return apply("isnan", cast(x, x.tile.dtype.computed))


def _check_count(x: TileValue, axis: int, function: str, k: int, lowest: int) -> None:
    """Every tile must hold that many elements; a size that varies is checked at each launch."""
    tracer, dim = current_tracer(function), x.tile.shape[axis]
    size = tracer.sizes[dim.symbol].hint if dim.symbol in tracer.sizes else None
    if size is None:
        size = known_counts(x, axis, function).least
    elif lowest <= k <= size:
        tracer.guards.require(f"({tracer.source_of(str(dim.symbol))}) >= {k}", value=True)
    if not lowest <= k <= size:
        raise errors.InvalidArgumentValue(
            function=function,
            problem=f"k={k} of {size} elements",
            expected=f"k from {lowest} to {size}, the elements along axis {axis} in every tile",
            fix="take fewer, or load more of the axis at once",
        )


def _take(x: TileValue, axis: int, picked: range) -> TileValue:
    """Positions in succession, of any axis that has them."""
    if x.tile.shape[axis].constant is not None or not picked:
        return take_range(x, axis, picked)
    positions = positions_in(with_dim(x.tile.shape, axis, Dim.of(len(picked))), axis)
    return gather(x, apply("add", positions, picked.start), axis)


def _with_values(x: TileValue, axis: int, positions: TileValue) -> ValuesAndIndices:
    return ValuesAndIndices(gather(x, positions, axis), cast(positions, I64))


def sort(
    x: TileValue, dim: int = -1, descending: bool = False, stable: bool = False
) -> ValuesAndIndices:
    """``torch.sort``; equal elements always keep their order."""
    axis = resolve_axis(x, dim, "sort")
    return _with_values(x, axis, _order(x, axis, descending=descending).positions())


def argsort(
    x: TileValue, dim: int = -1, descending: bool = False, stable: bool = False
) -> TileValue:
    """``torch.argsort``; equal elements always keep their order."""
    axis = resolve_axis(x, dim, "argsort")
    return cast(_order(x, axis, descending=descending).positions(), I64)


def topk(
    x: TileValue, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> ValuesAndIndices:
    """``torch.topk``, in order even where that is not asked for."""
    axis = resolve_axis(x, dim, "topk")
    if isinstance(k, bool) or not isinstance(k, int):
        raise errors.ShapeSpecializingCall(value="k of torch.topk")
    order = _order(x, axis, descending=largest, count=max(k, 0))
    if 0 < k <= _least_block(x, axis):
        worst = x.tile.dtype.lowest if largest else x.tile.dtype.highest
        return _first_there_are(x, axis, order, k, worst)
    _check_count(x, axis, "torch.topk", k, lowest=0)
    return _with_values(x, axis, order.positions(_take(order.packed, axis, range(k))))


def _least_block(x: TileValue, axis: int) -> int:
    """The least size of tiles over a range that may vary; -1 where the range is known."""
    tracer = current_tracer("topk")
    block = tracer.find_block(x.tile.shape[axis].symbol)
    if block is None or block.extent is not None or tracer.find_tile(block.name) is None:
        return -1
    return block.fixed or block.low


def _first_there_are(
    x: TileValue, axis: int, order: _Order, k: int, worst: float
) -> ValuesAndIndices:
    """The first of a tile that may have fewer: what it lacks is ``worst``, wherever that is."""
    count = cast(as_tile(valid_count(x, (axis,), keepdim=True)), I32)
    ranks = cast(positions_in(with_dim(x.tile.shape, axis, Dim.of(k)), axis), I32)
    taken = gather(order.packed, apply("minimum", ranks, apply("sub", count, 1)), axis)
    values, places = _with_values(x, axis, order.positions(taken))
    return ValuesAndIndices(select(apply("lt", ranks, count), values, worst), places)


def kthvalue(x: TileValue, k: int, dim: int = -1, keepdim: bool = False) -> ValuesAndIndices:
    """``torch.kthvalue``: counted from 1."""
    axis = resolve_axis(x, dim, "kthvalue")
    _check_count(x, axis, "torch.kthvalue", k, lowest=1)
    order = _order(x, axis, descending=False, count=k)
    positions = order.positions(_take(order.packed, axis, range(k - 1, k)))
    return _drop_axis(_with_values(x, axis, positions), axis, keepdim)


def _drop_axis(found: ValuesAndIndices, axis: int, keepdim: bool) -> ValuesAndIndices:
    return found if keepdim else ValuesAndIndices(*(pick(part, axis, 0) for part in found))


def median(x: TileValue, dim: Any = None, keepdim: bool = False) -> Any:
    """``torch.median``: the lower one of two; NaN where there is one."""
    if dim is None:
        return _median(flatten(x), 0, keepdim=False).values
    return _median(x, resolve_axis(x, dim, "median"), keepdim=keepdim)


def _median(x: TileValue, axis: int, *, keepdim: bool) -> ValuesAndIndices:
    require_elements(x, (axis,), "median")
    size = cast(as_tile(valid_count(x, (axis,), keepdim=True)), I32)
    order = _order(x, axis, descending=False)
    # A jagged row that has ended has no median, but its position must be one of the tile.
    middle = apply("shr", apply("maximum", apply("sub", size, 1), 0), 1)
    if x.tile.dtype.is_float:
        # NaNs come last; where there are any, the first of them is the median.
        nans = reset_lanes(cast(_is_nan(x), I32), (axis,), 0)
        count = expand_dims(reduce(nans, axis, ReduceKind.SUM), (axis,))
        middle = select(apply("gt", count, 0), apply("sub", size, count), middle)
    middle = broadcast_to(middle, with_dim(x.tile.shape, axis, Dim.of(1)))
    positions = order.positions(gather(order.packed, middle, axis))
    return _drop_axis(_with_values(x, axis, positions), axis, keepdim)


def quantile(
    x: TileValue, q: Any, dim: Any = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> TileValue:
    """``torch.quantile`` for one number ``q``; NaN where there is one."""
    is_number = isinstance(q, (int, float)) and not isinstance(q, bool)
    if not is_number or not 0 <= q <= 1 or interpolation not in _INTERPOLATIONS:
        argument = f"q={q!r}" if not is_number or not 0 <= q <= 1 else interpolation
        raise unsupported_argument("torch.quantile", argument)
    x, axis = (flatten(x), 0) if dim is None else (x, resolve_axis(x, dim, "quantile"))
    require_elements(x, (axis,), "quantile")
    place = q * (known_count(x, axis, "torch.quantile") - 1)
    weight = _INTERPOLATIONS[interpolation](place - floor(place))
    values = sort(x, axis).values
    neighbours = (range(n, n + 1) for n in (floor(place), ceil(place)))
    low, high = (pick(_take(values, axis, picked), axis, 0) for picked in neighbours)
    result = _interpolate(low, high, weight)
    has_nan = reduce(_is_nan(x), axis, ReduceKind.ANY)
    result = select(has_nan, float("nan"), result)
    return expand_dims(result, (axis,)) if keepdim and dim is not None else result


def _interpolate(low: TileValue, high: TileValue, weight: float) -> TileValue:
    """Eager's interpolation, which starts from the nearer end."""
    apart = apply("sub", high, low)
    if weight < 0.5:
        return apply("add", low, apply("mul", apart, weight)) if weight else low
    return apply("sub", high, apply("mul", apart, 1 - weight)) if weight != 1 else high


_INTERPOLATIONS: dict[str, Callable[[float], float]] = {
    "linear": lambda part: part,
    "lower": lambda part: 0.0,
    "higher": lambda part: float(part > 0),
    "nearest": lambda part: float(round(part)),
    "midpoint": lambda part: 0.5 * (part > 0),
}
"""The share of the upper neighbour where the quantile lies between two elements."""

SORTS: dict[str, Rule] = {
    "sort": sort, "argsort": argsort, "topk": topk, "kthvalue": kthvalue, "median": median,
    "quantile": quantile,
    "msort": lambda x: sort(x, 0).values,
}  # fmt: skip


def one_hot(x: Any, num_classes: Any = -1) -> TileValue:
    """``F.one_hot``: int64, 1 at the class of each element along a new last axis."""
    x = _integers(x, "torch.nn.functional.one_hot")
    if isinstance(num_classes, bool) or not isinstance(num_classes, int) or num_classes < 1:
        raise errors.ShapeSpecializingCall(
            value="num_classes of torch.nn.functional.one_hot",
            fix="pass the number of classes: one_hot(x, num_classes=10)",
        )
    classes = spaced_range(0, Dim.of(num_classes), 1)
    found = apply("eq", expand_dims(x, (x.tile.rank,)), cast(classes, x.tile.dtype))
    return cast(found, I64)


def _integers(x: Any, function: str) -> TileValue:
    if not isinstance(x, TileValue) or not x.tile.dtype.is_integer:
        found = x.dtype if isinstance(x, TileValue) else kind_of(x)
        raise invalid_kind(function, f"{found}, expected integers")
    return x


def searchsorted(
    sorted_sequence: Any,
    values: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> TileValue:
    """``torch.searchsorted``: how many elements of a sorted row come before each value."""
    if sorter is not None:
        raise unsupported_argument("torch.searchsorted", "sorter=")
    dtype = common_dtype(sorted_sequence, values)
    row, wanted = as_tile(sorted_sequence, dtype), as_tile(values, dtype)
    if row.tile.rank == 1:
        row = expand_dims(row, tuple(range(wanted.tile.rank)))
    elif row.tile.rank == wanted.tile.rank:
        row = expand_dims(row, (row.tile.rank - 1,))
    else:
        raise errors.ShapeMismatch(
            left=shape_text(row.tile.shape),
            right=shape_text(wanted.tile.shape),
            fix="pass one sorted row, or a row for each row of values",
        )
    # Not "less": a NaN among the values comes after all elements, as in eager.
    is_right = right or side == "right"
    beyond = apply("gt" if is_right else "ge", row, expand_dims(wanted, (wanted.tile.rank,)))
    before = cast(apply("not", beyond), I32)
    return cast(before.sum(-1), I32 if out_int32 else I64)


def bucketize(
    input: Any, boundaries: Any, *, out_int32: bool = False, right: bool = False
) -> TileValue:
    """``torch.bucketize``: the bucket of each value between sorted boundaries."""
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


def scatter_add(x: TileValue, dim: int, index: Any, src: Any) -> TileValue:
    """``torch.scatter_add``: each element of ``src`` is added at its position along ``dim``."""
    x, index, src = as_tile(x), _integers(index, "torch.scatter_add"), as_tile(src)
    axis = resolve_axis(x, dim, "scatter_add")
    _check_scattered(x, axis, index, src)
    wide = x.tile.dtype.computed
    # A new axis in front of the one that is added up has the positions of the result.
    places = cast(expand_dims(positions_in(x.tile.shape, axis), (axis + 1,)), index.tile.dtype)
    hits = apply("eq", places, expand_dims(index, (axis,)))
    zero = 0.0 if wide.is_float else 0
    parts = apply("where", hits, expand_dims(cast(src, wide), (axis,)), zero, dtype=wide)
    total = apply("add", cast(x, wide), cast(parts.sum(axis + 1), wide))
    return cast(total, x.tile.dtype)


def _check_scattered(x: TileValue, axis: int, index: TileValue, src: TileValue) -> None:
    if src.tile.dtype != x.tile.dtype:
        given = f"src of {src.dtype} for a value of {x.dtype}"
        raise unsupported_argument("torch.scatter_add", given)
    # Torch allows shorter ones beside the axis too; whose other elements stay is then data.
    wanted = with_dim(x.tile.shape, axis, index.tile.shape[axis])
    if not index.tile.shape == src.tile.shape == wanted:
        raise errors.ShapeMismatch(
            left=shape_text(index.tile.shape),
            right=shape_text(src.tile.shape),
            note=f"both are added to a value of shape {shape_text(x.tile.shape)}",
            fix="give index and src one shape, which may differ from the value along `dim` only",
        )


LOOKUPS: dict[str, Rule] = {
    "one_hot": one_hot, "searchsorted": searchsorted, "bucketize": bucketize,
    "scatter_add": scatter_add,
}  # fmt: skip
