"""The range of a block size: what products need, what is worth searching, and a plain default."""

from __future__ import annotations

from math import prod

from tilesmith.ir.types import Dim
from tilesmith.schedule.facts.collect import Facts
from tilesmith.schedule.facts.outline import FunctionOutline
from tilesmith.schedule.schedule import next_power_of_2
from tilesmith.schedule.space.fragments import BlockSizeFragment, CpuBlockSizeFragment
from tilesmith.schedule.space.tile_sizes import dot_minimums
from tilesmith.targets import Target

UNKNOWN_EXTENT = 4096
MAX_SEARCHED_BLOCK = 1 << 14
MAX_SEARCHED_CPU_BLOCK = 1 << 16
MIN_SEARCHED_DOT_SIDE = 64
CPU_TILE_ELEMENTS = 16384
"""What a kernel of which nothing is known works on at a time."""


def power_of_2_floor(n: float) -> int:
    """The largest power of two that is at most ``n`` (1 for n < 2)."""
    return 1 << max(0, int(n).bit_length() - 1)


def block_minimum(structure: FunctionOutline, facts: Facts, target: Target, name: str) -> int:
    """The least size the block may have: declared in the source, or needed by a matrix product."""
    declared = max(b.low for b in structure.function.blocks if b.name == name)
    return max(declared, dot_minimums(facts.matmuls, target).get(Dim.of(name), 1))


def _maximum(structure: FunctionOutline, facts: Facts, target: Target, name: str) -> int:
    extent = structure.extent(Dim.of(name)) or UNKNOWN_EXTENT
    most = MAX_SEARCHED_BLOCK if target.is_gpu else MAX_SEARCHED_CPU_BLOCK
    high = min(next_power_of_2(extent), most)
    sides = {axis.block for fact in facts.matmuls for axis in (fact.m, fact.n)}
    if name in sides and target.is_gpu:
        high = max(high, MIN_SEARCHED_DOT_SIDE)
    if any(fact.batch is not None and fact.batch.block == name for fact in facts.matmuls):
        # Products of several matrices at once are far slower than one after the other.
        high = 1
    declared = structure.function.block(name).high
    if declared is not None:
        high = min(high, next_power_of_2(declared))
    return high


def _search_floor(structure: FunctionOutline, target: Target, name: str) -> int:
    """Smaller blocks than this would give far more programs than the device can keep busy."""
    extent = structure.extent(Dim.of(name))
    grid = next((grid for grid in structure.grids if name in grid.blocks), None)
    if grid is None or extent is None or not target.is_gpu:
        return 1
    most_programs = (64 * target.num_sms) ** (1 / len(grid.blocks))
    return power_of_2_floor(extent / max(1.0, most_programs))


def plain_default(structure: FunctionOutline, facts: Facts, target: Target) -> int:
    """A block size that suits no kernel especially: smaller the more untiled elements there are."""
    num_blocks = max(1, len(structure.block_slots))
    rows = [fact.axis.extent or 1 for fact in facts.reductions if fact.kind != "tile"]
    slab = prod(map(next_power_of_2, rows))
    if not target.is_gpu:
        return power_of_2_floor((CPU_TILE_ELEMENTS / slab) ** (1 / num_blocks))
    if num_blocks <= 2 and slab <= 128:
        return 32
    if num_blocks >= 3 and slab > 1:
        return power_of_2_floor((32768 / slab) ** (1 / num_blocks))
    return 16 if slab <= 256 else 1


def block_fragment(
    structure: FunctionOutline, facts: Facts, target: Target, name: str
) -> BlockSizeFragment:
    """Bounds and default of one entry of ``block_sizes``."""
    low = next_power_of_2(block_minimum(structure, facts, target, name))
    high = max(low, _maximum(structure, facts, target, name))
    default = min(max(plain_default(structure, facts, target), low), high)
    floor = min(_search_floor(structure, target, name), default)
    fragment = BlockSizeFragment if target.is_gpu else CpuBlockSizeFragment
    return fragment(min(max(low, floor), high), high, default)
