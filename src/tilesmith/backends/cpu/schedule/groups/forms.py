"""Products whose tiles one program for each group would walk: when programs share a group."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from typing_extensions import override

from tilesmith.analysis.spread_loops.site import SHARES, shares_of
from tilesmith.schedule.rules import ScheduleRules, TargetedKernel

SPREAD = "spread_loops"
MANY_GROUPS_PER_CORE = 16
"""So many are even enough for every core."""
PROGRAMS = 4
"""That share the rows of a group."""


class SpreadForms(ScheduleRules):
    """Loops over independent tiles that become programs."""

    @override
    def row_forms(self, kernel: TargetedKernel) -> Sequence[str]:
        forms = super().row_forms(kernel)
        is_alone = len(kernel.outline.grids) == 1 and bool(kernel.facts.matmuls)
        return [*forms, SPREAD] if is_alone and kernel.loop_blocks else forms

    @override
    def may_be_first_form(self, name: str, kernel: TargetedKernel) -> bool:
        if name != SPREAD:
            return super().may_be_first_form(name, kernel)
        (grid,) = kernel.outline.grids
        groups = [axis.extent or 1 for axis in kernel.outline.axes_of(grid) if not axis.block]
        return bool(groups) and prod(groups) < MANY_GROUPS_PER_CORE * kernel.target.num_sms

    @override
    def least_gain(self, name: str) -> float:
        """Groups whose number is not known before the launch are taken for one."""
        return 0.0 if name == SPREAD else super().least_gain(name)


def share_blocks(kernel: TargetedKernel) -> dict[str, int]:
    """The block of the programs that share a group, where there is one."""
    shares = shares_of(kernel.outline.function)
    return {} if shares is None else {shares: SHARES // PROGRAMS}
