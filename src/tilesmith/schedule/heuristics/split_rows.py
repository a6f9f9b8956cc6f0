"""Schedules of products that go to scratch memory, from which their rows are then reduced.

The product gets the tile that it would have alone; of the rows, a program takes as many at a time
as keep all its threads busy. Warps and stages are the product's: its loop is the longer one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tilesmith.schedule.access_facts import AccessFact
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
TILES = ((128, 128, 64, 4, 3), (128, 256, 64, 8, 4), (64, 256, 32, 4, 4))
TILES_OF_WORDS = ((64, 64, 32, 4, 3), (32, 128, 32, 4, 3))
"""Rows, columns and depth of a product, warps and stages.

A multiprocessor has two programs of the first: one multiplies while the other has rows to move.
"""
TILES_TO_KEEP = ((128, 128, 64, 4, 3), (128, 256, 64, 8, 4))
TILES_OF_WORDS_TO_KEEP = ((64, 64, 32, 4, 3), (64, 128, 32, 4, 3))
"""As above, the small ones first; for long contractions the large ones are."""
DEEP = 4096
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
    """A panel's rows are reduced by the last that multiplied some of it; nothing for others."""
    facts, structure = situation.facts, situation.structure
    if len(facts.matmuls) != 1 or not facts.reductions:
        return []
    (fact,) = facts.matmuls
    m, n, k = fact.m.block, fact.n.block, fact.k.block
    others = [block for block in situation.loop_blocks if block not in (n, k)]
    if m is None or n is None or k is None or len(others) != 1:
        return []
    (rows,) = others
    if structure.outer_bounds.get(rows) != m or not counted_loops(structure):
        return []
    tiles = TILES_OF_WORDS if fact.itemsize > 2 else TILES
    seeds = [
        Seed(
            {m: bm, n: bn, k: depth, rows: _num_rows(situation, warps)},
            warps,
            stages,
            l2_grouping=PANELS_AT_A_TIME,
        )
        for bm, bn, depth, warps, stages in tiles
    ]
    options = _copied_operands(situation, fact)
    return [*(replace(seed, options=options) for seed in seeds if options), *seeds]


def exchange_seeds(situation: Situation) -> list[Seed]:
    """Tiles stay in registers, and programs of a panel meet; nothing for kernels of another kind.

    The programs of one multiprocessor should be of several panels: while one waits, another works.
    """
    facts = situation.facts
    if not situation.structure.meetings or len(facts.matmuls) != 1:
        return []
    (fact,) = facts.matmuls
    m, n, k = fact.m.block, fact.n.block, fact.k.block
    if m is None or n is None or k is None:
        return []
    is_deep = fact.k.extent_or(0) >= DEEP
    tiles = TILES_OF_WORDS_TO_KEEP if fact.itemsize > 2 else TILES_TO_KEEP
    seeds = [
        Seed({m: bm, n: bn, k: depth}, warps, stages)
        for bm, bn, depth, warps, stages in (reversed(tiles) if is_deep else tiles)
    ]
    options = _copied_operands(situation, fact, with_results=True)
    return [*(replace(seed, options=options) for seed in seeds if options), *seeds]


def _num_rows(situation: Situation, num_warps: int) -> int:
    """Rows at a time."""
    length = max(fact.axis.extent_or(4096) for fact in situation.facts.reductions)
    elements = ELEMENTS_PER_THREAD * num_warps * situation.target.warp_size
    return max(1, min(MOST_ROWS, elements // length))


def _copied_operands(
    situation: Situation, fact: MatmulFact, *, with_results: bool = False
) -> dict[str, Any]:
    """The option that sends a long product's operands, or all tiles, through the copy engine."""

    def is_wanted(fact: AccessFact) -> bool:
        is_operand = fact.kind == "load" and bool(fact.purpose.sides)
        return is_operand or (with_results and fact.kind == "store")

    if not situation.target.has_tensor_descriptors or not is_long(fact) or fact.itemsize != 2:
        return {}
    options = copied(situation, is_wanted)
    return options if "tensor_descriptor" in options["indexing"] else {}
