"""What was measured of kernels that move memory and compute little. Milliseconds are of an H200."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from tilesmith.backends.triton.heuristics.measured_tiles import ALONE_TILE, is_alone
from tilesmith.backends.triton.heuristics.overlap.rows import all_columns
from tilesmith.backends.triton.heuristics.seed import GpuSeed
from tilesmith.backends.triton.heuristics.walkers import (
    few_walkers,
    has_many,
    waits_once,
    warps_of_steps,
)
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.types import Dim, next_power_of_2
from tilesmith.schedule.facts.accesses import AccessFact
from tilesmith.schedule.facts.outline import AnyLoop
from tilesmith.schedule.rules import TargetedKernel

WARP_ELEMENTS = 1024
LONGEST = 16384
"""Longer rows that stay in registers were not measured so."""


def warps_of_rows(kernel: TargetedKernel, length: int, rows: int, *, is_stored: bool) -> int:
    """Warps of a program that has whole rows of that length.

    Threads of a row wait for each other at each reduction, and other programs do their work
    meanwhile. In this order 1, 2, 4, 8 and 16 warps: layer norm of 65536x2048 0.134, 0.132, 0.137,
    0.147, 0.235; of 4096x5120 0.0330, 0.0323, 0.0277, 0.0306, 0.0407; of 4096x15872 0.338, 0.117,
    0.094, 0.074, 0.112; softmax of 4096x1536 0.0112, 0.0113, 0.0128, 0.0141, 0.0188. Where nothing
    as long as a row is stored, one stream of loads has to do: sums of 4096x4096 0.0143, 0.0146,
    0.0142, 0.0138, 0.0149.
    """
    width = next_power_of_2(length)
    is_known = WARP_ELEMENTS <= length <= LONGEST
    if is_stored and is_known and has_many(kernel, rows):
        most = 8 if width == LONGEST or (width > LONGEST // 4 and waits_once(kernel)) else 4
        return min(most, next_power_of_2(-(-rows * length // WARP_ELEMENTS)))
    limits = ((1024, 4), (4096, 8), (16384, 16))
    return next((warps for limit, warps in limits if width <= limit), 32)


def passing_rows(kernel: TargetedKernel, dim: Dim) -> dict[str, list[str]]:
    """The option for rows read once beside single elements, which the cache cannot hold anyway.

    A row that stays in registers is read once, however often it is reduced.

    Cross entropy of 16384x4096 in bfloat16 with 2 and 4 warps 0.0492, 0.0505, so 0.0436, 0.0459
    (powers by six instructions); with 8 warps and powers of the library 0.0620, 0.0596.
    """
    loads = [fact for fact in kernel.facts.accesses if fact.kind == "load"]
    rows = [fact.distinct_bytes or 0.0 for fact in loads if dim in fact.shape]
    do_pass = len(rows) == 1 and rows[0] > kernel.target.l2_bytes
    count = len(kernel.entries.evictable)
    return {"load_eviction_policies": ["first"] * count} if do_pass and count else {}


def warps_of_walkers(length: int) -> int:
    """Warps of programs that walk their rows one by one, and load the next ones meanwhile.

    Gradients of layer norms, 4, 8 and 16 warps: 4096x2048 0.0288, 0.0318, 0.0357; 4096x4096 0.0440,
    0.0461, 0.0565; 4096x8192 0.239, 0.0694, 0.0689.
    """
    return 4 if length <= 4096 else 16


def is_walker(kernel: TargetedKernel) -> bool:
    """Whether programs have tiles that loops of theirs walk in smaller ones."""
    return bool(_own_loops(kernel))


def _own_loops(kernel: TargetedKernel) -> set[str]:
    bounds = kernel.outline.outer_bounds
    return {name for name, outer in bounds.items() if isinstance(outer, str)}


MOST_STAGES, AHEAD_BYTES = 4, 192 << 10


def rows_ahead(kernel: TargetedKernel, blocks: Mapping[str, int]) -> dict[str, list[int]]:
    """The option by which programs that walk their rows load the next ones meanwhile.

    Gradients of layer norms without / so: 4096x2048 0.0437 / 0.0318, 4096x8192 0.096 / 0.069 (with
    two stages 0.098); of an rms norm of 2048x4096 0.0306 / 0.0294.
    """
    own = _own_loops(kernel)
    loops = [entry.loop for entry in kernel.entries.ranges]
    stages = [_stages(kernel, loop, blocks) if own & {*loop.blocks} else 0 for loop in loops]
    return {"range_num_stages": stages} if any(stages) else {}


def _stages(kernel: TargetedKernel, loop: AnyLoop, blocks: Mapping[str, int]) -> int:
    """As many as fit shared memory."""
    loads = [fact for fact in kernel.facts.accesses if fact.kind == "load" and _walks(fact, loop)]
    sizes = [_elements(kernel, fact, blocks) * fact.dtype.itemsize for fact in loads]
    stages = min(MOST_STAGES, AHEAD_BYTES // max(1, sum(sizes)))
    return stages if stages > 1 else 0


def _walks(fact: AccessFact, loop: AnyLoop) -> bool:
    symbols = {symbol for dim in fact.shape for symbol in dim.symbols}
    return bool(symbols & {*loop.blocks}) and len(fact.shape) > 1


def _elements(kernel: TargetedKernel, fact: AccessFact, blocks: Mapping[str, int]) -> int:
    """Of an accessed tile."""
    sizes = (blocks.get(d.symbol or "") or kernel.outline.extent(d) or 1 for d in fact.shape)
    return prod(map(next_power_of_2, sizes))


STEP, LONG_STEP = 1024, 4096
MANY_FUNCTIONS = 3


def num_functions(kernel: TargetedKernel) -> int:
    """Transcendental functions in the text of a kernel."""
    return sum(op.function.is_transcendental for op in kernel.outline.ops(Elementwise))


def _steps_of_rows(kernel: TargetedKernel) -> tuple[int, int]:
    """Elements of a step of loops that walk rows, and its warps; 0: by how long they are.

    Steps of 1024 with 4 warps, of 4096 with 4 and 8: jsd of 8192x16384 0.470, 0.685, 0.590.
    """
    functions, warps = num_functions(kernel), warps_of_steps(kernel)
    return (STEP if functions >= MANY_FUNCTIONS else LONG_STEP), (warps if functions else 0)


def tile_seed(kernel: TargetedKernel) -> GpuSeed:
    """Reductions over tiles that the user's own loops walk."""
    has_own = is_alone(kernel) and len(kernel.loop_blocks) == 1
    step, warps = _steps_of_rows(kernel)
    most = ALONE_TILE if has_own else step
    extents = {name: kernel.extent(name) for name in kernel.loop_blocks}
    if max(extents.values(), default=0) <= LONG_STEP:
        # A row that fits one step is loaded once, and stays.
        most, warps = LONG_STEP, 0
    blocks = {name: min(kernel.whole(name), most) for name in kernel.loop_blocks}
    if not blocks and kernel.entries.blocks:
        last = kernel.entries.blocks[-1]
        blocks[last] = min(kernel.whole(last), 1024)
    widest = max(blocks.values(), default=1024)
    if has_own and widest == ALONE_TILE:
        return GpuSeed(blocks, 32, 1)
    is_whole = bool(extents) and all(extents[name] <= blocks[name] for name in extents)
    length = max(extents.values()) if is_whole else widest
    is_stored = is_whole and _stores_rows(kernel)
    by_length = warps_of_rows(kernel, length, 1, is_stored=is_stored)
    is_long = any(extent > 4 * widest for extent in extents.values())
    return GpuSeed(blocks, warps or (min(16, 2 * by_length) if is_long else by_length), 1)


