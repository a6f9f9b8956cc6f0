"""Grows accesses that several lanes share or that go astray: atomics, hostile indices, orders."""

from __future__ import annotations

import torch

from tests.fuzzing.choices import chance, pick
from tests.fuzzing.grow_statements import dim_of, gather, loaded, own_position
from tests.fuzzing.grow_typed import typed_value
from tests.fuzzing.program import Grown, Value
from tests.fuzzing.scope import Scope, Workshop
from tests.fuzzing.statements import Compute, Load, Position, Reduce, Store

ATOMIC_TYPES = (torch.int32, torch.int64, torch.float32, torch.float64)
SCATTERED = (torch.int32, torch.float32, torch.int64, torch.int32)
"""Mostly integers, which have more kinds of updates."""
ATOMICS = ("add", "max", "min", "and", "or", "xor")


def grow_atomic(shop: Workshop, scope: Scope) -> Grown:
    """Updates of places that several lanes or programs share."""
    tiles = [axis for axis in scope.own if axis in scope.tiles]
    # A value without an axis of tiles would be added once for every tile of it.
    whole = [v for v in scope.values if v.dtype in ATOMIC_TYPES]
    whole = [v for v in whole if scope.merged.keys().isdisjoint(v.axes)]
    fitting = [v for v in whole if set(tiles) <= set(v.axes)]
    if not tiles:
        return []
    loads: Grown = []
    if fitting:
        value = pick(shop.choices, fitting)
    else:
        loads, value = typed_value(shop, scope, pick(shop.choices, SCATTERED), tuple(tiles))
    dim = next(n for n, axis in enumerate(value.axes) if axis in tiles)
    if value.dtype.is_floating_point or chance(shop.choices, 75):
        return [*loads, *_scatter(shop, scope, value, value.axes[dim])]
    rest = value.axes[:dim] + value.axes[dim + 1 :]
    part = shop.value(torch.int64, rest)
    spec = shop.new_output(tuple(dim_of(scope, axis) for axis in rest), torch.int64)
    positions = tuple(own_position(scope, axis) for axis in rest)
    return [
        *loads,
        Reduce(part, "sum", value, dim),
        Store(spec.name, positions, part, rest, atomic="add"),
    ]


def _scatter(shop: Workshop, scope: Scope, value: Value, tile: str) -> Grown:
    before: Grown = []
    position, _ = gather(shop, tile, scope.tiles[tile], limit := 5, before)
    positions = tuple(
        position if axis == tile else own_position(scope, axis) for axis in value.axes
    )
    dims = tuple(limit if axis == tile else dim_of(scope, axis) for axis in value.axes)
    spec = shop.new_output(dims, value.dtype)
    kind = "add" if value.dtype.is_floating_point else pick(shop.choices, ATOMICS)
    return [*before, Store(spec.name, positions, value, value.axes, atomic=kind)]


def grow_hostile_load(shop: Workshop, scope: Scope) -> Grown:
    """A gather by indices of which many are out of range, with a mask that leaves them out."""
    inputs = [
        spec
        for spec in shop.inputs
        if all(isinstance(dim, str) and shop.sizes[dim] for dim in spec.dims)
    ]
    tiles = list(scope.tiles)
    if not inputs or not tiles:
        return []
    spec, tile = pick(shop.choices, inputs), pick(shop.choices, tiles)
    place = shop.choices.below(len(spec.dims))
    limit = str(spec.dims[place])
    index = shop.new_index(scope.tiles[tile], limit, "hostile")
    where, low, high, mask = (
        shop.value(dtype, (tile,)) for dtype in (index.dtype, torch.bool, torch.bool, torch.bool)
    )
    positions = tuple(
        Position("gather", where.name) if n == place else Position("number", f"{dim} - 1")
        for n, dim in enumerate(spec.dims)
    )
    return [
        Load(where, index.name, (Position("tile", tile),)),
        Compute(low, ">=", (where, "0"), torch.bool),
        Compute(high, "<", (where, limit), torch.bool),
        Compute(mask, "and", (low, high), torch.bool),
        *loaded(shop, scope, spec, positions, (tile,), mask),
    ]


def grow_ordered_store(shop: Workshop, scope: Scope) -> Grown:
    """A store to places in an order that a tensor gives, each of them once."""
    values = [v for v in reversed(scope.values) if set(v.axes) & set(scope.tiles)]
    values = [v for v in values if scope.merged.keys().isdisjoint(v.axes)]
    # What a loop over numbers stores would be stored by each of its turns.
    if not values or any(axis not in scope.own for axis in scope.counts):
        return []
    value = pick(shop.choices, values)
    axes = (*scope.own, *(axis for axis in value.axes if axis not in scope.own))
    tile = next(axis for axis in axes if axis in scope.tiles)
    index = shop.new_index(scope.tiles[tile], scope.tiles[tile], "order")
    where = shop.value(index.dtype, (tile,))
    positions = tuple(
        Position("gather", where.name) if axis == tile else own_position(scope, axis)
        for axis in axes
    )
    spec = shop.new_output(tuple(dim_of(scope, axis) for axis in axes), value.dtype)
    kept = tuple(axis for axis in axes if axis not in scope.counts)
    return [
        Load(where, index.name, (Position("tile", tile),)),
        Store(spec.name, positions, value, kept),
    ]
