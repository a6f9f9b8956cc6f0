"""Configs of products that pairs of programs compute: their tiles, what they need, when they pay.

Block sizes are those of the pair: each program has half of the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import override

from tilesmith.backends.triton.ops.program_ids import CLUSTERED
from tilesmith.backends.triton.role_clusters.protocol import LEAST_TRITON, PROGRAMS
from tilesmith.backends.triton.role_clusters.versions import installed_version
from tilesmith.backends.triton.space.conditions import ConfigConditions
from tilesmith.backends.triton.warp_roles.columns.tiles import (
    LEAST_GAIN,
    TILES,
    Tile,
    find_product,
    tile_time,
    wave_seeds,
)
from tilesmith.backends.triton.warp_roles.order import find_vectors
from tilesmith.backends.triton.warp_roles.plan import RolePlan, plan_roles
from tilesmith.backends.triton.warp_roles.refusals import Refusal
from tilesmith.backends.triton.warp_roles.rules import FORM, RoleModel, WarpRoleRules
from tilesmith.backends.triton.warp_roles.short_sums import stores_most
from tilesmith.ir.types import Dim
from tilesmith.schedule.model.estimates import Prediction, ResourceUse
from tilesmith.schedule.rules import KernelModel, ScheduleRules, Seed, TargetedKernel
from tilesmith.schedule.space.sizes import SizeRules
from tilesmith.targets import Target

PAIR_TILES = (Tile(256, 256, 2, 4, True, PROGRAMS), Tile(256, 320, 2, 4, False, PROGRAMS))
"""Those that were fast on an H200; narrower ones were slower than without clusters."""


SIDES: tuple[str, ...] = ("lhs", "rhs")
"""Of a product."""


class ClusterModel(RoleModel):
    """The needs of one program, with its half of the rows."""

    @override
    def resources(self, values: Mapping[str, Any]) -> ResourceUse:
        return super().resources(self._of_one(values))

    @override
    def predict(self, values: Mapping[str, Any]) -> Prediction:
        return super().predict(self._of_one(values))

    def _of_one(self, values: Mapping[str, Any]) -> dict[str, Any]:
        named = zip(self.kernel.entries.blocks, values["block_sizes"])
        rows = self._plan.rows
        sizes = [size // PROGRAMS if name == rows else size for name, size in named]
        return {**values, "block_sizes": sizes}


class ClusterRules(WarpRoleRules):
    """Rules for one product."""

    form = CLUSTERED
    programs = PROGRAMS

    @override
    def model(self, kernel: TargetedKernel) -> KernelModel:
        return ClusterModel(kernel, self.device(), self.plan)

    @override
    def seeds(self, kernel: TargetedKernel) -> tuple[str, Sequence[Seed]]:
        model = self.model(kernel)
        found = wave_seeds(kernel, self.plan, PAIR_TILES)
        fitting = [seed for seed in found if model.resources(seed.values(kernel)).fits]
        return "measured order", fitting


def find_rules(
    target: Target, sizes: SizeRules, kernel: TargetedKernel, plan: RolePlan
) -> ClusterRules | Refusal:
    """Rules of a product in this form, or why it has none."""
    if find_product(kernel, plan) is None:
        return Refusal(
            "programs share operands of one product alone, of known sizes", plan.loop.loc
        )
    if plan.cleared or plan.longer or plan.kept or find_vectors(plan):
        return Refusal("programs share whole tiles of two operands only", plan.loop.loc)
    version = installed_version()
    if version < LEAST_TRITON:
        wanted, found = (".".join(map(str, number)) for number in (LEAST_TRITON, version))
        return Refusal(
            f"copies to several programs need Triton {wanted}, not {found}", plan.loop.loc
        )
    rules = ClusterRules(target, sizes, plan)
    has_tiles = bool(rules.seeds(kernel)[1])
    return rules if has_tiles else Refusal("no tile fits", plan.loop.loc)


def do_clusters_pay(kernel: TargetedKernel, plan: RolePlan) -> bool:
    """Whether the best tile of a pair is faster than the best that one program has.

    Transposed operands, batches and short sums have not run on a device, so they are not asked.
    """
    fact = find_product(kernel, plan)
    if fact is None or fact.n.block is None or len(plan.grid.blocks) > len(SIDES):
        return False
    if stores_most(kernel, fact):
        return False
    along = dict(zip(SIDES, (fact.k.block, fact.n.block)))
    sides = [(item, side) for item in kernel.facts.accesses for side in item.purpose.sides]
    if any(item.contiguous_dim != Dim.of(along[side] or "") for item, side in sides):
        return False
    own, shared = (
        min(tile_time(kernel, fact, tile) for tile in tiles) for tiles in (TILES, PAIR_TILES)
    )
    return own >= LEAST_GAIN * shared


class ClusterOffers(ConfigConditions):
    """Clusters of two programs, where what comes after in the order of classes has warp roles."""

    @override
    def other_ways(self, kernel: TargetedKernel) -> Mapping[str, ScheduleRules]:
        ways = super().other_ways(kernel)
        rules = self._find_clusters(kernel, ways)
        return {**ways, CLUSTERED: rules} if isinstance(rules, ClusterRules) else ways

    @override
    def missing_ways(self, kernel: TargetedKernel) -> Mapping[str, str]:
        missing = super().missing_ways(kernel)
        rules = self._find_clusters(kernel, super().other_ways(kernel))
        return {**missing, CLUSTERED: str(rules)} if isinstance(rules, Refusal) else missing

    def _find_clusters(
        self, kernel: TargetedKernel, ways: Mapping[str, ScheduleRules]
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
