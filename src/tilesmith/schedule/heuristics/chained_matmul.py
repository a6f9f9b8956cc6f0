"""Schedules of products with more around them: attention, and row reductions of the output."""

from __future__ import annotations

from tilesmith.schedule.block_bounds import power_of_2_floor
from tilesmith.schedule.heuristics.seed import Seed, Situation
from tilesmith.schedule.schedule import next_power_of_2

ACCUMULATOR_BYTES = 128 * 1024
STAGED_BYTES = 192 * 1024


def attention_seeds(situation: Situation) -> list[Seed]:
    """Two chained products in one loop: 128 rows, 64 columns at a time, a short pipeline."""
    fact = situation.facts.attention
    if fact is None:
        return []
    target, rows, columns = situation.target, fact.scores.m, fact.scores.n
    width = next_power_of_2(fact.values.n.extent_or(128))
    bm = min(128, next_power_of_2(max(16, rows.extent_or(4096))))
    bn = min(64, next_power_of_2(max(16, columns.extent_or(4096))))
    if width > 128:
        bn = min(bn, 32)
    if not fact.scores.uses_tensor_cores:
        bm, bn = min(bm, 64), min(bn, 32)
    blocks = {axis.block: size for axis, size in ((rows, bm), (columns, bn)) if axis.block}
    is_wide = bm * width >= 16384 and target.kind == "cuda"
    stages = 3 if target.kind == "cuda" and target.capability >= 90 else 2
    warps = 8 if is_wide else 4
    seeds = [Seed(blocks, warps, stages)]
    if target.kind == "cuda":
        seeds.append(Seed(blocks, 12 - warps, 2))
    return seeds


def reduction_epilogue_seeds(situation: Situation) -> list[Seed]:
    """A product whose whole output row stays in registers for a reduction."""
    fact = situation.facts.epilogue
    if fact is None:
        return []
    matmul, rows, depth = fact.matmul, fact.matmul.m.block, fact.matmul.k.block
    if rows is None:
        return []
    n = next_power_of_2(matmul.n.extent_or(1))
    itemsize = matmul.itemsize
    bm = min(64, 128 // itemsize, power_of_2_floor(ACCUMULATOR_BYTES / (4 * n)))
    bm = max(bm, situation.minimum(rows))
    bk = min(32, next_power_of_2(matmul.k.extent_or(32)))
    stages = 3
    if stages * bk * n * itemsize > STAGED_BYTES:
        bk = matmul.min_k
    while stages > 1 and stages * bk * n * itemsize > STAGED_BYTES:
        stages -= 1
    blocks = {rows: bm} if depth is None else {rows: bm, depth: bk}
    return [Seed(blocks, 4 if bm * n <= 16384 else 8, stages)]
