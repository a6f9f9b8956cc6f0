"""Grows values that a loop or a branch exchanges with each other."""

from __future__ import annotations

from collections import Counter

import torch

from tests.fuzzing.choices import chance, pick
from tests.fuzzing.pointwise import NUMBERS
from tests.fuzzing.program import Grown, Value
from tests.fuzzing.rotations import Rotate
from tests.fuzzing.scope import Scope, Workshop
from tests.fuzzing.statements import Compute


def grow_companions(shop: Workshop, scope: Scope) -> Grown:
    """Values like one that is there, for a block to exchange with it."""
    values = [v for v in scope.rebindable if v.dtype in NUMBERS]
    if not values or not chance(shop.choices, 40):
        return []
    value = pick(shop.choices, values)
    new = [scope.add(shop.value(*_kind(value))) for _ in range(1 + shop.choices.below(2))]
    function = pick(shop.choices, ("add", "mul", "sub"))
    return [Compute(x, function, (value, "2"), x.dtype) for x in new]


def _kind(value: Value) -> tuple[torch.dtype, tuple[str, ...]]:
    return value.dtype, value.axes


def grow_rotation(shop: Workshop, scope: Scope) -> Grown:
    """Values that get each other's."""
    kinds = Counter(map(_kind, scope.rebindable))
    several = [kind for kind, count in kinds.items() if count > 1]
    if not several:
        return []
    kind = pick(shop.choices, several[::-1])
    found = [value for value in scope.rebindable if _kind(value) == kind][-3:]
    is_copied = chance(shop.choices, 25)
    operands = (*found[1:], found[1 if is_copied else 0])
    return [Rotate(tuple(found), operands)]
