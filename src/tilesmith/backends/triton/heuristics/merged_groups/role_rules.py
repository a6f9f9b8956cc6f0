"""Tiles of merged groups that warps with roles compute."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from tilesmith.backends.triton.warp_roles.columns.tiles import GROUPING, STEP, RoleSeed
from tilesmith.backends.triton.warp_roles.rules import WarpRoleRules
from tilesmith.schedule.rules import Seed, TargetedKernel

TILES = ((128, 256, 2, 4), (128, 128, 2, 6), (192, 128, 3, 5))
"""Rows, columns, groups of warps and stages."""


class MergedRoleRules(WarpRoleRules):
    """Rules of one product of all rows."""

    @classmethod
    def of(cls, rules: WarpRoleRules) -> MergedRoleRules:
        """The same with tiles for many rows, however many there are."""
        return cls(rules.target, rules.sizes, rules.plan)

    @override
    def seeds(self, kernel: TargetedKernel) -> tuple[str, Sequence[Seed]]:
        name, others = super().seeds(kernel)
        facts, model = kernel.facts.matmuls, self.model(kernel)
        if len(facts) != 1 or any(a.block not in kernel.entries.blocks for a in facts[0].axes):
            return name, others
        (fact,), (grid,) = facts, kernel.outline.grids
        order = tuple(grid.blocks.index(axis.block or "") for axis in (fact.m, fact.n))
        seeds = [
            RoleSeed(
                {fact.m.block: rows, fact.n.block: columns, fact.k.block: STEP},
                groups,
                stages,
                order,
                GROUPING,
            )
            for rows, columns, groups, stages in TILES
        ]
        return name, [*(s for s in seeds if model.resources(s.values(kernel)).fits), *others]
