"""Chunks of rows that several tensors have: what a thread holds of all of them at once."""

from __future__ import annotations

from dataclasses import replace

from tilesmith.backends.triton.heuristics.memory_bound import reduction_seeds
from tilesmith.backends.triton.heuristics.seed import GpuSeed
from tilesmith.ir.types import Dim
from tilesmith.schedule.rules import TargetedKernel

PER_THREAD = 8
"""Elements of each tensor.

Divergence of two softmaxes, 2048x128256, fp32, ms by chunk and warps: 16384, 16 3.36 (1068 bytes of
a thread spilled); 8192, 16 2.81; 8192, 32 2.35; 4096, 16 2.32; 4096, 8 2.89; 2048, 8 2.57.
"""


def several_row_seeds(kernel: TargetedKernel) -> list[GpuSeed]:
    """Shorter chunks where rows of several tensors are reduced together; else nothing."""
    seeds = reduction_seeds(kernel)
    chunks = seeds[0].chunks if seeds else {}
    if len(chunks) != 1 or not all(_meets_others(kernel, dim) for dim in chunks):
        return []
    most = PER_THREAD * kernel.target.warp_size * seeds[0].num_warps
    shorter = {dim: min(chunk, most) for dim, chunk in chunks.items()}
    return [replace(seeds[0], chunks=shorter), *seeds]


def _meets_others(kernel: TargetedKernel, dim: Dim) -> bool:
    """Whether rows of several tensors have this axis, and nothing is stored along it."""
    rows = [fact for fact in kernel.facts.accesses if dim in fact.shape]
    is_read = all(fact.kind == "load" for fact in rows)
    return is_read and len({fact.tensor for fact in rows if len(fact.strides) > 1}) > 1
