"""Long rows that are walked in chunks: how long a chunk is.

A thread holds at once what a chunk has of all tensors. Rows whose maxima and sums of powers come
from one walk have a short chunk for each turn.
"""

from __future__ import annotations

from dataclasses import replace

from typing_extensions import override

from tilesmith.backends.triton.heuristics.memory_bound import reduction_seeds
from tilesmith.backends.triton.heuristics.seed import GpuSeed
from tilesmith.backends.triton.heuristics.walkers import has_many
from tilesmith.backends.triton.optimizations.joined_walks import LEAST_BYTES, LOADED_BYTES
from tilesmith.backends.triton.optimizations.power_sums import find_peak
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.types import Dim, Shape
from tilesmith.schedule.facts.products import reductions_by_dim
from tilesmith.schedule.model.program_work import Products, WorkModel
from tilesmith.schedule.rules import TargetedKernel
from tilesmith.schedule.space.sizes import TileSizes

WARPS = 8
PER_THREAD = 8
"""Elements of each tensor.

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


LOADS = 2
"""Of a thread in each turn.

Nothing waits in a turn, so a chunk has to keep loads in flight and no more. Cross entropy of
bfloat16 on an H200, ms by chunk and warps: 4096, 8; 8192, 8; 8192, 16; 16384, 16. 8192x32000
0.1370, 0.1369, 0.1407, 0.1512; 16384x32768 0.2567, 0.2578, 0.2633, 0.2708 (a multiply less); of
131072 all are within 1%."""


def joined_row_seeds(kernel: TargetedKernel) -> list[GpuSeed]:
    """Two loads of a thread where many rows of halves are walked once and never stored.

    Few programs have nothing but their own warps to hide how long loads take.
    """
    seeds = reduction_seeds(kernel)
    chunks = seeds[0].chunks if seeds else {}
    joined = find_joined_rows(kernel)
    rows = [fact for fact in kernel.facts.accesses if joined.intersection(fact.shape)]
    is_read = all(fact.kind == "load" and fact.dtype.itemsize == 2 for fact in rows)
    if not is_read or not joined or not joined.issuperset(chunks) or not has_many(kernel, 1):
        return []
    chunk = LOADS * LOADED_BYTES // 2 * kernel.target.warp_size * WARPS
    shorter = {dim: min(chunk, length) for dim, length in chunks.items()}
    return [replace(seeds[0], chunks=shorter, num_warps=WARPS), *seeds] if chunks else []


class WorkOfJoinedRows(WorkModel):
    """Has one walk less over such rows."""

    def __init__(self, kernel: TargetedKernel, products: Products) -> None:
        super().__init__(kernel.outline, kernel.facts, products)
        self._joined = find_joined_rows(kernel)

    @override
    def passes(self, shape: Shape, sizes: TileSizes) -> int:
        is_joined = any(dim in sizes.rolled for dim in self._joined.intersection(shape))
        return super().passes(shape, sizes) - is_joined


def find_joined_rows(kernel: TargetedKernel) -> frozenset[Dim]:
    """Axes with a maximum and a sum of powers around it alone, where chunks lie aligned."""
    outline, found = kernel.outline, set[Dim]()
    for dim, ops in reductions_by_dim(outline).items():
        sums = [op for op in ops if isinstance(op, Reduce) and op.kind == "sum"]
        peaks = {find_peak(op, outline.definitions) for op in sums}
        loads = [f for f in kernel.facts.accesses if dim in f.shape and f.kind == "load"]
        are_fit = all(f.is_aligned and f.dtype.itemsize >= LEAST_BYTES for f in loads)
        if len(sums) == len(peaks) and peaks and peaks | {*sums} == {*ops} and are_fit:
            found.add(dim)
    return frozenset(found)
