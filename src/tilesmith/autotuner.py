"""Fragments for ``hl.register_tunable``: the sets of values a tunable may take."""

from __future__ import annotations

from tilesmith.schedule.fragments import (
    BooleanFragment,
    EnumFragment,
    IntegerFragment,
    ListOf,
    PermutationFragment,
    PowerOfTwoFragment,
)

__all__ = [
    "BooleanFragment",
    "EnumFragment",
    "IntegerFragment",
    "ListOf",
    "PermutationFragment",
    "PowerOfTwoFragment",
]
