"""Groups of rows that are computed as one: which kernels have that form, when it is the default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from typing_extensions import override

from tilesmith.analysis.merged_groups.site import (
    MergedGroups,
    Reason,
    find_merged_groups,
    has_known_middle,
)
from tilesmith.schedule.rules import ScheduleRules, TargetedKernel

MERGED = "merged_groups"
HALF = 2
"""Bytes of operands that were timed."""


class MergedGroupForms(ScheduleRules):
    """One loop over all rows instead of one for each group."""

    @override
    def row_forms(self, kernel: TargetedKernel) -> Sequence[str]:
        forms = super().row_forms(kernel)
        is_merged = isinstance(_find(kernel), MergedGroups)
        return [*forms, MERGED] if is_merged else forms

    @override
    def missing_ways(self, kernel: TargetedKernel) -> Mapping[str, str]:
        missing = super().missing_ways(kernel)
        found = _find(kernel)
        return {**missing, MERGED: str(found)} if isinstance(found, Reason) else missing

    @override
    def may_be_first_form(self, name: str, kernel: TargetedKernel) -> bool:
        """For one product of 16 bits, where no search for the groups of a row is needed."""
        if name != MERGED:
            return super().may_be_first_form(name, kernel)
        facts = kernel.facts.matmuls
        is_usual = len(facts) == 1 and facts[0].uses_tensor_cores and facts[0].itemsize == HALF
        return (
            is_usual and kernel.target.kind == "cuda" and has_known_middle(kernel.outline.function)
        )

    @override
    def form_rank(self, name: str) -> int:
        return -1 if name == MERGED else super().form_rank(name)

    @override
    def least_gain(self, name: str) -> float:
        return 0.0 if name == MERGED else super().least_gain(name)


def _find(kernel: TargetedKernel) -> MergedGroups | Reason | None:
    """None for kernels that have no products, which nobody has timed."""
    return find_merged_groups(kernel.outline.function) if kernel.facts.matmuls else None
