"""Schedules of products that go to scratch memory, from which their rows are then reduced.

The product gets the tile that it would have alone; of the rows, a program takes as many at a time
as keep all its threads busy. Warps and stages are the product's: its loop is the longer one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

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
PANEL_TILES = ((128, 128, 4), (128, 256, 8), (64, 256, 4))
"""Rows and columns of a product, and warps: first one of which a multiprocessor has two.

One of them multiplies while the other reads and writes rows.
"""
TILES = ((128, 128, 64, 4, 3), (128, 256, 64, 8, 4), (64, 256, 32, 4, 4))
TILES_OF_WORDS = ((64, 64, 32, 4, 3), (32, 128, 32, 4, 3))
"""Rows, columns and depth of a product, warps and stages; first two on a multiprocessor again."""
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


def row_panel_seeds(situation: Situation) -> list[Seed]:
    """Each program multiplies a panel and reduces it; nothing for kernels of another kind."""
    facts = situation.facts
    if len(facts.matmuls) != 1 or not facts.reductions:
        return []
    (fact,) = facts.matmuls
    m, n, k = fact.m.block, fact.n.block, fact.k.block
    others = [block for block in situation.loop_blocks if block not in (n, k)]
    if m is None or k is None or n not in situation.loop_blocks or len(others) != 1:
        return []
    (block,) = others
    if situation.structure.outer_bounds.get(block) != m:
        return []
    options = _copied_operands(situation, fact)
    seeds = [
        Seed({m: bm, n: bn, k: 64, block: _num_rows(situation, warps)}, warps, LEAST_STAGES)
        for bm, bn, warps in PANEL_TILES
    ]
    return [*(replace(seed, options=options) for seed in seeds if options), *seeds]


def last_reduces_seeds(situation: Situation) -> list[Seed]:
    """Each program multiplies a tile, the last of a panel reduces it; nothing for other kernels."""
    facts = situation.facts
    if len(facts.matmuls) != 1 or not facts.reductions or not situation.structure.atomics:
        return []
    (fact,) = facts.matmuls
    m, n, k = fact.m.block, fact.n.block, fact.k.block
    rows = [block for block in situation.loop_blocks if block != k]
    if m is None or k is None or n is None or len(rows) != 1:
        return []
    if situation.structure.outer_bounds.get(rows[0]) != m:
        return []
    options = _copied_operands(situation, fact)
    tiles = TILES_OF_WORDS if fact.itemsize > 2 else TILES
    seeds = [
        Seed(
            {m: bm, n: bn, k: depth, rows[0]: _num_rows(situation, warps)},
            warps,
            stages,
            l2_grouping=PANELS_AT_A_TIME,
        )
        for bm, bn, depth, warps, stages in tiles
    ]
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
