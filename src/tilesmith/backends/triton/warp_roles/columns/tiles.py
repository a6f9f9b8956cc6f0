"""Tiles of products that fill waves of programs better than powers of two do, by a model of time.

A wave takes as long as one tile, however few of its multiprocessors have one. A tile takes what its
matrix instructions do, or the traffic of its sides; each part of its columns reads the rows from
shared memory again. Constants are of an H200 (bf16), fitted to 14 shapes: they order tiles of one
product, and leave out the first microseconds of a launch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilesmith.backends.triton.heuristics import measured_tiles as measured
from tilesmith.backends.triton.heuristics.matmul import multiply_adds, problem_of
from tilesmith.backends.triton.heuristics.overlap import products as overlap
from tilesmith.backends.triton.warp_roles.columns.splitting import find_columns, part_sizes
from tilesmith.backends.triton.warp_roles.layouts import WARPS_PER_GROUP
from tilesmith.backends.triton.warp_roles.plan import RolePlan
from tilesmith.backends.triton.warp_roles.protocol import LEAST_ROWS
from tilesmith.backends.triton.warp_roles.short_sums import SIDE, has_plain_ends, stores_most
from tilesmith.schedule.facts.products import MatmulFact
from tilesmith.schedule.rules import TargetedKernel, Values
from tilesmith.schedule.space.fragments import EnumFragment
from tilesmith.schedule.space.slots import Slot

NS_PER_CYCLE = 0.62
"""Of a multiprocessor's matrix units."""
INSTRUCTION_DEPTH = 16
ROWS_CYCLES = 16
"""To read the rows of one instruction from shared memory; a column takes a quarter of a cycle."""
NS_PER_SIDE, NS_PER_LATE_SIDE = 0.022, 0.030
"""Traffic of a tile for each step of K: per row and column, and where these begin between sectors,
so that multiprocessors that want the same are served one by one."""
NS_PER_ELEMENT, START_NS = 0.06, 500.0
"""To store the result; to start a program, where one does not load while another stores."""
PAIRED = 0.65
"""Of the modelled time that small tiles take: two programs share a multiprocessor."""
LEAST_GAIN = 1.04
"""Over tiles of powers of two; where both have the same waves, so they have the same times."""
SPLIT_COLUMNS = (96, 144, 160, 192, 320, 384)
GROUPING, STEP = 4, 64


@dataclass(frozen=True)
class RoleSeed:
    """One choice of tiles, groups and stages, and the order of programs."""

    blocks: Mapping[str, int]
    groups: int
    stages: int
    order: tuple[int, ...]
    grouping: int = 1
    is_persistent: bool = True

    def values(self, kernel: TargetedKernel) -> Values:
        """The keys of a Config."""
        entries = kernel.entries
        return {
            "block_sizes": [self.blocks.get(name, 1) for name in entries.blocks],
            "num_warps": self.groups * WARPS_PER_GROUP,
            "num_stages": self.stages,
            "loop_orders": [list(self.order) for _ in entries.ordered[:1]],
            "l2_groupings": [self.grouping for _ in entries.grouped[:1]],
            "pid_type": "persistent_interleaved" if self.is_persistent else "flat",
        }


@dataclass(frozen=True)
class Tile:
    """Sides of a tile, and who computes it."""

    rows: int
    columns: int
    groups: int = 2
    stages: int = 4
    is_walked: bool = True
    """Whether programs have several; those with one tile have room for another stage."""
    programs: int = 1
    """That compute it: each has its share of the rows, and loads its share of the columns."""


TILES = (
    Tile(128, 256, 2, 4),
    Tile(256, 128, 2, 4),
    Tile(192, 128, 3, 5),
    Tile(128, 192, 2, 4),
    Tile(128, 144, 2, 5, False),
    Tile(192, 96, 3, 5, False),
    Tile(128, 320, 2, 4, False),
    Tile(256, 160, 2, 4, False),
    Tile(128, 128, 2, 6),
)


def column_slot(name: str, choices: Sequence[int], whole: int) -> Slot:
    """Columns of a tile: powers of two, and sums of them that pay; no more than there are."""
    valid = (*choices, *SPLIT_COLUMNS)
    searched = EnumFragment(tuple(size for size in valid if size <= whole))
    return Slot(name, EnumFragment(valid), searched, min(choices[-1], whole))


