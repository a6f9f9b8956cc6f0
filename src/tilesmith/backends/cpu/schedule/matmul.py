"""CPU schedules of matrix products: panels sized for the caches, tiles for every core.

A panel of B (K block by the register block's columns) is as large as the first cache, a tile of A
(M block by K block) and the accumulator stay in the second.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tilesmith.backends.cpu.dots.joined_steps import most_steps
from tilesmith.backends.cpu.planning.one_column import is_sum_of_rows
from tilesmith.backends.cpu.planning.virtual_tiles import (
    VirtualTiles,
    find_matrix,
    find_stored,
)
from tilesmith.backends.cpu.schedule.groups import share_blocks
from tilesmith.backends.cpu.schedule.heuristics import (
    PROGRAMS_PER_CORE,
    CpuSeed,
    count_beside,
    longest,
    programs_share,
)
from tilesmith.dtypes import BF16
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.types import next_power_of_2
from tilesmith.schedule.facts.extents import Axis
from tilesmith.schedule.facts.fact_set import AttentionFact
from tilesmith.schedule.facts.products import MatmulFact
from tilesmith.schedule.rules import TargetedKernel
from tilesmith.schedule.space.sizes import power_of_2_floor

MAX_K, MAX_N, MAX_FLAT_N = 256, 512, 1024
MAX_ACCUMULATOR = 256 << 10
"""Bytes; a flat tile reads A less often. Measured: 64 by 1024 is 3% faster than 128 by 512."""
LEAST_SIDE = 64
"""Smaller tiles would be read and packed more often than idle cores cost."""
MAX_ROW = 1 << 14
NEAR_BYTES = 512
"""Rows of B so close to each other are not packed."""
ATTENTION_SIDE = 128
ACCUMULATOR_PART = 16
"""Of the second cache, for rows that are reduced right after the product."""


def _panel_sides(kernel: TargetedKernel, fact: MatmulFact) -> tuple[int, int]:
    """K by what of B stays in the first cache, M by what of A stays in the second."""
    target, itemsize, most = kernel.target, max(4, fact.acc_dtype.itemsize), MAX_K
    steps = most_steps(fact.lhs_dtype, fact.rhs_dtype, target)
    itemsize, most = itemsize // steps, most * steps
    columns = 2 * target.vector_lanes
    k = min(most, power_of_2_floor(target.l1_bytes / (columns * itemsize)))
    m = power_of_2_floor(target.l2_bytes / (8 * k * itemsize))
    if _is_computed(kernel, fact):
        # It is written and read again before anything else of its column comes.
        return min(k, power_of_2_floor(target.l2_bytes / (4 * MAX_N * itemsize))), m
    # Twice a panel in one go costs less than adding to the accumulator once more.
    whole = next_power_of_2(fact.k.extent_or(2 * k + 1))
    return whole if whole <= 2 * k else k, m


def _dot(kernel: TargetedKernel, fact: MatmulFact) -> Dot:
    return kernel.outline.ops(Dot)[kernel.facts.matmuls.index(fact)]


def _is_computed(kernel: TargetedKernel, fact: MatmulFact) -> bool:
    """Whether the tile of B lies in scratch memory, because no tensor holds it."""
    dot, tiles = _dot(kernel, fact), VirtualTiles(kernel.outline.definitions)
    return find_stored(dot.rhs, tiles) is None and find_matrix(dot.rhs, tiles) is None


def _tile(kernel: TargetedKernel, fact: MatmulFact, most_rows: int) -> tuple[int, int]:
    """The sides of an output tile, small enough for every core to have its programs."""
    others = count_beside(kernel, fact.m.block, fact.n.block)
    m, n = fact.m.extent_or(4096), fact.n.extent_or(4096)
    most = max(LEAST_SIDE, most_rows // 2) if _packs_once(kernel, fact) else most_rows
    bm = min(most, _side(kernel, fact.m, m))
    bn = min(_widest(kernel, bm), _side(kernel, fact.n, n))
    grid = kernel.outline.grid_blocks
    cuts_rows, cuts_columns = fact.m.block in grid, fact.n.block in grid

    def has_fewer_than(wanted: int) -> bool:
        rows = -(-m // bm) if cuts_rows else 1
        columns = -(-n // bn) if cuts_columns else 1
        return others * rows * columns < wanted

    cores = kernel.target.num_sms
    while bm > LEAST_SIDE and cuts_rows and has_fewer_than(PROGRAMS_PER_CORE * cores):
        bm //= 2
    while bn > LEAST_SIDE and cuts_columns and has_fewer_than(cores):
        bn //= 2
    return bm, bn


def _widest(kernel: TargetedKernel, rows: int) -> int:
    """The most columns of a tile of that many rows: its accumulator leaves room for A."""
    if rows < LEAST_SIDE:
        return MAX_N
    room = min(MAX_ACCUMULATOR, kernel.target.l2_bytes // 4) // (4 * rows)
    return max(MAX_N, min(MAX_FLAT_N, power_of_2_floor(room)))


def _packs_once(kernel: TargetedKernel, fact: MatmulFact) -> bool:
    """Whether programs share one packed copy of B, so that short tiles cost no more packing."""
    is_alone = fact.batch is None and count_beside(kernel, fact.m.block, fact.n.block) == 1
    is_cut = is_alone and fact.m.block in kernel.outline.grid_blocks
    is_near = fact.n.extent_or(4096) * fact.acc_dtype.itemsize <= NEAR_BYTES
    in_tiles = kernel.target.has_matrix_tiles and fact.lhs_dtype == fact.rhs_dtype == BF16
    return is_cut and not is_near and not in_tiles


def _side(kernel: TargetedKernel, axis: Axis, extent: int) -> int:
    return next_power_of_2(extent) if axis.block is None else longest(kernel, axis.block)


def _work(fact: MatmulFact) -> int:
    return fact.m.extent_or(4096) * fact.n.extent_or(4096) * fact.k.extent_or(4096)


def _sides(kernel: TargetedKernel, fact: MatmulFact) -> tuple[int, int, int]:
    """M, N and K of a tile."""
    if is_sum_of_rows(_dot(kernel, fact)):
        # These are sums along rows: few rows, whole.
        m = fact.m.extent_or(4096)
        rows = max(1, min(LEAST_SIDE, programs_share(kernel, m)))
        return rows, 1, min(MAX_ROW, next_power_of_2(fact.k.extent_or(MAX_ROW)))
    k, most_rows = _panel_sides(kernel, fact)
    return (*_tile(kernel, fact, most_rows), k)


def _product_blocks(kernel: TargetedKernel) -> dict[str, int]:
    """Sizes for the axes of all products, the one with most work first."""
    blocks: dict[str, int] = {}
    for fact in sorted(kernel.facts.matmuls, key=_work, reverse=True):
        for axis, size in zip(fact.axes, _sides(kernel, fact)):
            # An axis of pairs is twice as long as the block it is made of.
            names = axis.dim.symbols
            if len(names) == 1 and names[0] in kernel.entries.blocks:
                factor = prod(part for part in axis.dim.factors if isinstance(part, int))
                blocks.setdefault(names[0], max(1, size // factor))
        if fact.batch is not None and fact.batch.block in kernel.entries.blocks:
            blocks.setdefault(fact.batch.block, 1)
    return blocks


def matmul_seeds(kernel: TargetedKernel) -> list[CpuSeed]:
    """A seed for all products, and variants with half as many rows and a longer row."""
    facts = kernel.facts.matmuls
    if not facts:
        return []
    main = max(facts, key=_work)
    blocks = _product_blocks(kernel)
    blocks.update(_split_blocks(kernel, main, blocks))
    rows, shares = main.m.block, share_blocks(kernel)
    if shares and rows is not None:
        # Groups are cut where tiles are; how long they are is not known.
        blocks.update({**shares, rows: min(blocks.get(rows, LEAST_SIDE), LEAST_SIDE)})
    seeds = [CpuSeed(blocks)]
    if rows is not None and blocks.get(rows, 1) > LEAST_SIDE:
        seeds.append(CpuSeed({**blocks, rows: blocks[rows] // 2}))
    return seeds


def _split_blocks(
    kernel: TargetedKernel, fact: MatmulFact, blocks: Mapping[str, int]
) -> dict[str, int]:
    """Where programs also split K (into tuned tiles), as many splits as give each core one."""
    outer = kernel.outline.outer_bounds.get(fact.k.block or "")
    if not isinstance(outer, str) or outer not in kernel.entries.blocks:
        return {}
    tiles = count_beside(kernel, fact.m.block, fact.n.block, outer)
    for axis in (fact.m, fact.n):
        tiles *= -(-axis.extent_or(4096) // blocks.get(axis.block or "", axis.extent_or(4096)))
    splits = max(1, power_of_2_floor(kernel.target.num_sms / max(1, tiles)))
    return {outer: next_power_of_2(-(-kernel.extent(outer) // splits))}


def reduction_epilogue_seeds(kernel: TargetedKernel) -> list[CpuSeed]:
    """A product whose whole output row is reduced: the accumulator takes a part of the cache."""
    fact = kernel.facts.epilogue
    if fact is None or fact.matmul.m.block not in kernel.entries.blocks:
        return []
    blocks = _product_blocks(kernel)
    rows = fact.matmul.m.block
    row_bytes = max(4, fact.matmul.acc_dtype.itemsize) * max(1, fact.matmul.n.extent_or(1))
    room = kernel.target.l2_bytes / ACCUMULATOR_PART / row_bytes
    fitting = max(16, power_of_2_floor(room))
    return [CpuSeed({**blocks, rows: min(blocks[rows], size)}) for size in (fitting, 2 * fitting)]


def attention_seeds(kernel: TargetedKernel) -> list[CpuSeed]:
    """Two chained products in one loop."""
    fact = kernel.facts.attention
    if fact is None:
        return []
    sides = (ATTENTION_SIDE, ATTENTION_SIDE // 2)
    return [CpuSeed(_attention_blocks(kernel, fact, side)) for side in sides]


def _attention_blocks(kernel: TargetedKernel, fact: AttentionFact, side: int) -> dict[str, int]:
    rows, columns = fact.scores.m, fact.scores.n
    blocks = _product_blocks(kernel)
    programs = count_beside(kernel, rows.block)
    least = PROGRAMS_PER_CORE * kernel.target.num_sms
    bq = side
    while bq > LEAST_SIDE and programs * -(-rows.extent_or(4096) // bq) < least:
        bq //= 2
    chosen = {axis.block: size for axis, size in ((rows, bq), (columns, side)) if axis.block}
    return {**blocks, **{n: s for n, s in chosen.items() if n in kernel.entries.blocks}}
