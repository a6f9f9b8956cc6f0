"""Schedules of products that go to scratch memory, from which their rows are then reduced.

The product gets the tile that it would have alone; of the rows, a program takes as many at a time
as keep all its threads busy. Warps and stages are the product's: its loop is the longer one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tilesmith.schedule.counted_branches import counted_loops
from tilesmith.schedule.facts import MatmulFact
from tilesmith.schedule.heuristics.copied_matmul import is_long
from tilesmith.schedule.heuristics.seed import Seed, Situation, copied
from tilesmith.schedule.heuristics.several_grids import (
    GridSeed,
    SeveralGridsSeed,
    each_grid,
    plain_seeds,
)

ELEMENTS_PER_THREAD = 64
"""Of the rows that a program has at a time."""
MOST_ROWS = 16
LEAST_STAGES = 3
PANEL_TILES = ((128, 128, 64, 4, 3), (128, 256, 64, 8, 3), (64, 256, 64, 4, 3))
TILES = ((128, 128, 64, 4, 3), (128, 256, 64, 8, 4), (64, 256, 32, 4, 4))
TILES_OF_WORDS = ((64, 64, 32, 4, 3), (32, 128, 32, 4, 3))
"""Rows, columns and depth of a product, warps and stages.

A multiprocessor has two programs of the first: one multiplies while the other has rows to move.
"""
PANELS_AT_A_TIME = 2
"""Few, so that they are complete while their rows are still in the shared cache."""


def two_phase_seeds(
    situation: Situation, heuristic: Callable[[Situation], Sequence[Seed]]
) -> list[SeveralGridsSeed]:
    """All programs multiply, then all reduce; nothing for kernels of another kind."""
    if not situation.structure.has_barrier or len(situation.structure.grids) != 2:
        return []
    product, rows = each_grid(situation)
    if len(product.facts.matmuls) != 1 or rows.facts.matmuls or not rows.facts.reductions:
        return []
    tiles = plain_seeds(heuristic(product))
    if not tiles or len(rows.entries.blocks) != 1:
        return []
    (block,) = rows.entries.blocks
    most = rows.extent(block) // (2 * rows.target.num_sms)
    seeds: list[SeveralGridsSeed] = []
    for tile in tiles[:2]:
        deep = replace(tile, num_stages=max(LEAST_STAGES, tile.num_stages))
        count = min(most, _num_rows(rows, tile.num_warps))
        parts = [GridSeed(product, deep), GridSeed(rows, Seed({block: max(1, count)}))]
        seeds.append(SeveralGridsSeed.of(parts))
    options = _copied_operands(situation, product.facts.matmuls[0])
    return [*(replace(seed, options=options) for seed in seeds if options), *seeds]


def panel_seeds(situation: Situation) -> list[Seed]:
    """A panel's rows are reduced by the program that multiplied it, or by the last that did.

    Nothing for kernels of another kind.
    """
    facts, structure = situation.facts, situation.structure
    if len(facts.matmuls) != 1 or not facts.reductions:
        return []
    (fact,) = facts.matmuls
    m, n, k = fact.m.block, fact.n.block, fact.k.block
    others = [block for block in situation.loop_blocks if block not in (n, k)]
    if m is None or n is None or k is None or len(others) != 1:
        return []
    (rows,) = others
    is_alone = n in situation.loop_blocks
    if structure.outer_bounds.get(rows) != m or not (is_alone or counted_loops(structure)):
        return []
    tiles = PANEL_TILES if is_alone else TILES_OF_WORDS if fact.itemsize > 2 else TILES
    seeds = [
        Seed(
            {m: bm, n: bn, k: depth, rows: _num_rows(situation, warps)},
            warps,
            stages,
            l2_grouping=1 if is_alone else PANELS_AT_A_TIME,
        )
        for bm, bn, depth, warps, stages in tiles
    ]
    options = _copied_operands(situation, fact)
    return [*(replace(seed, options=options) for seed in seeds if options), *seeds]


def _num_rows(situation: Situation, num_warps: int) -> int:
    """Rows at a time."""
    length = max(fact.axis.extent_or(4096) for fact in situation.facts.reductions)
    elements = ELEMENTS_PER_THREAD * num_warps * situation.target.warp_size
    return max(1, min(MOST_ROWS, elements // length))


def _copied_operands(situation: Situation, fact: MatmulFact) -> dict[str, Any]:
    """The option that sends a long product's operands through the copy engine."""
    if not situation.target.has_tensor_descriptors or not is_long(fact) or fact.itemsize != 2:
        return {}
    options = copied(situation, lambda fact: fact.kind == "load" and bool(fact.purpose.sides))
    return options if "tensor_descriptor" in options["indexing"] else {}
