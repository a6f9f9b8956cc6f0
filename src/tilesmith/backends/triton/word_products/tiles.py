"""Tiles of products of fp32 by matrix units, and of those that programs keep in registers.

On Hopper what decides is how operands reach the units (``turning.py``), and that multiprocessors
have more than one program: one waits for its operands while another multiplies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, prod

from tilesmith.backends.triton.heuristics.seed import GpuSeed, copied, sized
from tilesmith.backends.triton.word_products.turning import BLACKWELL, HOPPER
from tilesmith.schedule.facts.products import MatmulFact
from tilesmith.schedule.rules import TargetedKernel

Tile = tuple[int, int, int, int, int]
"""Rows, columns and depth of a product, warps and stages."""
LOW_WORDS, LARGE_WORDS, NARROW_WORDS = (32, 128, 32, 4, 3), (64, 128, 64, 8, 3), (64, 64, 32, 4, 3)
"""Tiles of words that programs keep, which should be many where contractions are short.

fp32 on an H200, ms in this order: 1024^3 0.0642, 0.0637, 0.0615; 2048^3 0.52, 0.409, 0.413;
131072x512x2048 6.44, 7.05, 6.56. The best of those whose operands went through the copy engine
were 1 to 2% faster with Triton 3.6; 3.7 makes them spill.
"""
TILES_OF_WORDS: tuple[Tile, ...] = (NARROW_WORDS, LOW_WORDS)
"""Of products whose panels are reduced by the last program."""

GROUPING = 4
"""Rows of tiles that run together: a few percent faster than 1 in all rows that were measured."""
LEAST_SIDE, LEAST_DEPTH = 64, 128
LEAST_WORK = 3 << 30
"""Multiply-adds of 20 us or so: shorter kernels would wait for the host to describe tensors."""


@dataclass(frozen=True)
class _Rung:
    """A tile, and how fast its elements are computed beside those of the first of its ladder."""

    tile: Tile
    speed: float = 1.0
    least_programs: float = 0.0
    """For each multiprocessor."""
    is_copied: bool = False
    """Whether operands come through the copy engine; they have to where they are turned."""


LADDERS: Mapping[str, tuple[_Rung, ...]] = {
    # 4096^3, 2048^3, 1536^3, 1024^3 on an H200, ms: the first 2.28, 0.287, 0.24, -; the second
    # 2.24, 0.299, 0.147, 0.048; cuBLAS without tf32 2.69, 0.343, 0.191, 0.065.
    "tf32x3": (_Rung((256, 64, 32, 8, 3), is_copied=True), _Rung((128, 32, 32, 4, 3), 0.95)),
    # Operands along the sum. 4096^3, 2048^3: 0.372, 0.051; the second 0.406, 0.050; cuBLAS 0.363,
    # 0.050; by the older instructions 0.789.
    "along": (
        _Rung((128, 256, 32, 8, 3), is_copied=True),
        _Rung((128, 128, 32, 4, 3), 0.93, is_copied=True),
        _Rung((128, 64, 32, 4, 4), 0.8),
    ),
    "turned": (
        _Rung((128, 128, 32, 4, 3), is_copied=True),
        _Rung((128, 64, 32, 4, 4), 0.9, is_copied=True),
    ),
    # Other orders, and short kernels: the older instructions. 1024^3: 0.026, 0.020; cuBLAS 0.017.
    "older": (_Rung((128, 64, 32, 2, 4), least_programs=1.5), _Rung((64, 64, 32, 2, 4), 0.85)),
}
"""Tiles of fp32 on Hopper by how operands reach the units, the largest first."""


def word_seeds(kernel: TargetedKernel, fact: MatmulFact) -> list[GpuSeed]:
    """Seeds of a product of fp32 by matrix units whose sides are free; else nothing."""
    if not _is_free(kernel, fact):
        return []
    ladder = LADDERS[_kind(kernel, fact)]
    ranked = sorted(ladder, key=lambda rung: _time(kernel, fact, rung))
    return [_seed(kernel, fact, rung) for rung in ranked]


def _is_free(kernel: TargetedKernel, fact: MatmulFact) -> bool:
    """Whether this is the only product, of a grid that it shares with no loop but that over K."""
    target = kernel.target
    is_hopper = target.kind == "cuda" and HOPPER <= target.capability < BLACKWELL
    is_word = fact.lhs_dtype.bits == fact.rhs_dtype.bits == 32 and fact.uses_tensor_cores
    stepped = {block for loop in kernel.outline.loops for block in loop.blocks}
    tuned = set(kernel.entries.blocks)
    are_tuned = {fact.m.block, fact.n.block} <= tuned - stepped and fact.k.block in tuned
    sides = ((fact.m, LEAST_SIDE), (fact.n, LEAST_SIDE), (fact.k, LEAST_DEPTH))
    is_large = all(axis.extent_or(least) >= least for axis, least in sides)
    return is_hopper and is_word and are_tuned and is_large and len(kernel.facts.matmuls) == 1


def _kind(kernel: TargetedKernel, fact: MatmulFact) -> str:
    """How operands reach the units: by the axes that run along memory."""
    if fact.precision != "tf32":
        return "tf32x3"
    loads = [item for item in kernel.facts.accesses if item.kind == "load" and item.purpose.sides]
    along = {side: item.contiguous_dim for item in loads for side in item.purpose.sides}
    is_long = prod(axis.extent_or(4096) for axis in fact.axes) >= LEAST_WORK
    can_turn = is_long and all(item.fits_descriptor for item in loads)
    if along.get("lhs") != fact.k.dim or along.get("rhs") not in (fact.k.dim, fact.n.dim):
        return "older"
    return "along" if along["rhs"] == fact.k.dim else "turned" if can_turn else "older"


def _time(kernel: TargetedKernel, fact: MatmulFact, rung: _Rung) -> float:
    """Of all waves, in elements of the first rung; endless where programs are too few."""
    bm, bn, *_ = rung.tile
    tiles = -(-fact.m.extent_or(4096) // bm) * -(-fact.n.extent_or(4096) // bn)
    programs = kernel.programs((fact.m.block, fact.n.block)) * tiles
    if programs < rung.least_programs * kernel.target.num_sms:
        return inf
    return -(-programs // kernel.target.num_sms) * bm * bn / rung.speed


def _seed(kernel: TargetedKernel, fact: MatmulFact, rung: _Rung) -> GpuSeed:
    bm, bn, bk, warps, stages = rung.tile
    is_copied = rung.is_copied and kernel.target.has_tensor_descriptors
    options = copied(kernel, lambda item: bool(item.purpose.sides)) if is_copied else {}
    blocks = sized((fact.m, bm), (fact.n, bn), (fact.k, bk))
    fastest = (fact.m.block, fact.n.block)
    return GpuSeed(blocks, warps, stages, GROUPING, options=options, fastest=fastest)
