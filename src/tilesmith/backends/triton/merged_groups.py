"""Groups of rows that are computed as one: which kernels have that form, when it is the default.

With roles, where warps can have them: one product of all rows as warps with roles compute it, tiles
that groups have as a whole stored through the copy engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from typing_extensions import override

from tilesmith.analysis.merged_groups.site import (
    MergedGroups,
    Reason,
    find_merged_groups,
    has_known_middle,
    is_merged,
)
from tilesmith.backends.triton.heuristics.matmul import matmul_seeds
from tilesmith.backends.triton.heuristics.seed import GpuSeed, copied
from tilesmith.backends.triton.heuristics.tile_sides import sized
from tilesmith.backends.triton.optimizations.turned_products import HOPPER
from tilesmith.backends.triton.warp_roles.columns.tiles import GROUPING, STEP, RoleSeed
from tilesmith.backends.triton.warp_roles.rules import FORM, WarpRoleRules
from tilesmith.schedule.rules import ScheduleRules, Seed, TargetedKernel

MERGED, MERGED_ROLES = "merged_groups", "merged_roles"
FORMS = (MERGED, MERGED_ROLES)
HALF = 2
"""Bytes of operands that were timed."""
PLAIN_TILES = ((128, 256, 64, 8, 4), (128, 128, 64, 4, 3))
"""Rows, columns and depth, warps and stages, of warps without roles."""
PLAIN_GROUPING = 8
ROLE_TILES = ((128, 128, 2, 6), (128, 256, 2, 4), (192, 128, 3, 5))
"""Rows, columns, groups of warps and stages.

bf16 on an H200, us: 6752 rows by 4096x4096 309.2, 322.5, 316.3 (cuBLAS 308.0); 2665 by 1024x1024
18.9, 18.2, 16.5 (14.2, by hand). How many rows there will be is not known: small tiles leave less
of the last wave idle.
"""
LEAST_SIDE = 512
"""Columns, and steps of the sum, of products for which this is the default."""
FEW_COLUMNS = 1024
"""Of which many rows are few tiles, so that smaller ones keep more multiprocessors busy."""


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
        sides = [axis.block or "" for axis in facts[0].axes] if len(facts) == 1 else []
        if not sides or not set(sides) <= set(kernel.entries.blocks):
            return name, others
        (grid,) = kernel.outline.grids
        order = tuple(grid.blocks.index(block) for block in sides[:2])
        is_narrow = facts[0].n.extent_or(FEW_COLUMNS + 1) <= FEW_COLUMNS
        tiles = ROLE_TILES[::-1] if is_narrow else ROLE_TILES
        width, step = kernel.whole(sides[1]), min(STEP, kernel.whole(sides[2]))
        seeds = [
            RoleSeed(
                dict(zip(sides, (rows, min(columns, width), step))), groups, stages, order, GROUPING
            )
            for rows, columns, groups, stages in tiles
        ]
        return name, [*(s for s in seeds if model.resources(s.values(kernel)).fits), *others]


class MergedGroupForms(ScheduleRules):
    """One loop over all rows instead of one for each group."""

    @override
    def row_forms(self, kernel: TargetedKernel) -> Sequence[str]:
        forms = super().row_forms(kernel)
        return [*forms, *FORMS] if isinstance(_find(kernel), MergedGroups) else forms

    @override
    def rules_of_form(self, name: str, kernel: TargetedKernel) -> ScheduleRules | None:
        if name != MERGED_ROLES:
            return super().rules_of_form(name, kernel)
        rules = self.other_ways(kernel).get(FORM)
        return MergedRoleRules.of(rules) if isinstance(rules, WarpRoleRules) else None

    @override
    def missing_ways(self, kernel: TargetedKernel) -> Mapping[str, str]:
        missing, found = super().missing_ways(kernel), _find(kernel)
        if isinstance(found, Reason):
            return {**missing, MERGED: str(found)}
        is_hopper = (self.target.kind, self.target.capability) == ("cuda", HOPPER)
        reason = _without_roles(found) if found is not None and is_hopper else None
        return missing if reason is None else {**missing, MERGED_ROLES: str(reason)}

    @override
    def may_be_first_form(self, name: str, kernel: TargetedKernel) -> bool:
        """For one product of 16 bits, where no search for the groups of a row is needed."""
        if name not in FORMS:
            return super().may_be_first_form(name, kernel)
        facts = kernel.facts.matmuls
        is_usual = len(facts) == 1 and facts[0].uses_tensor_cores and facts[0].itemsize == HALF
        sides = [axis.extent_or(0) for fact in facts for axis in (fact.n, fact.k)]
        is_usual = is_usual and min(sides) >= LEAST_SIDE
        is_chain = name == MERGED_ROLES or has_known_middle(kernel.outline.function)
        return is_usual and is_chain and kernel.target.kind == "cuda"

    @override
    def form_rank(self, name: str) -> int:
        ranks = {MERGED: -1, MERGED_ROLES: -2}
        return ranks[name] if name in ranks else super().form_rank(name)

    @override
    def least_gain(self, name: str) -> float:
        return 0.0 if name in FORMS else super().least_gain(name)


def _find(kernel: TargetedKernel) -> MergedGroups | Reason | None:
    """None for kernels that have no products, which nobody has timed."""
    return find_merged_groups(kernel.outline.function) if kernel.facts.matmuls else None


def _without_roles(site: MergedGroups) -> Reason | None:
    """Why warps with roles cannot compute merged groups, whatever is computed for a row."""
    if site.chain is None:
        return Reason("a group does not end where the next one begins", site.loop.loc)
    hidden = next(iter(site.hidden), None)
    if hidden is None:
        return None
    return Reason(f"{hidden.tensor.name} may have fewer rows", hidden.loc)


def merged_seeds(kernel: TargetedKernel) -> list[GpuSeed]:
    """Tiles of all rows; nothing for kernels of another kind."""
    facts = kernel.facts.matmuls
    if not is_merged(kernel.outline.function) or len(facts) != 1:
        return []
    (fact,), plain = facts, matmul_seeds(kernel)
    if not fact.uses_tensor_cores or fact.itemsize != 2 or kernel.target.kind != "cuda":
        return plain
    options = copied(kernel, lambda item: item.kind == "load" and bool(item.purpose.sides))
    seeds = [
        GpuSeed(
            sized((fact.m, bm), (fact.n, bn), (fact.k, bk)),
            warps,
            stages,
            PLAIN_GROUPING,
            options=options,
            fastest=(fact.m.block, fact.n.block),
        )
        for bm, bn, bk, warps, stages in PLAIN_TILES
    ]
    return [*seeds, *plain]
