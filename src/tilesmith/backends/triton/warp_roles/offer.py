"""Which kernels are offered the form with warp roles, and for which it may be the default."""

from __future__ import annotations

from collections.abc import Mapping

from typing_extensions import override

from tilesmith.backends.triton.heuristics.product_loops import has_short_sequences
from tilesmith.backends.triton.space.conditions import ConfigConditions
from tilesmith.backends.triton.warp_roles.columns.tiles import do_waves_pay
from tilesmith.backends.triton.warp_roles.copies import fits_form
from tilesmith.backends.triton.warp_roles.order import find_order
from tilesmith.backends.triton.warp_roles.plan import RolePlan, plan_roles
from tilesmith.backends.triton.warp_roles.protocol import LEAST_ROWS
from tilesmith.backends.triton.warp_roles.refusals import Refusal
from tilesmith.backends.triton.warp_roles.rules import FORM, WarpRoleRules
from tilesmith.schedule.rules import ScheduleRules, TargetedKernel

HOPPER = 90
LEAST_GAIN = 0.8
"""Of the time that is predicted without roles, which is too short for chained products."""


class RoleOffers(ConfigConditions):
    """Which kernels may run with warp roles, and which do unless told otherwise."""

    @override
    def other_ways(self, kernel: TargetedKernel) -> Mapping[str, ScheduleRules]:
        """Warps with roles, where the device has what they need and the kernel lets them."""
        rules = self._find_rules(kernel)
        return {FORM: rules} if isinstance(rules, WarpRoleRules) else {}

    @override
    def missing_ways(self, kernel: TargetedKernel) -> Mapping[str, str]:
        missing, rules = super().missing_ways(kernel), self._find_rules(kernel)
        return {**missing, FORM: str(rules)} if isinstance(rules, Refusal) else missing

    def _find_rules(self, kernel: TargetedKernel) -> WarpRoleRules | Refusal | None:
        """None where nobody would expect them: on other devices, and without products."""
        is_hopper = self.target.kind == "cuda" and self.target.capability == HOPPER
        if not is_hopper or not kernel.facts.matmuls:
            return None
        plan = plan_roles(kernel.outline.function)
        refusal = plan if isinstance(plan, Refusal) else fits_form(kernel, plan)
        if isinstance(plan, Refusal) or refusal is not None:
            return refusal
        if plan.listing is not None and plan.loop.ends[0] is not plan.listing.end:
            # The source runs no turn for such a block; turns of this form would.
            return Refusal("a block that a list names may lie past the end", plan.loop.loc)
        if plan.listing is not None and find_order(plan) is not None:
            return Refusal("turns of two parts do not go over a list", plan.loop.loc)
        rules = WarpRoleRules(self.target, self.sizes, plan)
        if not rules.seeds(kernel)[1]:
            return Refusal("no tile fits into registers and shared memory", plan.loop.loc)
        return rules

    @override
    def least_gain(self, name: str) -> float:
        """Warps with roles were faster wherever both were timed, so they need no margin."""
        return LEAST_GAIN if name == FORM else super().least_gain(name)

    @override
    def may_be_first_form(self, name: str, kernel: TargetedKernel) -> bool:
        """Products alone need tiles that fill waves to be faster, and few rows fill no group."""
        if name != FORM:
            return super().may_be_first_form(name, kernel)
        chained, plan = kernel.facts.attention, plan_roles(kernel.outline.function)
        if not isinstance(plan, RolePlan):
            return False
        if chained is None:
            return do_waves_pay(kernel, plan)
        rows = chained.scores.m.extent_or(LEAST_ROWS)
        return rows >= LEAST_ROWS and not has_short_sequences(kernel)
