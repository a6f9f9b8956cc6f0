"""Configs worth a prediction, beyond what heuristics name: tiles, warps and stages in steps of two.

Which axes are stepped through depends on the facts; everything else stays as in the first seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product, zip_longest

from tilesmith.ir.types import Dim
from tilesmith.schedule.facts.extents import Axis
from tilesmith.schedule.facts.products import MatmulFact
from tilesmith.schedule.heuristics.cpu_seed import CpuSeed, complete_blocks, longest
from tilesmith.schedule.heuristics.matmul import main_product
from tilesmith.schedule.heuristics.pointwise import spread_elements
from tilesmith.schedule.heuristics.seed import Seed, Situation, copied
from tilesmith.schedule.heuristics.several_grids import SeveralGridsSeed
from tilesmith.schedule.schedule import next_power_of_2

SIDES = (16, 32, 64, 128, 256)
DEPTHS = (16, 32, 64, 128)
MOST_TILE, LEAST_TILE = 256 * 256, 1024
CPU_STEPS = (0.25, 0.5, 1.0, 2.0, 4.0)
MAX_CPU_AXES = 3
Blocks = dict[str, int]


def gpu_candidates(situation: Situation, seed: Seed) -> Iterator[Seed]:
    """Seeds around what the facts suggest, without repetitions of the kind of loop order."""
    facts = situation.facts
    if facts.attention is not None:
        scores = facts.attention.scores
        yield from _tiled(situation, seed, _axes(situation, (scores.m, scores.n)), (1, 2, 3, 4))
    elif facts.epilogue is not None:
        matmul = facts.epilogue.matmul
        warps = (4, 8, 16)
        for tile in _tiled(situation, seed, _axes(situation, (matmul.m,)), (1, 2, 3, 4), warps):
            yield from _with_depths(situation, tile, matmul)
    elif facts.matmuls:
        matmul = main_product(facts.matmuls)
        for tile in _tiled(situation, seed, _axes(situation, (matmul.m, matmul.n)), (2, 3, 4, 5)):
            yield from _with_depths(situation, tile, matmul)
    elif facts.reductions:
        yield from _reductions(situation, seed)
    else:
        yield from _elementwise(situation, seed)


def several_grids_candidates(seed: SeveralGridsSeed) -> Iterator[SeveralGridsSeed]:
    """Seeds around that of each top-level loop, in turn, the other loops as they are."""
    series = [
        [seed.with_seed(i, found) for found in gpu_candidates(part.situation, part.seed)]
        for i, part in enumerate(seed.parts)
    ]
    for found in zip_longest(*series):
        yield from (one for one in found if one is not None)


def _axes(situation: Situation, axes: Sequence[Axis]) -> list[str]:
    return [axis.block for axis in axes if axis.block in situation.entries.blocks]


def _sides(situation: Situation, name: str) -> list[int]:
    whole = max(16, situation.whole(name))
    return [size for size in SIDES if situation.minimum(name) <= size <= whole] or [whole]


def _warps(situation: Situation, tile: int) -> tuple[int, ...]:
    if situation.target.kind == "hip":
        return (4, 8)
    if tile <= 4096:
        return (2, 4)
    has_words = any(fact.itemsize == 4 for fact in situation.facts.matmuls)
    return (2, 4, 8) if has_words else (4, 8)


def _tiled(
    situation: Situation,
    seed: Seed,
    names: list[str],
    stages: Sequence[int],
    warps: Sequence[int] = (),
) -> Iterator[Seed]:
    """Sizes of the sides of a product, warps and stages."""
    for sides in product(*(_sides(situation, name) for name in names)):
        tile = 1
        for size in sides:
            tile *= size
        if len(sides) > 1 and not LEAST_TILE <= tile <= MOST_TILE // 2:
            continue
        blocks = {**seed.blocks, **dict(zip(names, sides))}
        for num_warps, num_stages in product(warps or _warps(situation, tile), stages):
            yield replace(seed, blocks=blocks, num_warps=num_warps, num_stages=num_stages)


def _with_depths(situation: Situation, seed: Seed, matmul: MatmulFact) -> Iterator[Seed]:
    """The same tile with every K block; deep ones need few stages."""
    name = matmul.k.block
    if name is None or name not in situation.entries.blocks:
        yield seed
        return
    whole = situation.whole(name)
    for depth in DEPTHS:
        if matmul.min_k <= depth <= whole and depth * seed.num_stages <= 512:
            yield replace(seed, blocks={**seed.blocks, name: depth})


def _reductions(situation: Situation, seed: Seed) -> Iterator[Seed]:
    """Rows of each program, chunks of a row, tiles of loops inside, and warps."""
    grid = [n for n in situation.entries.blocks if n in situation.structure.grid_blocks][-1:]
    inner = list(situation.loop_blocks)[-1:]
    names = [*grid, *inner]
    choices = [
        [1, 2, 4, 8, 16] if name in grid else [512, 1024, 2048, 4096, 8192] for name in names
    ]
    sizes = [
        [min(size, situation.whole(name)) for size in choice]
        for name, choice in zip(names, choices)
    ]
    for blocks in dict.fromkeys(product(*sizes)):
        for chunk, num_warps in product(_chunks(situation), (1, 2, 4, 8, 16, 32)):
            chosen = {**seed.blocks, **dict(zip(names, blocks))}
            yield replace(seed, blocks=chosen, num_warps=num_warps, chunks=chunk)


def _chunks(situation: Situation) -> list[dict[Dim, int]]:
    rolled = situation.entries.rolled
    if not rolled:
        return [{}]
    longest_row = max(situation.structure.extent(dim) or 1 for dim in rolled)
    sizes = [size for size in (1024, 4096, 16384) if 2 * size <= next_power_of_2(longest_row)]
    return [{}, *(dict.fromkeys(rolled, size) for size in sizes)]


def _elementwise(situation: Situation, seed: Seed) -> Iterator[Seed]:
    for exponent, num_warps in product(range(7, 15), (1, 2, 4, 8)):
        blocks = spread_elements(situation, 1 << exponent)
        yield replace(seed, blocks={**seed.blocks, **blocks}, num_warps=num_warps)


def cpu_candidates(situation: Situation, seed: CpuSeed) -> Iterator[CpuSeed]:
    """Blocks up to four times smaller and larger than the seed's, each for itself."""
    names = list(situation.entries.blocks)[-MAX_CPU_AXES:]
    base = complete_blocks(situation, seed.blocks)
    sizes = [_around(situation, name, base[name]) for name in names]
    for blocks in product(*sizes):
        yield replace(seed, blocks={**base, **dict(zip(names, blocks))})


def _around(situation: Situation, name: str, size: int) -> list[int]:
    low, high = situation.minimum(name), longest(situation, name)
    return list(dict.fromkeys(min(max(low, int(size * step)), high) for step in CPU_STEPS))


def with_numbering(situation: Situation, seed: Seed) -> Iterator[Seed]:
    """A good tile with other orders of programs, and with descriptors for its operands."""
    for grouping in (1, 2, 4, 8) if situation.entries.grouped else (1,):
        yield replace(seed, l2_grouping=grouping)
    if situation.target.has_tensor_descriptors:
        by_copies = copied(situation, lambda fact: fact.kind == "load")
        if "tensor_descriptor" in by_copies["indexing"]:
            yield replace(seed, options={**seed.options, **by_copies})
