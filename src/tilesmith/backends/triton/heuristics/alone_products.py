"""Programs that have a multiprocessor each: its shared memory is theirs alone.

A compressed product of 64x1024x256x64 in bf16 (64 programs on an H200), ms with 3 and 4 stages:
0.0365, 0.0342; its gradients with 16 and 32 rows a turn 0.105, 0.092, so with four warps 0.081.
"""

from __future__ import annotations

from dataclasses import replace

from tilesmith.backends.triton.heuristics.matmul import matmul_seeds
from tilesmith.backends.triton.heuristics.measured_tiles import is_alone
from tilesmith.backends.triton.heuristics.narrow_products import walked_rows_seeds
from tilesmith.backends.triton.heuristics.seed import GpuSeed
from tilesmith.schedule.rules import TargetedKernel

STAGES, ROWS, WARPS = 4, 32, 4


def walked_product_seeds(kernel: TargetedKernel) -> list[GpuSeed]:
    """A loop that sums up a tile, and one that walks rows by it; else nothing."""
    walked = walked_rows_seeds(kernel)
    if kernel.outline.grid_blocks or not is_alone(kernel):
        return walked
    if walked:
        return [replace(walked[0], num_stages=STAGES), *walked]
    facts = kernel.facts.matmuls
    summed = {fact.k.block for fact in facts if fact.m.block is fact.n.block is None}
    rows = {block for fact in facts for block in (fact.m.block, fact.n.block) if block}
    is_known = all(fact.itemsize == 2 and fact.is_looped for fact in facts)
    if len(facts) < 3 or len(summed) != 1 or None in summed or len(rows) != 1 or not is_known:
        return []
    seeds, more = matmul_seeds(kernel), dict.fromkeys(rows, ROWS)
    return [replace(s, blocks={**s.blocks, **more}, num_warps=WARPS) for s in seeds] + seeds
