"""Scans, and elements combined by a function of the user's own.

``torch.cumsum`` and its like, ``hl.cumsum``, ``hl.reduce``, ``hl.associative_scan``. Combinations
that are plain sums, products and extremes become the ops of ``torch.sum`` and its like.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tilesmith.diagnostics.kernel_warnings import ReduceIdentityNotGiven
from tilesmith.diagnostics.wording import kind_of
from tilesmith.dtypes import BOOL, I32, I64, DType
from tilesmith.frontend.functions.combine_functions import (
    REDUCE,
    SCAN,
    Combination,
    CombineCall,
    trace_combination,
)
from tilesmith.frontend.functions.shape import resolve_axis
from tilesmith.frontend.language.jagged import reset_lanes
from tilesmith.frontend.language.parameter_names import also_named
from tilesmith.frontend.refusals import invalid_kind, invalid_value
from tilesmith.frontend.tracing import emission
from tilesmith.frontend.tracing.emission import reduce as reduce_by_kind
from tilesmith.frontend.tracing.tracer import current_tracer, locate
from tilesmith.frontend.tracing.values import TileValue, ValuesAndIndices
from tilesmith.interpreter.torch_dtypes import from_torch
from tilesmith.ir.ops.reduction import KINDS_BY_FUNCTION, ReduceKind, ReduceWith, Scan, ScanWith
from tilesmith.ir.types import Value


def scan(x: TileValue, dim: Any, kind: ReduceKind, *, reverse: bool = False) -> TileValue:
    """Each element combined with those before it; sums and products of half types in fp32."""
    axis = resolve_axis(x, dim, f"cum{kind.value}")
    is_exact = kind in (ReduceKind.MAX, ReduceKind.MIN)
    # Bools are ordered like the integers 0 and 1.
    dtype = I32 if x.tile.dtype.is_bool else x.tile.dtype
    wide = emission.cast(x, dtype if is_exact else dtype.computed)
    wide = reset_lanes(wide, (axis,), kind.identity(wide.tile.dtype))
    fields = {"axis": axis, "kind": kind.value, "reverse": bool(reverse)}
    running = emission.emit(Scan, wide.tile, x=wide.value, is_reduced=x.is_reduced, **fields)
    return emission.cast(running, x.tile.dtype)


def _cumulative(x: TileValue, dim: Any, *, dtype: Any = None, kind: ReduceKind) -> TileValue:
    """``torch.cumsum``/``torch.cumprod``: integers and bools in int64."""
    natural = x.tile.dtype if x.tile.dtype.is_float else I64
    result = natural if dtype is None else from_torch(dtype)
    if not x.tile.rank and dim in (0, -1):
        return emission.cast(x, result)
    return emission.cast(scan(emission.cast(x, result.computed), dim, kind), result)


def _cumulative_extreme(x: TileValue, dim: Any, *, kind: ReduceKind) -> ValuesAndIndices:
    """``torch.cummax``/``torch.cummin``: of equal elements the last position, as in eager."""
    if not x.tile.rank and dim in (0, -1):
        return ValuesAndIndices(x, emission.full(0, I64))
    axis = resolve_axis(x, dim, f"cum{kind.value}")
    values = scan(x, axis, kind)
    is_new = emission.apply("eq", x, values)
    if x.tile.dtype.is_float:
        is_new = emission.apply(
            "or", is_new, emission.apply("isnan", emission.cast(x, x.tile.dtype.computed))
        )
    index = emission.positions_in(x.tile.shape, axis)
    positions = scan(emission.apply("where", is_new, index, 0, dtype=I32), axis, ReduceKind.MAX)
    return ValuesAndIndices(values, emission.cast(positions, I64))


@also_named(x="input_tensor", input="input_tensor")
def cumsum(input_tensor: TileValue, dim: int, reverse: bool = False) -> TileValue:
    """Running sum along ``dim``, of the type of the input (bools are counted in int64).

    Example:
        ``out[t, :] = hl.cumsum(x[t, :], dim=1, reverse=True)``
    """
    return scan(_summable(input_tensor, "hl.cumsum"), dim, ReduceKind.SUM, reverse=reverse)


@also_named(x="input_tensor", input="input_tensor")
def cumprod(input_tensor: TileValue, dim: int, reverse: bool = False) -> TileValue:
    """Running product along ``dim``, of the type of the input (of bools in int64).

    Example:
        ``out[t, :] = hl.cumprod(x[t, :], dim=1)``
    """
    return scan(_summable(input_tensor, "hl.cumprod"), dim, ReduceKind.PROD, reverse=reverse)


def _summable(x: Any, function: str) -> TileValue:
    current_tracer(function)
    tile = emission.device_value(x, function)
    return emission.cast(tile, I64) if tile.tile.dtype.is_bool else tile


SCANS: dict[str, emission.Rule] = {
    "cumsum": partial(_cumulative, kind=ReduceKind.SUM),
    "cumprod": partial(_cumulative, kind=ReduceKind.PROD),
    "cummax": partial(_cumulative_extreme, kind=ReduceKind.MAX),
    "cummin": partial(_cumulative_extreme, kind=ReduceKind.MIN),
}

_KINDS_OF_BOOLS = {
    **dict.fromkeys(("add", "or", "maximum"), ReduceKind.ANY),
    **dict.fromkeys(("mul", "and", "minimum"), ReduceKind.ALL),
}
"""Of bools, what a reduction by that scalar function is."""

Tiles = tuple[TileValue, ...]


class _Default(int):
    """The number 0 where nobody wrote it."""


_ZERO = _Default(0)


@also_named(input="input_tensor")
def reduce(
    combine_fn: Callable[..., Any],
    input_tensor: Any,
    dim: int | None = None,
    other: Any = _ZERO,
    keep_dims: bool = False,
) -> Any:
    """Combine all elements along ``dim`` (all there are for None); the type stays.

    The input is a tensor, or a tuple of them that ``combine_fn`` combines together; it takes two
    elements, two tuples of them, or all elements one by one, and is associative and commutative.
    ``other`` is its identity, or one for each tensor.

    Example:
        ``best, place = hl.reduce(larger, (x[t, :], index), dim=1, other=(float("-inf"), 0))``
    """
    call = CombineCall(combine_fn, REDUCE, isinstance(input_tensor, (tuple, list)))
    tiles = _checked(input_tensor, REDUCE)
    others = _others_of(other, tiles)
    rank = tiles[0].tile.rank
    axes = list(reversed(range(rank))) if dim is None else [resolve_axis(tiles[0], dim, "reduce")]
    for axis in axes:
        tiles = _reduce_with(call, tiles, axis, others)
    if keep_dims:
        tiles = tuple(emission.expand_dims(tile, tuple(sorted(axes))) for tile in tiles)
    return tiles if call.is_tuple else tiles[0]


@also_named(input="input_tensor")
def associative_scan(
    combine_fn: Callable[..., Any], input_tensor: Any, dim: int, reverse: bool = False
) -> Any:
    """Each element combined with those before it along ``dim``, or in reverse with those after it.

    The input and ``combine_fn`` are as in ``hl.reduce``; the order of elements is kept.

    Example:
        ``out[t, :] = hl.associative_scan(torch.maximum, x[t, :], dim=1)``
    """
    call = CombineCall(combine_fn, SCAN, isinstance(input_tensor, (tuple, list)))
    tiles = _checked(input_tensor, SCAN)
    axis = resolve_axis(tiles[0], dim, "associative_scan")
    found = trace_combination(call, _dtypes(tiles))
    kind = KINDS_BY_FUNCTION.get(found.scalar_function or "")
    if kind is not None:
        results: Tiles = (scan(tiles[0], axis, kind, reverse=reverse),)
    else:
        results = _scan_with(call, found, tiles, {"axis": axis, "reverse": bool(reverse)})
    return results if call.is_tuple else results[0]


def torch_associative_scan(
    combine_fn: Callable[..., Any],
    xs: Any,
    dim: int,
    reverse: bool = False,
    combine_mode: str = "pointwise",
) -> Any:
    """Torch's function of that name, in device code."""
    return associative_scan(combine_fn, xs, dim, reverse)


