"""Which lanes count where a tile is jagged: those within the length of their own row.

That follows from the axes of a value: where the jagged axis and all axes of the lengths meet, lanes
past their length are masked in memory accesses and reset before lanes mix.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import tilesmith.exc as errors
from tilesmith.frontend.tracing import emission
from tilesmith.frontend.tracing.tracer import current_tracer
from tilesmith.frontend.tracing.values import TileValue, shape_text
from tilesmith.ir.types import Dim, Shape


def valid_lanes(shape: Shape) -> TileValue | None:
    """Which lanes of a value of that shape lie within their lengths; None if all do.

    It broadcasts to the shape.
    """
    factors = _factors(shape)
    mask: TileValue | None = None
    for tile in _jagged_tiles(factors):
        if _lacks(tile, factors):
            continue
        for position, dim in enumerate(factors):
            if dim == tile.dim:
                within = _within(tile, position, factors)
                mask = within if mask is None else emission.apply("and", mask, within)
    if mask is None or factors == shape:
        return mask
    return emission.reshape(emission.broadcast_to(mask, factors), shape)


def access_mask(shape: Shape, *, writes: bool) -> TileValue | None:
    """As ``valid_lanes``, for an access of memory; what is written needs the lengths' axes."""
    if writes:
        _require_lengths(shape, shape, "stored")
    return valid_lanes(shape)


def reset_lanes(x: TileValue, axes: Iterable[int], fill: emission.Number) -> TileValue:
    """``x`` with ``fill`` in the lanes past their lengths, if lanes along ``axes`` are to mix."""
    shape = x.tile.shape
    mixed = _factors(tuple(shape[axis] for axis in axes))
    _require_lengths(shape, mixed, "combined along `{axis}`")
    return keep_lanes(x, mixed, fill)


def keep_lanes(x: TileValue, mixed: Shape, fill: emission.Number) -> TileValue:
    """As ``reset_lanes`` by dimensions, for values that may lack the axes of the lengths."""
    if not has_jagged_axes(x.tile.shape, mixed):
        return x
    mask = valid_lanes(x.tile.shape)
    if mask is None:
        return x
    result = emission.apply("where", mask, x, fill, dtype=x.tile.dtype)
    result.is_reduced = x.is_reduced
    return result


def has_jagged_axes(shape: Shape, mixed: Shape) -> bool:
    """Whether mixing lanes along ``mixed`` lets those past a length meet those within."""
    factors = _factors(shape)
    return any(
        tile.dim in mixed or any(dim in mixed for dim in tile.lengths.tile.shape)
        for tile in _jagged_tiles(factors)
    )


def _factors(shape: Shape) -> Shape:
    """The shape with products of dimensions taken apart."""
    if all(len(dim.factors) <= 1 for dim in shape):
        return shape
    return tuple(part for dim in shape for part in map(Dim.of, dim.factors or (1,)))


def _jagged_tiles(factors: Shape) -> Iterator[Any]:
    for region in current_tracer("hl.jagged_tile").regions:
        for tile in region.tiles.values():
            if tile.lengths is not None and tile.dim in factors:
                yield tile


def _lacks(tile: Any, factors: Shape) -> bool:
    return any(dim not in factors for dim in tile.lengths.tile.shape)


def _require_lengths(shape: Shape, mixed: Shape, use: str) -> None:
    factors = _factors(shape)
    for tile in _jagged_tiles(factors):
        if tile.dim in _factors(mixed) and _lacks(tile, factors):
            raise errors.InvalidJaggedTileUsage(
                problem=f"a value of shape {shape_text(shape)} is {use.format(axis=tile.block)} "
                f"without the axes {shape_text(tile.lengths.tile.shape)} of the lengths"
            )


def _within(tile: Any, position: int, factors: Shape) -> TileValue:
    """``index < length``, with axes of size 1 where neither has one."""
    lengths = tile.lengths
    index = emission.cast(tile.index, lengths.tile.dtype)
    others = tuple(axis for axis in range(len(factors)) if axis != position)
    places = [factors.index(dim) for dim in lengths.tile.shape]
    ordered = emission.permute(lengths, tuple(sorted(range(len(places)), key=places.__getitem__)))
    missing = tuple(axis for axis in range(len(factors)) if axis not in places)
    return emission.apply(
        "lt", emission.expand_dims(index, others), emission.expand_dims(ordered, missing)
    )


def lengths_along(shape: Shape, axes: tuple[int, ...]) -> bool:
    """Whether the number of valid lanes along ``axes`` differs from lane to lane."""
    mixed = _factors(tuple(shape[axis] for axis in axes))
    return has_jagged_axes(shape, mixed) and valid_lanes(shape) is not None
