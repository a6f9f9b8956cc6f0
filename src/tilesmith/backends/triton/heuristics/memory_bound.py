"""Schedules of elementwise kernels and of reductions of rows and of columns.

Elementwise kernels are wide along memory, with a few vectors per thread. Whole rows stay in
registers where they fit, long chunks where not.
"""

from __future__ import annotations

import math
from math import prod

from tilesmith.backends.triton.heuristics import measured_memory
from tilesmith.backends.triton.heuristics import measured_tiles as measured
from tilesmith.backends.triton.heuristics.overlap import rows as overlap
from tilesmith.backends.triton.heuristics.seed import GpuSeed
from tilesmith.ir.types import next_power_of_2
from tilesmith.schedule.facts.accesses import AccessFact
from tilesmith.schedule.facts.fact_set import PointwiseFact
from tilesmith.schedule.facts.products import ReductionFact
from tilesmith.schedule.rules import TargetedKernel
from tilesmith.schedule.space.sizes import power_of_2_floor

RESIDENT_ELEMENTS = 32768
"""The longest row kept in registers when it is stored after its reduction."""
RESIDENT_ELEMENTS_READ = 16384
"""The longest one otherwise. Cross entropy of 32000 in bf16 on an H200, ms: in registers 0.248, in
chunks of 16384 0.194 (32 warps: 0.230), of 8192 0.189; of 128256: 0.516 in chunks of 16384."""
CHUNK, LONG_CHUNK = 8192, 16384
LONG_ROW = 65536
TILE_ELEMENTS = 2048
HELD_ELEMENTS = 8192
"""Of a tile with axes that no block cuts: half the registers of four warps."""
LOOP_TILE_ELEMENTS = 4096
WARP_ELEMENTS = 64
"""Two for each lane: fewer are not worth another warp."""


def _rows_blocks(kernel: TargetedKernel, fact: ReductionFact) -> list[str]:
    """Tunable blocks that share a tile with the reduced axis, outermost first."""
    dim = fact.axis.dim
    tiles = [v.tile.shape for v in kernel.outline.tile_values if dim in v.tile.shape]
    symbols = {symbol for shape in tiles for other in shape for symbol in other.symbols}
    own = set(dim.symbols)
    return [name for name in kernel.entries.blocks if name in symbols - own]


def _own_and_walked(kernel: TargetedKernel, fact: ReductionFact) -> tuple[list[str], list[str]]:
    """The same apart: blocks of the program, and of loops that walk rows of others."""
    names, walking = _rows_blocks(kernel, fact), _walking_loops(kernel)
    return [n for n in names if n not in walking], [n for n in walking if n in names]


