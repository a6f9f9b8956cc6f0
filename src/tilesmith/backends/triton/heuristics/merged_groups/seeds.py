"""Tiles of products whose groups are computed as one."""

from __future__ import annotations

from tilesmith.analysis.merged_groups.site import is_merged
from tilesmith.backends.triton.heuristics.matmul import matmul_seeds
from tilesmith.backends.triton.heuristics.seed import GpuSeed, copied
from tilesmith.backends.triton.heuristics.sides.blocks import sized
from tilesmith.schedule.rules import TargetedKernel

TILES = ((128, 256, 64, 8, 4), (128, 128, 64, 4, 3))
"""Rows, columns and depth, warps and stages."""
GROUPING = 8


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
            GROUPING,
            options=options,
            fastest=(fact.m.block, fact.n.block),
        )
        for bm, bn, bk, warps, stages in TILES
    ]
    return [*seeds, *plain]
