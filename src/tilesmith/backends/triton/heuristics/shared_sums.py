"""Gradients of a product in one launch: the sum over all rows is shared by several programs.

The gradient of weights has few tiles and a sum as long as there are rows. Programs that add parts
come first: who is last at a tile adds them while others are busy with the other gradient. bf16 on
an H200, us, as written / with shared sums in tiles of 128x256 / of 128x128 (cuBLAS, two launches):
20120 rows, 512x512 weights 66.4, 57.8, 50.4 (47.1); 512x1536 110.1, 103.7, 117.6 (95.9); 35916
rows, 1536x512 203.9, 188, 234.9 (173.5). By pointers instead of copies 512x512 takes 78.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from typing_extensions import override

from tilesmith.backends.triton.heuristics.matmul import multiply_adds
from tilesmith.backends.triton.heuristics.measured_tiles import LEAST_WORK
from tilesmith.backends.triton.heuristics.narrow_products import SUM_PARTS, has_few_tiles
from tilesmith.backends.triton.heuristics.seed import copied
from tilesmith.backends.triton.heuristics.several_grids import (
    GridSeed,
    SeveralGridsSeed,
    each_grid,
)
from tilesmith.backends.triton.heuristics.tile_sides import HALF, sized
from tilesmith.ir.types import next_power_of_2
from tilesmith.schedule.rules import ScheduleRules, TargetedKernel
from tilesmith.schedule.space.sizes import power_of_2_floor

LEAST_ROWS = 16384
"""That are summed up, for shared sums to be a default; shorter ones were not timed."""
ROWS, WIDE, NARROW, DEPTH, WARPS, STAGES = 128, 256, 128, 64, 8, 4
LEAST_TILES = 16
"""Of the wide kind: with fewer of them, narrow ones are more programs with fewer parts each."""


class SharedSumForms(ScheduleRules):
    """One sum of several loops in parts, and when that is a default."""

    @override
    def row_forms(self, kernel: TargetedKernel) -> Sequence[str]:
        forms = super().row_forms(kernel)
        is_several = len(kernel.outline.grids) > 1 and not kernel.outline.has_barrier
        if not is_several or kernel.target.kind != "cuda":
            return forms
        grids = [grid for grid in each_grid(kernel) if grid.facts.matmuls]
        facts = [fact for grid in grids for fact in grid.facts.matmuls]
        are_products = len(facts) == len(grids) > 1 and all(f.uses_tensor_cores for f in facts)
        return [*forms, SUM_PARTS] if are_products and any(map(has_few_tiles, grids)) else forms

    @override
    def may_be_first_form(self, name: str, kernel: TargetedKernel) -> bool:
        if name != SUM_PARTS or len(kernel.outline.grids) < 2:
            return super().may_be_first_form(name, kernel)
        facts = kernel.facts.matmuls
        longest = max(fact.k.extent_or(0) for fact in facts)
        return longest >= LEAST_ROWS and all(fact.itemsize == HALF for fact in facts)


def shared_sum_seeds(
    kernel: TargetedKernel, seeds: Sequence[SeveralGridsSeed]
) -> list[SeveralGridsSeed]:
    """Seeds of several loops, before them one with tiles for the sum that is shared."""
    first, facts = seeds[0], kernel.facts.matmuls
    least = LEAST_TILES if all(part.kernel.facts.matmuls for part in first.parts) else 1
    parts = {i: seed for i, part in enumerate(first.parts) if (seed := _tiles(part, least))}
    if not parts or any(fact.itemsize != HALF for fact in facts):
        return list(seeds)
    for position, part in parts.items():
        first = first.with_seed(position, part.seed)
    if kernel.target.has_tensor_descriptors and all(multiply_adds(f) >= LEAST_WORK for f in facts):
        options = copied(kernel, lambda item: item.kind == "load" and bool(item.purpose.sides))
        first = replace(first, options=options)
    return [first, *seeds]


def _tiles(part: GridSeed, least: int) -> GridSeed | None:
    """The loop whose sums are shared, with its tile and its parts."""
    kernel, facts = part.kernel, part.kernel.facts.matmuls
    steps = facts[0].k.block if len(facts) == 1 else None
    outer = kernel.outline.outer_bounds.get(steps or "")
    if not isinstance(outer, str) or outer not in kernel.entries.blocks:
        return None
    (fact,) = facts
    sides = [axis.extent_or(4096) for axis in (fact.m, fact.n)]

    def count(columns: int) -> int:
        return prod(-(-side // size) for side, size in zip(sides, (ROWS, columns)))

    columns = WIDE if count(WIDE) >= least else NARROW
    programs = power_of_2_floor(max(1.0, kernel.target.num_sms / count(columns)))
    length = next_power_of_2(-(-kernel.extent(outer) // programs))
    blocks = {**sized((fact.m, ROWS), (fact.n, columns), (fact.k, DEPTH)), outer: length}
    seed = replace(part.seed, blocks=blocks, num_warps=WARPS, num_stages=STAGES)
    return replace(part, seed=seed)