def _num_rows(kernel: TargetedKernel, blocks: list[str], width: int) -> int:
    """Rows per program: enough work for the lanes, but eight programs for each multiprocessor."""
    total = prod(map(kernel.extent, blocks))
    share = power_of_2_floor(total / (8 * kernel.target.num_sms))
    return max(1, min(TILE_ELEMENTS // width, share))


def _row_tiles(kernel: TargetedKernel, fact: ReductionFact, width: int) -> dict[str, int]:
    """Rows of that length: of a program, and of each step of the loops that walk them.

    Steps of a loop make no programs, so they take as many rows as fill a tile; where a tile has
    rows of the program too, both have as many.
    """
    own, walked = _own_and_walked(kernel, fact)
    most = min(_num_rows(kernel, own, width), HELD_ELEMENTS // (width * _slab(kernel, fact)))
    rows = measured.rows_of_steps(max(1, most), is_serial=is_serial(kernel))
    room = max(1, LOOP_TILE_ELEMENTS // width)
    if own and walked:
        rows = min(rows, power_of_2_floor(room**0.5))
    left = max(1, room // rows)
    tiles = {name: min(kernel.whole(name), left) for name in walked}
    return {**dict.fromkeys(own[-1:], rows), **tiles}


def _slab(kernel: TargetedKernel, fact: ReductionFact) -> int:
    """Elements beside one of the row that no block cuts, in the largest tile along the row."""
    dim, blocks = fact.axis.dim, set(kernel.entries.blocks)
    shapes = {v.tile.shape for v in kernel.outline.tile_values if dim in v.tile.shape}
    others = [[d for d in shape if d != dim and blocks.isdisjoint(d.symbols)] for shape in shapes]
    extent = kernel.outline.extent
    return max((prod(max(1, extent(d) or 1) for d in dims) for dims in others), default=1)


def is_serial(kernel: TargetedKernel) -> bool:
    """Whether programs count through indices, one step after the other."""
    return any(not any(loop.blocks) for loop in kernel.outline.loops)


def _walking_loops(kernel: TargetedKernel) -> list[str]:
    """Blocks of loops that do not walk a tile of their own program."""
    bounded = kernel.outline.outer_bounds
    return [name for name in kernel.loop_blocks if not isinstance(bounded.get(name), str)]


def _shares(kernel: TargetedKernel, num_warps: int) -> dict[str, int]:
    """Tiles of programs that walk them in smaller ones: sixteen warps for each multiprocessor.

    What such a program adds up it stores once, so fewer programs store less.
    """
    outer = set(kernel.outline.outer_bounds.values())
    names = [name for name in kernel.outline.grid_blocks if name in outer]
    tuned = [name for name in names if name in kernel.entries.blocks]
    programs = kernel.target.num_sms * max(1, 16 // max(8, num_warps))
    return {name: next_power_of_2(-(-kernel.extent(name) // programs)) for name in tuned}


def _whole_row_seed(kernel: TargetedKernel, fact: ReductionFact, chunk: int | None) -> GpuSeed:
    length, is_stored = chunk or fact.axis.extent_or(1024), overlap.is_stored(kernel, fact)
    width, blocks = next_power_of_2(length), _row_tiles(kernel, fact, next_power_of_2(length))
    rows = prod(blocks.get(name, 1) for name in _own_and_walked(kernel, fact)[0])
    warps = measured_memory.warps_of_rows(
        kernel, length, rows, is_stored=is_stored and chunk is None
    )
    is_held = chunk is None and not is_stored
    if is_held:
        warps = overlap.warps_of_read_rows(kernel, fact.axis.dim, rows, length, warps)
    if measured_memory.is_walker(kernel) and chunk is None:
        warps = measured_memory.warps_of_walkers(length)
    blocks = {**_shares(kernel, warps), **blocks}
    for name in kernel.loop_blocks:
        blocks.setdefault(name, min(kernel.whole(name), max(1, LOOP_TILE_ELEMENTS // width)))
    is_read_once = not fact.is_reread and len(kernel.entries.evictable) == 1
    first = {"load_eviction_policies": ["first"]}
    options = first if is_read_once else measured_memory.rows_ahead(kernel, blocks)
    options = options or (measured_memory.passing_rows(kernel, fact.axis.dim) if is_held else {})
    chunks = {} if chunk is None else {fact.axis.dim: chunk}
    # Chunks of rows that are stored follow one another: more warps have more loads in flight.
    warps = min(32, 2 * warps) if chunk is not None and is_stored else warps
    if is_serial(kernel):
        # Each step waits for the one before: other warps of a small tile would only wait, too.
        rows = prod(blocks.get(name, 1) for name in _rows_blocks(kernel, fact))
        warps = min(warps, power_of_2_floor(rows * width * _slab(kernel, fact) / WARP_ELEMENTS))
    return GpuSeed(blocks, warps, 1, 1, chunks, options)


def reduction_seeds(kernel: TargetedKernel) -> list[GpuSeed]:
    """A seed for the longest reduction, and the other form of it where there is one."""
    facts = kernel.facts.reductions
    if not facts or kernel.facts.matmuls:
        return []
    rows = [fact for fact in facts if fact.kind != "tile"]
    if not rows:
        return walked_columns_seeds(kernel) or [measured_memory.tile_seed(kernel)]
    primary = max(rows, key=lambda fact: fact.axis.extent_or(1024))
    columns = whole_columns_seeds(kernel, primary)
    if columns:
        return columns
    length = next_power_of_2(primary.axis.extent_or(1024))
    own, walked = _own_and_walked(kernel, primary)
    if length <= measured.THREAD_ROW and measured.do_rows_meet(kernel, primary, own, walked):
        return [measured.thread_rows_seed(kernel, own, walked)]
    resident = _whole_row_seed(kernel, primary, None)
    if primary.kind != "rollable" or length <= 64:
        return [resident]
    is_stored = overlap.is_stored(kernel, primary)
    if not is_stored and length >= measured.ALONE_CHUNK and measured.is_alone(kernel):
        return [_whole_row_seed(kernel, primary, measured.ALONE_CHUNK), resident]
    chunk = CHUNK if length <= LONG_ROW and not is_stored else LONG_CHUNK
    looped = _whole_row_seed(kernel, primary, min(chunk, length // 2))
    most = RESIDENT_ELEMENTS if is_stored else RESIDENT_ELEMENTS_READ
    return [resident, looped] if length <= most else [looped, resident]


COLUMN_TILE_ELEMENTS = 8192
WIDTH, LEAST_WIDTH = 128, 32
COLUMN_PROGRAMS_PER_SM = 8


def walked_columns_seeds(kernel: TargetedKernel) -> list[GpuSeed]:
    """A seed where all tiles that loops walk are of that kind; else nothing."""
    walked = [fact for fact in kernel.facts.accesses if _walked_blocks(kernel, fact)]
    names = [_column_block(kernel, fact) for fact in walked]
    blocks = {name: _width(kernel, name) for name in names if name is not None}
    if not walked or None in names:
        return []
    for fact in walked:
        left = COLUMN_TILE_ELEMENTS // blocks[fact.contiguous_block or ""]
        for name in _walked_blocks(kernel, fact):
            blocks.setdefault(name, max(1, min(kernel.whole(name), left)))
            left //= blocks[name]
    names = list(dict.fromkeys(filter(None, names)))
    return [GpuSeed(*measured_memory.columns_by_programs(kernel, blocks, names))]


def whole_columns_seeds(kernel: TargetedKernel, fact: ReductionFact) -> list[GpuSeed]:
    """A seed for columns of a tensor's whole axis, where loads run across it; else nothing."""
    dim = fact.axis.dim
    loads = [a for a in kernel.facts.accesses if a.kind == "load" and dim in a.shape]
    # Weights of the rows are short beside what they weigh.
    most = max((_num_axes(access) for access in loads), default=0)
    names = {_column_block(kernel, access) for access in loads if _num_axes(access) == most}
    name = next(iter(names)) if len(names) == 1 else None
    if name is None:
        return []
    width, length = _width(kernel, name), next_power_of_2(fact.axis.extent_or(1024))
    programs = kernel.programs((name,)) * -(-kernel.extent(name) // width)
    # Programs that are alone on their multiprocessor have to keep more in flight.
    elements, warps = (16384, 8) if programs > 2 * kernel.target.num_sms else (32768, 16)
    rows = elements // width
    is_chunked = fact.kind == "rollable" and length > rows
    blocks = {name: width, **_other_axis(kernel, name, programs, rows // min(rows, length))}
    if width * length < COLUMN_TILE_ELEMENTS:
        # A warp for two thousand elements: four would wait for each other.
        warps = 4 if prod(blocks.values()) * length > TILE_ELEMENTS else 1
    return [GpuSeed(blocks, warps, chunks={dim: rows} if is_chunked else {})]


def _num_axes(fact: AccessFact) -> int:
    return sum(not dim.is_one for dim in fact.shape)


def _column_block(kernel: TargetedKernel, fact: AccessFact) -> str | None:
    """The tunable block along memory."""
    name = fact.contiguous_block
    return name if name in kernel.entries.blocks else None


def _walked_blocks(kernel: TargetedKernel, fact: AccessFact) -> list[str]:
    """Blocks of loops in an accessed tile of several axes, besides the one along memory."""
    if _num_axes(fact) < 2:
        return []
    symbols = {symbol for dim in fact.shape for symbol in dim.symbols}
    own = fact.contiguous_block
    return [name for name in kernel.loop_blocks if name in symbols and name != own]


def _width(kernel: TargetedKernel, name: str) -> int:
    """Narrower where wide tiles would leave multiprocessors without a program."""
    width = WIDTH
    if name in kernel.outline.grid_blocks:
        share = kernel.extent(name) * kernel.programs((name,)) / kernel.target.num_sms
        width = max(LEAST_WIDTH, min(width, power_of_2_floor(share)))
    return min(kernel.whole(name), width)


def _other_axis(kernel: TargetedKernel, name: str, programs: int, left: int) -> dict[str, int]:
    """What short columns leave of a tile goes to another axis of the grid."""
    tuned = kernel.entries.blocks
    others = [b for b in kernel.outline.grid_blocks if b != name and b in tuned]
    if not others:
        return {}
    share = power_of_2_floor(programs / (COLUMN_PROGRAMS_PER_SM * kernel.target.num_sms))
    return {others[-1]: max(1, min(left, share))}


MOVED_BYTES = 16384
"""Bytes one program moves: enough vectors in flight for each thread to reach full bandwidth."""
REGISTER_BYTES = 65536
PROGRAMS_PER_SM = 8
LEAST_ELEMENTS = 256


def _target_elements(kernel: TargetedKernel, fact: PointwiseFact) -> int:
    slab = max(1, fact.slab)
    most = REGISTER_BYTES / (slab * 4)
    largest = measured_memory.most_elements(kernel.facts.accesses) / slab
    wanted = min(MOVED_BYTES / (slab * max(1, fact.storage_bytes)), largest, most)
    if fact.total is not None:
        wanted = min(wanted, fact.total / (kernel.target.num_sms * PROGRAMS_PER_SM))
    least = LEAST_ELEMENTS
    if is_serial(kernel):
        # A program takes long however few elements it has: one for each multiprocessor first.
        elements = fact.total * slab if fact.total is not None else math.inf
        share = power_of_2_floor(min(elements / kernel.target.num_sms, least))
        least = max(kernel.target.warp_size, share)
        wanted = min(wanted, least)
    floor = min(least // min(least, slab), most)
    return power_of_2_floor(max(wanted, floor))


def _spread(kernel: TargetedKernel, names: list[str], elements: int) -> dict[str, int]:
    """Give the elements to the blocks in turn, each as many as its axis takes."""
    blocks: dict[str, int] = {}
    for name in names:
        blocks[name] = min(kernel.whole(name), max(1, elements))
        elements //= blocks[name]
    return blocks


def _square(kernel: TargetedKernel, names: list[str], elements: int) -> dict[str, int]:
    """Equal sides for axes that all run along some tensor's memory (transposes)."""
    side = power_of_2_floor((4 * elements) ** (1 / len(names)))
    return {name: min(kernel.whole(name), max(16, side)) for name in names}


def _pointwise_warps(fact: PointwiseFact, elements: int) -> int:
    wanted = 16 if fact.num_transcendentals >= 9 else 8 if fact.num_transcendentals >= 3 else 4
    return max(1, min(4, elements // 32), min(wanted, power_of_2_floor(elements / 64)))


def pointwise_seeds(kernel: TargetedKernel) -> list[GpuSeed]:
    """A seed, and one with twice the elements per program."""
    fact = kernel.facts.pointwise
    if fact is None or not kernel.entries.blocks:
        return []
    elements = _target_elements(kernel, fact)
    return [_seed(kernel, fact, elements), _seed(kernel, fact, elements * 2)]


def spread_elements(kernel: TargetedKernel, elements: int) -> dict[str, int]:
    """Blocks of a tile of that many elements, long along memory."""
    names = list(kernel.entries.blocks)
    contiguous = {fact.contiguous_block for fact in _largest(kernel)}
    along = [name for name in names if name in contiguous]
    if len(along) > 1:
        return _square(kernel, along, elements)
    others = [name for name in reversed(names) if name not in along]
    return _spread(kernel, along + others, elements)


def _largest(kernel: TargetedKernel) -> list[AccessFact]:
    """Accesses of tiles with the most axes; lookups and factors of rows move little."""
    by_rank: dict[int, list[AccessFact]] = {}
    for fact in kernel.facts.accesses:
        by_rank.setdefault(_num_axes(fact), []).append(fact)
    return by_rank[max(by_rank)] if by_rank else []


def _seed(kernel: TargetedKernel, fact: PointwiseFact, elements: int) -> GpuSeed:
    blocks = spread_elements(kernel, elements)
    warps = _pointwise_warps(fact, elements * max(1, fact.slab))
    if elements * fact.slab * fact.storage_bytes > MOVED_BYTES:
        warps = min(warps, measured_memory.warps_of_many(elements * fact.slab))
    options = {
        **measured_memory.in_one_line(kernel),
        **measured.unrolled(kernel, measured.only_loads, 4),
    }
    return GpuSeed(blocks, warps, options=options)
