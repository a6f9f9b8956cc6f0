"""Grows statements whose types come first: each function with each type it takes is as likely.

Values of the type are loaded where there are none, so that no type is rare because few values
have it.
"""

from __future__ import annotations

import torch

from tests.fuzzing.choices import chance, pick
from tests.fuzzing.grow_statements import (
    LITERALS,
    MAX_ELEMENTS,
    made,
    reduction_of,
    scan_of,
)
from tests.fuzzing.pointwise import BOOLS, EIGHT_BITS, FUNCTIONS, NUMBERS
from tests.fuzzing.program import Grown, TensorSpec, Value
from tests.fuzzing.scope import Scope, Workshop
from tests.fuzzing.statements import Load, Operand, Position

WHOLE = ("K", "N", "M")
MOST_TENSORS = 12
"""From here on inputs are taken again."""
COMPARED = ("<", "<=", "==", "!=", ">", ">=", "maximum", "minimum")


def typed_value(
    shop: Workshop, scope: Scope, dtype: torch.dtype, axes: tuple[str, ...] | None = None
) -> tuple[Grown, Value]:
    """A value of a type, with the axes if they are given: one that is there, or a load of one."""
    known = [v for v in scope.values if v.dtype == dtype and v.axes == (axes or v.axes)]
    if known and chance(shop.choices, 50):
        return [], pick(shop.choices, known)
    axes = _axes(shop, scope) if axes is None else axes
    spec = _input(shop, tuple(scope.tiles.get(axis, axis) for axis in axes), dtype)
    positions = (Position("tile", x) if x in scope.tiles else Position("full") for x in axes)
    value = scope.add(shop.value(dtype, axes))
    return [Load(value, spec.name, tuple(positions))], value


def _axes(shop: Workshop, scope: Scope) -> tuple[str, ...]:
    """A tile, a whole dimension, or both."""
    axes, tiles = _with_whole(shop, scope), list(scope.tiles)
    return (pick(shop.choices, tiles),) if tiles and chance(shop.choices, 30) else axes


def _with_whole(shop: Workshop, scope: Scope) -> tuple[str, ...]:
    """A whole dimension, mostly after a tile of another size."""
    whole = pick(shop.choices, WHOLE)
    tiles = [tile for tile, size in scope.tiles.items() if size != whole]
    axes = (pick(shop.choices, tiles), whole) if tiles and chance(shop.choices, 60) else (whole,)
    return axes if shop.elements(scope, axes) <= MAX_ELEMENTS else (whole,)


def _input(shop: Workshop, dims: tuple[str, ...], dtype: torch.dtype) -> TensorSpec:
    known = [spec for spec in shop.inputs if spec.dtype == dtype and spec.dims == dims]
    is_full = len(shop.tensors) >= MOST_TENSORS
    if known and (is_full or chance(shop.choices, 30)):
        return pick(shop.choices, known)
    return shop.new_input(dims, dtype)


def grow_typed(shop: Workshop, scope: Scope) -> Grown:
    """A function of operands of types that are chosen first, mostly all the same."""
    return _typed(shop, scope, pick(shop.choices, list(FUNCTIONS)))


def grow_comparison(shop: Workshop, scope: Scope) -> Grown:
    """The same, of functions for which the order of numbers counts."""
    return _typed(shop, scope, pick(shop.choices, COMPARED))


def _typed(shop: Workshop, scope: Scope, name: str) -> Grown:
    grown: Grown = []
    operands: list[Operand] = []
    dtype = None
    for listed in FUNCTIONS[name].kinds:
        kinds = tuple(kind for kind in listed if kind not in EIGHT_BITS)
        if operands and kinds != BOOLS and chance(shop.choices, 15):
            operands.append(pick(shop.choices, LITERALS))
            continue
        is_same = dtype in kinds and chance(shop.choices, 70)
        own = dtype if dtype is not None and is_same else pick(shop.choices, kinds)
        first = next((x for x in operands if isinstance(x, Value)), None)
        axes = first.axes or None if first is not None and chance(shop.choices, 60) else None
        can_load = axes is None or all(axis in scope.tiles or axis in WHOLE for axis in axes)
        loads, value = typed_value(shop, scope, own, axes if can_load else None)
        dtype = own if kinds != BOOLS else dtype
        grown += loads
        operands.append(value)
    return [*grown, *made(shop, scope, name, operands)]


def grow_typed_reduction(shop: Workshop, scope: Scope) -> Grown:
    """A reduction or a scan of a type that is chosen first."""
    dtype = pick(shop.choices, NUMBERS)
    axes = _with_whole(shop, scope)
    loads, value = typed_value(shop, scope, dtype, axes)
    make = pick(shop.choices, (reduction_of, reduction_of, scan_of))
    return [*loads, *make(shop, scope, value, len(axes) - 1)]