def _stores_rows(kernel: TargetedKernel) -> bool:
    stores = [fact for fact in kernel.facts.accesses if fact.kind == "store"]
    return any(sum(not dim.is_one for dim in fact.shape) > 1 for fact in stores)


NARROW, WIDE = 64, 128
"""Columns of a tile."""


def columns_by_programs(
    kernel: TargetedKernel, blocks: Mapping[str, int], columns: Sequence[str]
) -> tuple[dict[str, int], int]:
    """Tiles of programs that walk columns, and their warps.

    A column's rows are added in a thread first, then among threads, then among warps: where there
    are programs enough, they have few. Functions of each element need registers of their own. 512
    sequences of up to 128 rows, 256 columns, 128 at a time, with 8, 4, 2 and 1 warps: sums 0.0278,
    0.0193, 0.0120, 0.0120, means 0.0355, 0.0235, 0.0181, 0.0232; softmax, 64 with 2: 0.0314.
    """
    at_once = None if num_functions(kernel) else all_columns(kernel, blocks, columns)
    if at_once is not None:
        return at_once
    cut = [name for name in columns if name in kernel.outline.grid_blocks]
    tiles = prod(-(-kernel.extent(name) // blocks[name]) for name in cut)
    if kernel.programs(tuple(columns)) * tiles <= 2 * kernel.target.num_sms:
        return dict(blocks) if num_functions(kernel) else few_walkers(kernel, blocks, columns), 8
    most = NARROW if num_functions(kernel) else WIDE
    return {n: min(most, size) if n in columns else size for n, size in blocks.items()}, 2


def most_elements(accesses: Sequence[AccessFact]) -> int:
    """Of an elementwise tile: with several tensors each thread has enough to wait for.

    Tiles of 1024, 2048 and 4096: swiglu of 4x4096x11008 0.252, 0.255, 0.254; rows of 4096 looked up
    0.0708, 0.0694, 0.0721; exp of 2^24 elements -, 0.0215, 0.0211.
    """
    moved = [fact for fact in accesses if not (fact.is_scalar or fact.purpose.is_index)]
    if len(moved) > 2:
        return 1024
    are_plain = all(fact.is_rectangle for fact in moved)
    return 4096 if are_plain else 2048


def warps_of_many(elements: int) -> int:
    """Of programs that move tiles of many tensors: no more than leave each thread four elements.

    Rope of 32 and 8 heads, 256 elements at a time, with 1, 2 and 4 warps: 4096 positions 0.0283,
    0.0268, 0.0274; 1024 positions 0.0159, 0.0125, -.
    """
    return max(1, elements // 128)


def in_one_line(kernel: TargetedKernel) -> dict[str, list[bool]]:
    """The option that runs through all elements by one axis, where memory has them in that order.

    No tile ends with a row then, and programs follow one another in memory: geglu of 4x4096x11008
    by three axes 0.279, so 0.254, its gradients (4x1024x11008) 0.116, 0.111.
    """
    blocks = [list(grid.blocks) for grid in kernel.entries.flattened]
    moved = [fact for fact in kernel.facts.accesses if not fact.is_scalar]
    is_line = len(blocks) == 1 and all(_is_line(kernel, fact, blocks[0]) for fact in moved)
    return {"flatten_loops": [True]} if is_line else {}


def _is_line(kernel: TargetedKernel, fact: AccessFact, blocks: list[str]) -> bool:
    """Whether an access takes the elements of its tensor one after the other."""
    sizes = [kernel.outline.extent(Dim.of(block)) for block in blocks]
    dims = [pattern.dim for pattern in fact.patterns]
    are_tiles = all(p.kind == "tile" and not p.is_shifted for p in fact.patterns)
    if not are_tiles or dims != [Dim.of(block) for block in blocks] or None in sizes:
        return False
    strides = [prod(size or 1 for size in sizes[place + 1 :]) for place in range(len(sizes))]
    return list(fact.known_strides) == strides
