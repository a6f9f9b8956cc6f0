"""Chunks of rows that several tensors have: what a thread holds of all of them at once."""

from __future__ import annotations

from dataclasses import replace

from tilesmith.backends.triton.heuristics.memory_bound import reduction_seeds
from tilesmith.backends.triton.heuristics.seed import GpuSeed
from tilesmith.ir.types import Dim
from tilesmith.schedule.rules import TargetedKernel

PER_THREAD, WARPS = 8, 8
"""Elements of each tensor, and warps.

Divergence of two softmaxes, 2048x128256, fp32, ms by chunk and warps: 4096, 16 1.296; 2048, 8
1.213; 2048, 16 1.318; 4096, 8 1.377; 8192, 32 1.302. Longer chunks spill."""


def several_row_seeds(kernel: TargetedKernel) -> list[GpuSeed]:
    """Shorter chunks where rows of several tensors are reduced together; else nothing."""
    seeds = reduction_seeds(kernel)
    chunks = seeds[0].chunks if seeds else {}
    if len(chunks) != 1 or not all(_meets_others(kernel, dim) for dim in chunks):
        return []
    warps = min(WARPS, seeds[0].num_warps)
    most = PER_THREAD * kernel.target.warp_size * warps
    shorter = {dim: min(chunk, most) for dim, chunk in chunks.items()}
    return [replace(seeds[0], chunks=shorter, num_warps=warps), *seeds]


def _meets_others(kernel: TargetedKernel, dim: Dim) -> bool:
    """Whether rows of several tensors have this axis, and nothing is stored along it."""
    rows = [fact for fact in kernel.facts.accesses if dim in fact.shape]
    is_read = all(fact.kind == "load" for fact in rows)
    return is_read and len({fact.tensor for fact in rows if len(fact.strides) > 1}) > 1
