"""Products whose tiles one program for each group would walk: how they are spread."""

from __future__ import annotations

from dataclasses import replace

from tilesmith.analysis.spread_loops import SHARES, shares_of
from tilesmith.backends.triton.heuristics.matmul import matmul_seeds
from tilesmith.backends.triton.heuristics.seed import GpuSeed, copied
from tilesmith.backends.triton.heuristics.tile_sides import sized
from tilesmith.schedule.rules import TargetedKernel

MOST_GROUPS_PER_SM = 2
"""With more groups than these for each multiprocessor all are busy anyway."""
PROGRAMS = 8
"""That share the rows of a group."""
TILES = ((128, 256, 64, 8, 4), (128, 128, 64, 4, 3), (64, 256, 64, 4, 4))
"""Rows, columns and depth, warps and stages.

bf16 on an H200, us: 16 groups of up to 1024 rows by 4096x4096 363, 410, 391 (one product of all
rows by cuBLAS 296; a program for each group 5333, workers that walk all groups 657); 4 groups by
1024x1024 18.0, 17.5, 19.3 (14.6); 64 groups of up to 512 rows by 2048x4096 530, 554, 582 (382).
Four or sixteen programs for a group instead of eight: 409, 427 instead of 410.
"""


def group_seeds(kernel: TargetedKernel) -> list[GpuSeed]:
    """Tiles of which two programs share a multiprocessor; nothing for kernels of another kind."""
    shares, facts = shares_of(kernel.outline.function), kernel.facts.matmuls
    if shares is None or len(facts) != 1:
        return []
    (fact,), parts = facts, {shares: SHARES // PROGRAMS}
    plain = [replace(s, blocks={**s.blocks, **parts}) for s in matmul_seeds(kernel)]
    plain = [replace(seed, fastest=(shares, *seed.fastest)) for seed in plain]
    if not fact.uses_tensor_cores or fact.itemsize != 2 or kernel.target.kind != "cuda":
        return plain
    options = copied(kernel, lambda item: item.kind == "load" and bool(item.purpose.sides))
    seeds = [
        GpuSeed(
            {**sized((fact.m, bm), (fact.n, bn), (fact.k, bk)), **parts},
            warps,
            stages,
            options=options,
            fastest=(shares, fact.n.block),
        )
        for bm, bn, bk, warps, stages in TILES
    ]
    return [*seeds, *plain]
