"""When programs share the tiles that one program for each group would walk."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from typing_extensions import override

from tilesmith.schedule.rules import ScheduleRules, TargetedKernel

SPREAD = "spread_loops"


class SpreadForms(ScheduleRules):
    """Loops over independent tiles that become programs."""

    groups_per_core: float
    """With more groups than these for each core a program for a group keeps all of them busy."""

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
        return bool(groups) and prod(groups) <= self.groups_per_core * kernel.target.num_sms

    @override
    def least_gain(self, name: str) -> float:
        """Groups whose number is not known before the launch are taken for one."""
        return 0.0 if name == SPREAD else super().least_gain(name)
