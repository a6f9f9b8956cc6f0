"""Schedules of loops like attention with more products in them: gradients, recomputed weights."""

from __future__ import annotations

from tilesmith.backends.triton.heuristics.seed import GpuSeed
from tilesmith.schedule.facts.collect import AttentionFact
from tilesmith.schedule.rules import TargetedKernel
from tilesmith.schedule.schedule import next_power_of_2

ROWS, COLUMNS = 128, 64
HELD_BY_A_THREAD = 200
"""Elements of accumulators and scores; the rest of the registers is for operands and addresses."""
HELD_BY_SHARED = 64 * 128
"""Elements of one operand's tile, of which three stages fit."""


def attention_gradient_seeds(kernel: TargetedKernel) -> list[GpuSeed]:
    """Tiles whose accumulators and scores, all alive at once, fit the registers of eight warps."""
    fact = kernel.facts.attention
    if fact is None or kernel.target.kind != "cuda" or not fact.scores.uses_tensor_cores:
        return []
    sides = (fact.scores.m.block, fact.scores.n.block)
    if _num_products(kernel, fact) <= 2 or not set(sides) <= set(kernel.entries.blocks):
        return []
    bm, bn = _tile(kernel, fact)
    rows, columns = fact.scores.m, fact.scores.n
    is_small = 2 * _held(kernel, fact, bm, bn) <= HELD_BY_A_THREAD * 256
    width = fact.values.n.extent_or(128)
    fastest = (rows.block,) if width < 128 else ()
    stages = 3 if bm * next_power_of_2(width) <= HELD_BY_SHARED else 2
    return [
        GpuSeed(
            {axis.block: size for axis, size in ((rows, bm), (columns, side)) if axis.block},
            4 if is_small else 8,
            depth,
            fastest=fastest,
        )
        for side, depth in ((bn, stages), (max(16, bn // 2), 3))
    ]


def _num_products(kernel: TargetedKernel, fact: AttentionFact) -> int:
    return sum(item.m == fact.scores.m for item in kernel.facts.matmuls)


def _held(kernel: TargetedKernel, fact: AttentionFact, bm: int, bn: int) -> int:
    """Elements of results of products that are alive at the same time."""
    own = [item for item in kernel.facts.matmuls if item.m == fact.scores.m]
    num_scores = sum(item.n == fact.scores.n for item in own)
    width = next_power_of_2(fact.values.n.extent_or(128))
    return bm * (num_scores * bn + (len(own) - num_scores) * width)


def _tile(kernel: TargetedKernel, fact: AttentionFact) -> tuple[int, int]:
    scores, most = fact.scores, HELD_BY_A_THREAD * 256
    bm = min(ROWS, next_power_of_2(max(16, scores.m.extent_or(4096))))
    bn = min(COLUMNS, next_power_of_2(max(16, scores.n.extent_or(4096))))
    if scores.itemsize > 2:
        bn = min(bn, COLUMNS // 2)
    programs = kernel.programs((scores.m.block,))
    while bm > 16 and _held(kernel, fact, bm, bn) > most:
        bm //= 2
    while bm > 64 and programs * -(-scores.m.extent_or(4096) // bm) < kernel.target.num_sms:
        bm //= 2
    return bm, bn
