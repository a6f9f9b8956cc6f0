"""Which products are offered to pairs of programs, and which they are the default for."""

from __future__ import annotations

from typing_extensions import override

from tilesmith.backends.triton.warp_roles.clusters import CLUSTERED
from tilesmith.backends.triton.warp_roles.clusters.rules import (
    ClusterRules,
    do_clusters_pay,
    find_rules,
)
from tilesmith.backends.triton.warp_roles.offer import RoleOffers
from tilesmith.backends.triton.warp_roles.plan import RolePlan, plan_roles
from tilesmith.backends.triton.warp_roles.refusals import Refusal
from tilesmith.backends.triton.warp_roles.rules import FORM
from tilesmith.schedule.rules import ScheduleRules, TargetedKernel


class ClusterOffers(RoleOffers):
    """Clusters of two programs, beside warps with roles."""

    @override
    def other_ways(self, kernel: TargetedKernel) -> dict[str, ScheduleRules]:
        ways = super().other_ways(kernel)
        rules = self._find_clusters(kernel, ways)
        return {**ways, CLUSTERED: rules} if isinstance(rules, ClusterRules) else ways

    @override
    def missing_ways(self, kernel: TargetedKernel) -> dict[str, str]:
        missing = super().missing_ways(kernel)
        rules = self._find_clusters(kernel, super().other_ways(kernel))
        return {**missing, CLUSTERED: str(rules)} if isinstance(rules, Refusal) else missing

    def _find_clusters(
        self, kernel: TargetedKernel, ways: dict[str, ScheduleRules]
    ) -> ClusterRules | Refusal | None:
        """None where a kernel has no form with roles at all."""
        plan = plan_roles(kernel.outline.function) if FORM in ways else None
        if not isinstance(plan, RolePlan):
            return None
        return find_rules(self.target, self.sizes, kernel, plan)

    @override
    def least_gain(self, name: str) -> float:
        return super().least_gain(FORM if name == CLUSTERED else name)

    @override
    def may_be_first_form(self, name: str, kernel: TargetedKernel) -> bool:
        """Pairs, where they are faster than the tiles that fill waves, which are then not asked."""
        if name not in (FORM, CLUSTERED) or not super().may_be_first_form(FORM, kernel):
            return super().may_be_first_form(name, kernel) if name != CLUSTERED else False
        ways = super().other_ways(kernel)
        has_rules = isinstance(self._find_clusters(kernel, ways), ClusterRules)
        plan = plan_roles(kernel.outline.function)
        is_paired = has_rules and isinstance(plan, RolePlan) and do_clusters_pay(kernel, plan)
        return is_paired == (name == CLUSTERED)
