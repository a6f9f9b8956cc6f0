"""Tuning by hand: search methods, tuning of other functions, and fragments for tunables."""

from __future__ import annotations

from tilesmith.schedule.space.fragments import (
    BooleanFragment,
    EnumFragment,
    IntegerFragment,
    ListOf,
    PermutationFragment,
    PowerOfTwoFragment,
)
from tilesmith.tune.bound_searches import (
    DifferentialEvolutionSearch,
    FiniteSearch,
    ModelFirstSearch,
    PatternSearch,
    RandomSearch,
)
from tilesmith.tune.external import autotune

__all__ = [
    "BooleanFragment",
    "DifferentialEvolutionSearch",
    "EnumFragment",
    "FiniteSearch",
    "IntegerFragment",
    "ListOf",
    "ModelFirstSearch",
    "PatternSearch",
    "PermutationFragment",
    "PowerOfTwoFragment",
    "RandomSearch",
    "autotune",
]
