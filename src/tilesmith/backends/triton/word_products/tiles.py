"""Tiles of products of fp32 by matrix units, and of those that programs keep in registers.

On Hopper what decides is how operands reach the units (``turning.py``), and that multiprocessors
have more than one program: one waits for its operands while another multiplies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilesmith.backends.triton.heuristics.seed import GpuSeed, copied, sized
from tilesmith.backends.triton.word_products.turning import BLACKWELL, HOPPER
from tilesmith.schedule.facts.products import MatmulFact
from tilesmith.schedule.rules import TargetedKernel
from tilesmith.schedule.space.sizes import power_of_2_floor

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

PROGRAMS_PER_SM = 1.5
"""On average, at least: tiles are halved until there are so many."""
GROUPING = 4
"""Rows of tiles that run together: a few percent faster than 1 in all rows that were measured."""
LEAST_SIDE = 64
LEAST_DEPTH = 128


@dataclass(frozen=True)
class _Ladder:
    """Tiles by area, the largest first, as an H200 liked them best."""

    tiles: tuple[Tile, ...]
    is_copied: bool = True
    """Whether operands of the largest come through the copy engine."""


LADDERS: Mapping[str, _Ladder] = {
    # 4096^3, ms: so 2.29; (128, 64) 2.43; (64, 64) 2.60; (128, 128) 3.8; cuBLAS fp32 2.69.
    "tf32x3": _Ladder(((256, 64, 32, 8, 3), (128, 64, 32, 4, 3), (64, 64, 32, 2, 4))),
    # Operands along the sum. 4096^3: so 0.418, older instructions 0.789, cuBLAS 0.370.
    "along": _Ladder(((128, 128, 32, 4, 3), (128, 64, 32, 4, 4), (64, 64, 32, 2, 4))),
    # Products of transposes. 4096^3: so 0.50, older instructions 0.70, cuBLAS 0.341.
    "turned": _Ladder(((128, 128, 32, 8, 4), (128, 64, 32, 2, 4), (64, 64, 32, 2, 4))),
    # Operands that would have to be turned in shared memory: the older instructions.
    "older": _Ladder(((128, 64, 32, 2, 4), (64, 64, 32, 2, 4)), is_copied=False),
}
"""Of operands of fp32 on Hopper."""


def word_seeds(kernel: TargetedKernel, fact: MatmulFact, *, is_long: bool) -> list[GpuSeed]:
    """Seeds of a product of fp32 by matrix units whose sides are free; else nothing."""
    target = kernel.target
    is_hopper = target.kind == "cuda" and HOPPER <= target.capability < BLACKWELL
    is_word = fact.lhs_dtype.bits == fact.rhs_dtype.bits == 32 and fact.uses_tensor_cores
    stepped = {block for loop in kernel.outline.loops for block in loop.blocks}
    sides = (fact.m.block, fact.n.block)
    is_free = all(block in kernel.entries.blocks and block not in stepped for block in sides)
    is_deep = fact.k.block is not None and fact.k.extent_or(LEAST_DEPTH) >= LEAST_DEPTH
    if not (is_hopper and is_word and is_free and is_deep and len(kernel.facts.matmuls) == 1):
        return []
    ladder = LADDERS[_kind(kernel, fact)]
    first = next((i for i, tile in enumerate(ladder.tiles) if _fills(kernel, fact, tile)), -1)
    order = (ladder.tiles[first], *(tile for tile in ladder.tiles if tile != ladder.tiles[first]))
    is_copied = ladder.is_copied and is_long and order[0] == ladder.tiles[0]
    options = copied(kernel, lambda item: bool(item.purpose.sides)) if is_copied else {}
    seeds = [_seed(fact, tile) for tile in order]
    by_copies = GpuSeed(
        seeds[0].blocks, *order[0][3:], GROUPING, options=options, fastest=seeds[0].fastest
    )
    return [*([by_copies] if options else []), *seeds]


def _kind(kernel: TargetedKernel, fact: MatmulFact) -> str:
    """How operands reach the units: by the axes that run along memory."""
    if fact.precision != "tf32":
        return "tf32x3"
    loads = [item for item in kernel.facts.accesses if item.kind == "load" and item.purpose.sides]
    along = {side: item.contiguous_dim for item in loads for side in item.purpose.sides}
    lhs, rhs = along.get("lhs"), along.get("rhs")
    if lhs is None or lhs != fact.k.dim:
        return "older"
    return "along" if rhs == fact.k.dim else "turned" if rhs == fact.n.dim else "older"


def _fills(kernel: TargetedKernel, fact: MatmulFact, tile: Tile) -> bool:
    """Whether there are enough tiles, and none is larger than the output."""
    m, n = fact.m.extent_or(4096), fact.n.extent_or(4096)
    is_held = all(
        power_of_2_floor(max(LEAST_SIDE, extent)) >= side for extent, side in zip((m, n), tile)
    )
    count = kernel.programs((fact.m.block, fact.n.block)) * -(-m // tile[0]) * -(-n // tile[1])
    return is_held and count >= PROGRAMS_PER_SM * kernel.target.num_sms


def _seed(fact: MatmulFact, tile: Tile) -> GpuSeed:
    bm, bn, bk, warps, stages = tile
    blocks = sized((fact.m, bm), (fact.n, bn), (fact.k, bk))
    return GpuSeed(blocks, warps, stages, GROUPING, fastest=(fact.m.block, fact.n.block))