def language_form(value: Any) -> Any:
    """What stands in device code for a function of torch that proxies cannot intercept."""
    is_scan = getattr(value, "__name__", "") == "associative_scan"
    module = str(getattr(value, "__module__", ""))
    return torch_associative_scan if is_scan and module.partition(".")[0] == "torch" else value


def _checked(input: Any, function: str) -> Tiles:
    current_tracer(function)
    items: list[Any] = list(input) if isinstance(input, (tuple, list)) else [input]  # pyright: ignore[reportUnknownArgumentType]
    for item in items:
        emission.device_value(item, function)
    if not items:
        raise invalid_value(function, "an empty tuple of tensors")
    shape = emission.broadcast_shapes(items)
    return tuple(emission.broadcast_to(item, shape) for item in items)


def _others_of(other: Any, tiles: Tiles) -> tuple[emission.Number, ...] | None:
    """One number for each tensor; None if nobody said."""
    if other is _ZERO:
        return None
    given: list[Any] = list(other) if isinstance(other, (tuple, list)) else [other] * len(tiles)  # pyright: ignore[reportUnknownArgumentType]
    if len(given) != len(tiles):
        raise invalid_value(
            REDUCE, f"`other` has {len(given)} values, but the number of tensors is {len(tiles)}"
        )
    for item in given:
        if not isinstance(item, (int, float)):
            raise invalid_kind(REDUCE, f"`other` is {kind_of(item)}, no number")
    return tuple(emission.as_constant(item, tile.tile.dtype) for item, tile in zip(given, tiles))