def wave_seeds(kernel: TargetedKernel, plan: RolePlan, tiles: Sequence[Tile]) -> list[RoleSeed]:
    """Tiles of a product alone, the fastest first; nothing for other kernels."""
    fact = find_product(kernel, plan, is_whole=overlap.are_words_stored(kernel))
    if fact is None or fact.m.block is None or fact.n.block is None or fact.k.block is None:
        return []
    able = [t for t in tiles if find_columns(plan) or t.columns.bit_count() == 1]
    ranked = sorted(able, key=lambda tile: tile_time(kernel, fact, tile))
    if tiles is TILES:
        ranked[:0] = [Tile(SIDE, SIDE)] * stores_most(kernel, fact)
        ranked[:0] = [Tile(*overlap.SIDES)] * overlap.do_stores_show(kernel, fact)
    depth = min(STEP, kernel.whole(fact.k.block))
    (grid,) = kernel.outline.grids
    inner = [grid.blocks.index(block) for block in (fact.m.block, fact.n.block)]
    order = (*inner, *(axis for axis in range(len(grid.blocks)) if axis not in inner))
    return [
        RoleSeed(
            {fact.m.block: tile.rows, fact.n.block: tile.columns, fact.k.block: depth},
            *(tile.groups, tile.stages, order, GROUPING, tile.is_walked),
        )
        for tile in ranked
    ]


def do_waves_pay(kernel: TargetedKernel, plan: RolePlan) -> bool:
    """Whether the best of these tiles is faster than the tile that the product has otherwise."""
    fact = find_product(kernel, plan, is_whole=overlap.are_words_stored(kernel))
    if fact is None or not has_plain_ends(kernel, (*plan.before, *plan.after)):
        return False
    do_stores_show = overlap.do_stores_show(kernel, fact)
    if do_stores_show or find_columns(plan) is None:
        return do_stores_show
    if stores_most(kernel, fact) or multiply_adds(fact) < measured.LEAST_WORK:
        return stores_most(kernel, fact)
    plain = Tile(*problem_of(kernel, fact).best_tile())
    least = min(tile_time(kernel, fact, tile) for tile in TILES)
    share = PAIRED if plain.rows * plain.columns <= measured.LEAST_AREA else 1.0
    return share * tile_time(kernel, fact, plain) >= LEAST_GAIN * least


def find_product(
    kernel: TargetedKernel, plan: RolePlan, *, is_whole: bool = False
) -> MatmulFact | None:
    """The only product, of known sizes, whose columns may come in parts unless it ``is_whole``."""
    facts = kernel.facts.matmuls
    is_alone = len(facts) == len(plan.products) == 1 and not plan.early and not plan.rescaling
    if not is_alone or plan.branch is not None or not (is_whole or find_columns(plan)):
        return None
    (fact,) = facts
    is_free = all(axis.block in kernel.entries.blocks and axis.extent for axis in fact.axes)
    return fact if is_free and fact.itemsize == 2 and plan.late[0].lhs is not None else None


def tile_time(kernel: TargetedKernel, fact: MatmulFact, tile: Tile) -> float:
    """Of all waves, in ns."""
    m, n, k = (axis.extent_or(1) for axis in fact.axes)
    each = kernel.programs((fact.m.block, fact.n.block))
    tiles = each * -(-m // tile.rows) * -(-n // tile.columns)
    cycles = sum(max(p / 2, ROWS_CYCLES + p / 4) for p in part_sizes(tile.columns, tile.groups))
    rows, columns = tile.rows // tile.programs, tile.columns / tile.programs
    matrix = cycles * rows / LEAST_ROWS / INSTRUCTION_DEPTH * NS_PER_CYCLE
    late = _late_sides(kernel)
    ns = {side: NS_PER_LATE_SIDE if side in late else NS_PER_SIDE for side in ("lhs", "rhs")}
    traffic = rows * ns["lhs"] + columns * ns["rhs"]
    own = rows * tile.columns * NS_PER_ELEMENT + START_NS * (not tile.is_walked)
    return -(-tiles * tile.programs // kernel.target.num_sms) * (k * max(matrix, traffic) + own)


def _late_sides(kernel: TargetedKernel) -> set[str]:
    """Operands with rows that begin between two sectors."""
    return {
        side
        for item in kernel.facts.accesses
        for side in item.purpose.sides
        for stride in item.strides
        if isinstance(stride, int)
        and stride != 1
        and stride * item.dtype.itemsize % measured.SECTOR_BYTES
    }
