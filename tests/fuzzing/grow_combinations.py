"""Grows reductions and scans with combine functions of the program's own."""

from __future__ import annotations

from tests.fuzzing.choices import chance, pick
from tests.fuzzing.combinations import COMBINATIONS, Combination, Combine
from tests.fuzzing.grow_statements import common_axes
from tests.fuzzing.program import Grown, Value
from tests.fuzzing.scope import Scope, Workshop


def grow_combination(shop: Workshop, scope: Scope) -> Grown:
    """``hl.reduce`` or ``hl.associative_scan`` along a whole dimension."""
    options = scope.whole_axes()
    if not options:
        return []
    first, place = pick(shop.choices, options)
    is_scan = chance(shop.choices, 50)
    names = [
        name
        for name, combination in COMBINATIONS.items()
        if first.dtype in combination.kinds[0] and (is_scan or combination.is_commutative)
    ]
    if not names:
        return []
    name = pick(shop.choices, names)
    operands = _operands(shop, scope, COMBINATIONS[name], first)
    axes = common_axes(shop, scope, operands) if operands else None
    if axes is None:
        return []
    dim = axes.index(first.axes[place])
    has_identity = bool(COMBINATIONS[name].identity) and not is_scan and chance(shop.choices, 50)
    if not is_scan and not shop.sizes[axes[dim]]:
        return []
    left = axes if is_scan else axes[:dim] + axes[dim + 1 :]
    results = tuple(scope.add(shop.value(value.dtype, left)) for value in operands)
    reverse, is_flat = is_scan and chance(shop.choices, 40), chance(shop.choices, 40)
    return [
        Combine(results, name, tuple(operands), axes, dim, is_scan, reverse, is_flat, has_identity)
    ]


def _operands(shop: Workshop, scope: Scope, combination: Combination, first: Value) -> list[Value]:
    """The tensors that are combined together; none if the second is missing."""
    if len(combination.kinds) == 1:
        return [first]
    kinds = (first.dtype,) if first.dtype in combination.kinds[1] else combination.kinds[1]
    fitting = [value for value in reversed(scope.values) if value.dtype in kinds]
    return [first, pick(shop.choices, fitting)] if fitting else []