def _dtypes(tiles: Tiles) -> tuple[DType, ...]:
    return tuple(tile.tile.dtype for tile in tiles)


def _scan_with(
    call: CombineCall, found: Combination, tiles: Tiles, fields: dict[str, Any]
) -> Tiles:
    flags = _lanes_within_lengths(tiles, fields["axis"])
    if flags is None:
        return _emit(ScanWith, found, tiles, fields)
    flagged = trace_combination(call, _dtypes(tiles), is_flagged=True)
    return _emit(ScanWith, flagged, (*tiles, flags), fields)[:-1]


def _reduce_with(
    call: CombineCall, tiles: Tiles, axis: int, others: tuple[emission.Number, ...] | None
) -> Tiles:
    dtypes = _dtypes(tiles)
    found = trace_combination(call, dtypes)
    zeros = tuple(emission.as_constant(0, dtype) for dtype in dtypes)
    is_sum = others is None and not found.captured and found.is_identity(zeros)
    if others is None and not found.captured and not is_sum:
        current_tracer(REDUCE).warn(ReduceIdentityNotGiven, function=found.name)
    kinds = _KINDS_OF_BOOLS if dtypes[0].is_bool else KINDS_BY_FUNCTION
    kind = kinds.get(found.scalar_function or "")
    if kind is not None and (others is None or others[0] == kind.identity(dtypes[0])):
        return (_reduce_by_kind(tiles[0], axis, kind),)
    if found.captured:
        # Lanes that hold something else would change what the function reads from outside.
        others = None
    elif is_sum:
        others = zeros
    fields = {"axis": axis, "others": others}
    if others is not None:
        tiles = tuple(reset_lanes(tile, (axis,), fill) for tile, fill in zip(tiles, others))
        return _emit(ReduceWith, found, tiles, fields)
    flags = _lanes_within_lengths(tiles, axis)
    if flags is None:
        return _emit(ReduceWith, found, tiles, fields)
    flagged = trace_combination(call, dtypes, is_flagged=True)
    *results, is_any = _emit(ReduceWith, flagged, (*tiles, flags), fields)
    return tuple(emission.select(is_any, x, 0) for x in results)


def _lanes_within_lengths(tiles: Tiles, axis: int) -> TileValue | None:
    """Which lanes count, where lanes past the lengths of a jagged tile would meet others."""
    shape = tiles[0].tile.shape
    every = emission.full(True, BOOL, shape)
    kept = reset_lanes(every, (axis,), False)
    return None if kept is every else kept


def _reduce_by_kind(x: TileValue, axis: int, kind: ReduceKind) -> TileValue:
    """Sums and products of half types in fp32, as everywhere."""
    dtype = x.tile.dtype
    is_sum = kind in (ReduceKind.SUM, ReduceKind.PROD)
    wide = emission.cast(x, dtype.computed) if is_sum else x
    wide = reset_lanes(wide, (axis,), kind.identity(wide.tile.dtype))
    return emission.cast(reduce_by_kind(wide, axis, kind), dtype)


def _emit(
    cls: type[ReduceWith] | type[ScanWith], found: Combination, tiles: Tiles, fields: dict[str, Any]
) -> Tiles:
    """One op over the tensors and what the combination reads from outside."""
    shape, axis, loc = tiles[0].tile.shape, fields["axis"], locate()
    captured = [emission.broadcast_to(TileValue(value), shape).value for value in found.captured]
    xs = (*(tile.value for tile in tiles), *captured)
    is_reduced = cls is ReduceWith
    left = shape[:axis] + shape[axis + 1 :] if is_reduced else shape
    results = tuple(Value(x.tile.with_shape(left), "", loc) for x in xs)
    op = cls(xs=xs, combine=found.region, results=results, loc=loc, **fields)
    current_tracer(found.name).builder.insert(op)
    return tuple(
        TileValue(result, is_reduced=is_reduced or tile.is_reduced)
        for result, tile in zip(results, tiles)
    )


def logcumsumexp(x: TileValue, dim: Any) -> TileValue:
    """The logarithm of the running sum of exponentials; each pair around its own maximum."""
    if not x.tile.rank:
        return x
    wide = emission.cast(x, x.tile.dtype.computed)
    return emission.cast(associative_scan(lambda a, b: a.logaddexp(b), wide, dim), x.tile.dtype)


RUNNING_LOGS: dict[str, emission.Rule] = {"logcumsumexp": logcumsumexp}
