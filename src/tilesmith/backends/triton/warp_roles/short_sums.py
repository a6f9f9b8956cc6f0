"""Products with short sums, such as scores of all heads: what they store takes longest.

A program with one tile loads, multiplies and stores, one after the other. Warps with roles load the
operands of the next tiles while this one is stored. bf16 on an H200, us by pointers / with roles in
tiles of 128x256 / of 128x128: 64 products of 1024x128 by 128x1024 86.3, 53.0, 50.8 (cuBLAS 52.9),
256 of 256x64 by 64x512 43.9, 29.4, 30.2 (31.9).
"""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.memory import Load
from tilesmith.schedule.facts.products import MatmulFact
from tilesmith.schedule.facts.work import TRANSCENDENTAL
from tilesmith.schedule.rules import TargetedKernel

LEAST_BYTES = 20 << 20
"""Of all tensors. 96 products of 256x64 by 64x384, 27 MB: 12.5, by pointers 16.9 (cuBLAS 12.8)."""
SIDE, SHORT = 128, 256
"""Rows and columns of a tile; from as many steps on a sum is not short."""


def stores_most(kernel: TargetedKernel, fact: MatmulFact) -> bool:
    """Whether storing takes longest, of tiles that are nearly all full."""
    is_wide = all(axis.extent_or(0) >= SIDE for axis in (fact.m, fact.n))
    is_long = (kernel.facts.bytes or 0) >= LEAST_BYTES
    return is_wide and is_long and fact.k.extent_or(SHORT) < SHORT


def has_plain_ends(kernel: TargetedKernel, around: Sequence[Operation]) -> bool:
    """Whether arithmetic and vectors are all around the loop: what takes long was not timed."""
    loads = [op.result.tile.shape for op in around if isinstance(op, Load)]
    has_matrix = any(sum(not dim.is_one for dim in shape) > 1 for shape in loads)
    return not has_matrix and not kernel.facts.work.total(TRANSCENDENTAL)
