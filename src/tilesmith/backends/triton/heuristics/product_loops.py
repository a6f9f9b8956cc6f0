"""Schedules where one tile is summed up by several loops, or by one whose end is in memory.

Of sequences laid end to end memory knows each length, and shapes the sum of all.
"""

from __future__ import annotations

from dataclasses import replace

from tilesmith.analysis.product_operands import has_loaded_bounds_inside
from tilesmith.backends.triton.heuristics.chained_matmul import attention_seeds
from tilesmith.backends.triton.heuristics.matmul import main_product, matmul_seeds
from tilesmith.backends.triton.heuristics.seed import GpuSeed
from tilesmith.backends.triton.heuristics.tile_sides import sized
from tilesmith.ir.types import next_power_of_2
from tilesmith.schedule.rules import TargetedKernel

DEEPEST, FEWEST_STAGES = 64, 3
RAGGED_ROWS, RAGGED_COLUMNS = 64, 32
WIDEST = 128
LEAST_LENGTH = 1024
"""Below it programs without roles are faster, of which several share a multiprocessor.

bf16 on an H200, heads of 128, ms without / with roles, the best tiles of each: mean length 528
0.133 / 0.183 (no softmax), mean length 2281 2.98 / 2.00.
"""


def several_loop_seeds(kernel: TargetedKernel) -> list[GpuSeed]:
    """Tiles of the main product, with a depth for every other one that has a loop of its own.

    Such loops are short, and other programs hide what a deep pipeline would. A chunked scan in bf16
    on an H200, 128 rows, ms by the depths of its two loops and by stages: 16, 128, 4 0.639;
    16, 64, 4 0.401; 64, 64, 4 0.381; 64, 64, 3 0.369; 64, 64, 2 0.344; 128, 32, 4 0.347;
    64, 32, 3 0.329.
    """
    facts = kernel.facts.matmuls
    blocks = {fact.k.block: fact for fact in facts if fact.is_looped and fact.k.block is not None}
    if len(blocks) < 2 or any(fact.n.block in blocks or fact.m.block in blocks for fact in facts):
        return []
    depths = {
        name: max(fact.min_k, min(DEEPEST, next_power_of_2(fact.k.extent_or(DEEPEST))))
        for name, fact in blocks.items()
    }
    main, least = main_product(facts).k.block, main_product(facts).min_k
    if main is None:
        return []
    return [
        replace(
            seed,
            blocks={**depths, **seed.blocks, main: max(least, seed.blocks[main] // 2)},
            num_stages=min(seed.num_stages, FEWEST_STAGES),
        )
        for seed in matmul_seeds(kernel)
    ]


def ragged_attention_seeds(kernel: TargetedKernel) -> list[GpuSeed]:
    """Small tiles for sequences of any length: many programs, several on each multiprocessor.

    bf16 on an H200, 64 sequences of up to 1024, 4 heads of 128, ms: 128 rows and 64 columns 0.178,
    64 and 64 0.145, 64 and 32 0.133, 32 and 32 0.174.
    """
    fact, grids = kernel.facts.attention, kernel.outline.grids
    if fact is None or kernel.target.kind != "cuda" or fact.scores.itemsize != 2:
        return []
    known, rows = kernel.outline.definitions, fact.scores.m
    tiled = [grid for grid in grids if rows.block in grid.blocks and rows.extent is None]
    is_ragged = any(has_loaded_bounds_inside(grid, known) for grid in tiled)
    if not is_ragged or len(kernel.facts.matmuls) > 2 or fact.values.n.extent_or(WIDEST) > WIDEST:
        return []
    blocks = sized((rows, RAGGED_ROWS), (fact.scores.n, RAGGED_COLUMNS))
    # Tiles and heads of one sequence follow one another.
    orders = [list(reversed(range(len(loop.blocks)))) for loop in kernel.entries.ordered[:1]]
    return [GpuSeed(blocks, 4, 3, options={"loop_orders": orders}), *attention_seeds(kernel)]


def has_short_sequences(kernel: TargetedKernel) -> bool:
    """Whether tiles of rows that memory bounds have few rows on average."""
    chained = kernel.facts.attention
    if chained is None or chained.scores.m.extent is not None:
        return False
    rows = chained.scores.m
    sequences = kernel.programs((rows.block,))
    means = [
        fact.distinct / (sequences * fact.untiled_elements(kernel.outline))
        for fact in kernel.facts.accesses
        if rows.dim in fact.shape and fact.distinct
    ]
    return bool(means) and min(means) < LEAST_LENGTH
