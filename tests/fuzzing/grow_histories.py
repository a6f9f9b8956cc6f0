"""Grows what happens to one place in turn: loads, stores, updates and exchanges of one tensor.

Such a tensor has data before the kernel runs, so that what is loaded first counts too.
"""

from __future__ import annotations

import torch

from tests.fuzzing.choices import chance, pick
from tests.fuzzing.exchanges import CHOSEN, Exchange
from tests.fuzzing.grow_memory import ATOMIC_TYPES, ATOMICS
from tests.fuzzing.grow_statements import (
    LITERALS,
    MAX_ELEMENTS,
    dim_of,
    find_mask,
    made,
    own_position,
)
from tests.fuzzing.grow_typed import WHOLE
from tests.fuzzing.pointwise import NUMBERS
from tests.fuzzing.program import Grown, TensorSpec, Value
from tests.fuzzing.scope import Scope, Stored, Workshop
from tests.fuzzing.statements import Compute, Create, Load, Store

EVENTS = ("load", "store", "update", "masked", "exchange", "load", "store", "exchange")
UPDATES = ("add", "mul", "sub", "maximum", "minimum")


def open_history(shop: Workshop, scope: Scope) -> Stored:
    """A new tensor that this place of a program owns a part of."""
    axes = list(scope.own)
    free = [dim for dim in WHOLE if dim not in axes]
    if len(axes) < 3 and chance(shop.choices, 40):
        axes.append(pick(shop.choices, free))
    if chance(shop.choices, 20):
        axes.reverse()
    dims = tuple(dim_of(scope, axis) for axis in axes)
    size = 1
    for dim in dims:
        size *= shop.length(dim)
    if size > MAX_ELEMENTS:
        axes, dims = list(scope.own), tuple(dim_of(scope, axis) for axis in scope.own)
    spec = shop.new_changed(dims, pick(shop.choices, pick(shop.choices, (NUMBERS, ATOMIC_TYPES))))
    stored = Stored(spec, tuple(axes), shop.new_alias(spec) if chance(shop.choices, 30) else None)
    scope.stored.append(stored)
    return stored


def reopen(shop: Workshop, scope: Scope) -> None:
    """What a loop before the barrier has written is stored to again: nobody else may load it."""
    found = [(spec, axes) for spec in shop.finished if (axes := _own_axes(scope, spec))]
    if not found:
        return
    spec, axes = pick(shop.choices, found)
    shop.finished = [x for x in shop.finished if spec.name not in (x.name, x.shares)]
    scope.stored.append(Stored(spec, axes))


def _own_axes(scope: Scope, spec: TensorSpec) -> tuple[str, ...]:
    """The axes of a tensor's dimensions, all own ones among them; nothing if they are not."""
    own = list(scope.own)
    axes: list[str] = []
    for dim in spec.dims:
        axis = next((x for x in own if dim_of(scope, x) == dim), str(dim))
        own = [x for x in own if x != axis]
        axes.append(axis)
    return tuple(axes) if not own and len({*axes}) == len(axes) and not spec.shares else ()


def grow_history(shop: Workshop, scope: Scope) -> Grown:
    """A few loads and stores of one place."""
    visible = {*scope.tiles, *scope.counts, *shop.sizes}
    options = [s for s in scope.stored if {*scope.own} <= {*s.axes} <= visible]
    is_new = not options or chance(shop.choices, 40)
    stored = open_history(shop, scope) if is_new else pick(shop.choices, options)
    grown: Grown = []
    for _ in range(2 + shop.choices.below(4)):
        event = pick(shop.choices, EVENTS)
        grown += _event(shop, scope, event, stored.through(shop.choices))
    return grown


def _event(shop: Workshop, scope: Scope, event: str, stored: Stored) -> Grown:
    positions = tuple(own_position(scope, axis) for axis in stored.axes)
    axes = tuple(axis for axis in stored.axes if axis not in scope.counts)
    name, dtype = stored.spec.name, stored.spec.dtype
    if event in ("store", "masked"):
        values = [v for v in reversed(scope.values) if {*v.axes} <= {*axes}]
        if not values:
            return []
        value = pick(shop.choices, values)
        before, mask = _mask(shop, scope, axes) if event == "masked" else ([], None)
        return [*before, Store(name, positions, value, axes, mask)]
    loaded = scope.add(shop.value(dtype, axes))
    load = Load(loaded, name, positions)
    if event == "exchange" and dtype in ATOMIC_TYPES:
        given = [v for v in scope.values[:-1] if v.dtype == dtype and {*v.axes} == {*axes}]
        if given:
            value = pick(shop.choices, given)
            return [Exchange(loaded, _kind(shop, dtype), name, positions, value, axes)]
    if event != "update":
        return [load]
    fitting = [v for v in scope.values if {*v.axes} <= {*axes}]
    other = pick(shop.choices, (pick(shop.choices, LITERALS), pick(shop.choices, fitting)))
    changed = made(shop, scope, pick(shop.choices, UPDATES), [loaded, other])
    if not changed:
        return [load]
    return [load, *changed, Store(name, positions, scope.values[-1], axes)]


def _kind(shop: Workshop, dtype: torch.dtype) -> str:
    if dtype.is_floating_point:
        return pick(shop.choices, ("add", "xchg"))
    assert {*ATOMICS} == {*CHOSEN}
    return pick(shop.choices, (*ATOMICS, "xchg", "cas"))


def _mask(shop: Workshop, scope: Scope, axes: tuple[str, ...]) -> tuple[Grown, Value | None]:
    """A mask that is there, or one of every second element of a tile."""
    tiles = [axis for axis in axes if axis in scope.tiles]
    found = find_mask(shop, scope, axes)
    if not tiles or (found is not None and chance(shop.choices, 50)):
        return [], found
    tile = pick(shop.choices, tiles)
    index, bit = (shop.value(torch.int32, (tile,)) for _ in range(2))
    mask = shop.value(torch.bool, (tile,))
    scope.values.append(mask)
    return [
        Create(index, None),
        Compute(bit, "and", (index, "1"), torch.int32),
        Compute(mask, "==", (bit, pick(shop.choices, ("0", "1"))), torch.bool),
    ], mask
