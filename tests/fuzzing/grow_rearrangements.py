"""Grows statements that move elements: axes merged and split, elements sorted."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tests.fuzzing.choices import chance, pick
from tests.fuzzing.program import Grown, Value
from tests.fuzzing.rearrangements import Reshape, Sort
from tests.fuzzing.scope import Scope, Workshop

MAX_RANK = 3


def grow_reshape(shop: Workshop, scope: Scope) -> Grown:
    """Two neighbouring axes as one, or one as two."""
    values = [v for v in reversed(scope.values) if v.axes and _has_known_sizes(shop, scope, v)]
    if not values:
        return []
    value = pick(shop.choices, values)
    ways: list[Callable[[], Reshape]] = []
    for dim, axis in enumerate(value.axes):
        if dim + 1 < len(value.axes):
            ways.append(lambda dim=dim: _merge(shop, scope, value, dim))
        if axis in scope.merged:
            ways.append(lambda: unmerged(shop, scope, _apart(shop, scope, value), value))
        elif axis not in scope.tiles and len(value.axes) < MAX_RANK:
            ways.append(lambda dim=dim: _split(shop, scope, value, dim))
    return [pick(shop.choices, ways)()] if ways else []


def _has_known_sizes(shop: Workshop, scope: Scope, value: Value) -> bool:
    return shop.is_static or all(axis in scope.tiles for axis in scope.parts(value.axes))


def _apart(shop: Workshop, scope: Scope, value: Value) -> Value:
    return scope.add(shop.value(value.dtype, scope.parts(value.axes)))


def unmerged(shop: Workshop, scope: Scope, result: Value, value: Value) -> Reshape:
    """A value with all its merged axes apart again."""
    return Reshape(result, value, _sizes(shop, scope, result.axes))


def _merge(shop: Workshop, scope: Scope, value: Value, dim: int) -> Reshape:
    parts = scope.parts(value.axes[dim : dim + 2])
    before, after = value.axes[:dim], value.axes[dim + 2 :]
    merged: tuple[tuple[str, tuple[str, ...]], ...] = ()
    if all(scope.is_whole(part) for part in parts):
        axis = shop.whole(shop.elements(scope, parts), (*before, *after))
    else:
        axis = shop.name("w")
        scope.merged[axis] = parts
        merged = ((axis, parts),)
    axes = (*before, axis, *after)
    text = _sizes(shop, scope, axes)
    if chance(shop.choices, 30):
        text = f"flatten({dim}, {dim + 1})"
    return Reshape(scope.add(shop.value(value.dtype, axes)), value, text, merged)


def _split(shop: Workshop, scope: Scope, value: Value, dim: int) -> Reshape:
    size = shop.sizes[value.axes[dim]]
    pairs = [(n, size // n) for n in range(2, size) if size % n == 0]
    first, second = pick(shop.choices, [*pairs, (size, 1), (1, size)])
    before, after = value.axes[:dim], value.axes[dim + 1 :]
    left = shop.whole(first, (*before, *after))
    right = shop.whole(second, (*before, left, *after))
    axes = (*before, left, right, *after)
    text = _sizes(shop, scope, axes)
    if chance(shop.choices, 30):
        text = f"unflatten({dim}, ({first}, {second}))"
    return Reshape(scope.add(shop.value(value.dtype, axes)), value, text)


def _sizes(shop: Workshop, scope: Scope, axes: tuple[str, ...]) -> str:
    texts = [_size(shop, scope, axis) for axis in axes]
    # Nothing tells what -1 stands for where there are no elements.
    if shop.elements(scope, axes) and chance(shop.choices, 30):
        texts[shop.choices.below(len(texts))] = "-1"
    return f"{pick(shop.choices, ('reshape', 'view'))}({', '.join(texts)})"


def _size(shop: Workshop, scope: Scope, axis: str) -> str:
    if axis in scope.merged:
        parts = scope.merged[axis]
        texts = [f"{x}.block_size" if x in scope.tiles else str(shop.sizes[x]) for x in parts]
        return " * ".join(texts)
    return axis if axis in scope.tiles else str(shop.sizes[axis])


def grow_sort(shop: Workshop, scope: Scope) -> Grown:
    """Elements along a whole dimension in order, or the first of them."""
    options = scope.whole_axes()
    if not options:
        return []
    value, dim = pick(shop.choices, options)
    size, count, axes = shop.sizes[value.axes[dim]], None, value.axes
    # Most programs leave sizes open and can only sort.
    if shop.is_static and size and chance(shop.choices, 80):
        count = 1 + shop.choices.below(min(size, 9))
        others = axes[:dim] + axes[dim + 1 :]
        axes = (*axes[:dim], shop.whole(count, others), *axes[dim + 1 :])
    values = scope.add(shop.value(value.dtype, axes))
    places = scope.add(shop.value(torch.int64, axes))
    return [Sort(values, places, value, dim, count, chance(shop.choices, 50))]
