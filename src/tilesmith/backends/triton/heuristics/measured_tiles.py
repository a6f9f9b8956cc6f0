"""Tiles of products by matrix units, rows of single threads, turns that run together.

For fp32 on Hopper what decides is how operands reach the units (``turning.py``), and that there is
more than one program: one waits for its operands while another multiplies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf, prod
from typing import Any

from tilesmith.backends.triton.heuristics.seed import GpuSeed, copied
from tilesmith.backends.triton.heuristics.tile_sides import sized
from tilesmith.backends.triton.optimizations.gaussian_tails import has_long_functions
from tilesmith.backends.triton.optimizations.turned_products import BLACKWELL, HOPPER
from tilesmith.ir.operation import Trait
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.traversal import walk
from tilesmith.ir.types import Dim
from tilesmith.schedule.facts.accesses import VECTOR_BYTES, AccessFact
from tilesmith.schedule.facts.outline import AnyLoop
from tilesmith.schedule.facts.products import MatmulFact, ReductionFact
from tilesmith.schedule.facts.work import TRANSCENDENTAL
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


def words_to_keep(*, is_short: bool, has_few: bool) -> list[Tile]:
    """Tiles of words whose programs exchange sums, the one for this product first."""
    first = LOW_WORDS if is_short else NARROW_WORDS if has_few else LARGE_WORDS
    return [first, *(tile for tile in (LOW_WORDS, LARGE_WORDS, NARROW_WORDS) if tile != first)]


GROUPING = 4
"""Rows of tiles that run together: a few percent faster than 1 in all rows that were measured."""
LEAST_SIDE, LEAST_DEPTH = 64, 128
LEAST_WORK = 3 << 30
"""Multiply-adds of 18 us or so, as long as the host takes to describe tensors and to launch."""


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
    # Products of transposes. 4096^3, 2048^3, 1536^3: 0.442, 0.058, 0.043; the second 0.466, 0.061,
    # 0.047; by the older instructions 0.70, 0.095, 0.064; cuBLAS 0.374, 0.052, 0.041.
    "turned": (
        _Rung((256, 64, 32, 4, 3), is_copied=True),
        _Rung((128, 128, 32, 4, 3), 0.95, is_copied=True),
        _Rung((128, 64, 32, 4, 4), 0.75, is_copied=True),
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


LEAST_AREA = 64 * 128
SECTOR_BYTES = 32
"""What the shared cache moves at once."""


@dataclass(frozen=True)
class Pipeline:
    """What was measured best for tiles of one area."""

    block_k: int
    num_stages: int
    num_warps: int
    parts: int | None = None
    """In how many parts a tile is stored; programs then walk several tiles in one loop."""
    grouping: int | None = None


# Milliseconds are of an H200.
_LARGE = Pipeline(64, 4, 8, 2, 8)
_MEDIUM, _MEDIUM_ALONE = Pipeline(64, 5, 8, 2, 8), Pipeline(64, 5, 4)
_MEDIUM_SHORT = Pipeline(64, 4, 4, 2, 8)
"""For few steps of K: 20120x512x1536 0.0575, by _MEDIUM 0.0599. But 3072^3 0.0948, 0.0909."""
_SMALL_ALONE = Pipeline(128, 4, 4)
_PAIRED, _SMALL_PAIRED = Pipeline(64, 3, 4, None, 8), Pipeline(64, 3, 4, None, 4)
"""Two programs fit a multiprocessor: one finishes its tile while the other multiplies.

1536^3 in tiles of 64x128 0.0185 (with four stages 0.0198), in those of 128x256 0.0217.
"""
SHORT, LONG = 1024, 4096
"""Steps of K that are few, and that are enough for pairs to pay."""
LONGEST_PER_FUNCTION = 8192
"""Steps of K for each transcendental function of an element, where the functions still show."""


def pipeline_of(kernel: TargetedKernel, fact: MatmulFact, area: int, *, has_more: bool) -> Pipeline:
    """By the area of a tile, and whether there are more of them than multiprocessors."""
    if area >= 128 * 256:
        # Rows that begin anywhere arrive late, and the fourth stage does not pay: 4000x3000x5000
        # 0.2325, with three 0.2240, in groups of four rows 0.2185.
        moved = [item for item in kernel.facts.accesses if item.fits_descriptor]
        strides = [(s, item.dtype.itemsize) for item in moved for s in item.strides if s != 1]
        is_late = any(isinstance(s, int) and s * size % SECTOR_BYTES for s, size in strides)
        return replace(_LARGE, num_stages=3, grouping=4) if is_late else _LARGE
    if area <= LEAST_AREA:
        return _SMALL_PAIRED if has_more else _SMALL_ALONE
    if not has_more:
        return _MEDIUM_ALONE
    if is_busy(kernel, fact):
        return _PAIRED if fact.k.extent_or(LONG) >= LONG else _MEDIUM
    return _MEDIUM_SHORT if fact.k.extent_or(SHORT) < SHORT else _MEDIUM


def is_busy(kernel: TargetedKernel, fact: MatmulFact) -> bool:
    """Whether what follows the products takes long beside them: functions such as ``tanh``."""
    functions = kernel.facts.work.total(TRANSCENDENTAL) or 0.0
    elements = fact.m.extent_or(4096) * fact.n.extent_or(4096)
    is_often = functions / max(1, elements) * LONGEST_PER_FUNCTION >= fact.k.extent_or(4096)
    return is_often and has_long_functions(kernel.outline.function)


def _is_reduced(kernel: TargetedKernel) -> bool:
    """Whether functions of each tile of a product are all that a loop over its columns wants.

    Log-sum-exp of 64x2048x2048 scores, K 64, bf16 on an H200, us of a triangle / of all: tiles of
    128x256 (8 warps) 147 / 169, 128x64 138 / 122, 64x128 137 / 122, 64x64 118 / 123.
    """
    if len(kernel.facts.matmuls) != 1:
        return False
    (fact,) = kernel.facts.matmuls
    return fact.k.block is None and fact.n.block in fact.loop and is_busy(kernel, fact)


NS_PER_LATE_SIDE = 0.0245
"""Of a tile for each step of K and each row and column: traffic of single elements, and of tiles
that one program walks one by one."""


def late_limits(kernel: TargetedKernel) -> dict[str, Any]:
    """What limits tiles of 16-bit operands: what is done with them, and rows that begin anywhere.

    Single halves come through registers. On an H200, ms with tiles of 128x128 (4 warps) / 64x128:
    2999x3001x3003 0.381 / 0.330; 5001x1000x1001 0.062 (0.077) / 0.074; 3333x2222x1111 0.143
    (0.108) / 0.160.
    """
    if _is_reduced(kernel):
        return {"max_m": 64, "max_n": 64, "max_stages": 3}
    operands = [item for item in kernel.facts.accesses if item.purpose.sides]
    widths = [item.widest_vector * item.dtype.itemsize for item in operands]
    if all(width >= VECTOR_BYTES for width in widths):
        return {}
    if all(item.widest_vector == 1 for item in operands):
        single = {"max_m": 64, "max_n": 128, "max_k": 64, "max_stages": 4}
        return {**single, "eight_warps_from": LEAST_AREA} if _has_addresses(operands) else single
    least = 16384 if max(widths) == VECTOR_BYTES else 1 << 20
    limits = {"max_n": 128, "max_k": 64, "max_stages": 3, "eight_warps_from": least}
    return {**limits, "ns_per_side": NS_PER_LATE_SIDE}


def _has_addresses(operands: list[AccessFact]) -> bool:
    """Whether threads hold an address for each element: places looked up, times runtime strides.

    A convolution in tiles of 64x128 spills with four warps; with eight it has 204 registers.
    """
    gathered = [item for item in operands if not item.is_rectangle]
    return any(not isinstance(stride, int) for item in gathered for stride in item.strides)


def num_sums(kernel: TargetedKernel) -> int:
    """How many sums of one tile are alive at once: they share the registers.

    A product that another loop computes again is the same tile. One that is scaled before it is
    added stands beside the sum that its loop carries.
    """
    tiles = {((item.m.dim, item.n.dim), item.text) for item in kernel.facts.matmuls}
    counts = Counter(sides for sides, _ in tiles)
    apart = {dot.result.tile.shape[-2:] for dot in kernel.outline.ops(Dot) if dot.acc is None}
    sums = {v.tile.shape[-2:] for loop in kernel.outline.loops for v in loop.carried}
    return max(count + (sides in apart & sums) for sides, count in counts.items())


def rows_of_steps(rows: int, *, is_serial: bool) -> int:
    """Rows of a program; of one that goes step by step, one or from four on.

    Triton keeps a carried tile of 128 by 2 in two layouts, in one of which each thread has a whole
    column: 255 registers and more; by 1 it takes 32, by 4 it takes 40.
    """
    return 1 if rows == 2 and is_serial else rows


ALONE_CHUNK, ALONE_TILE = 32768, 16384
"""Of programs that have a multiprocessor each, with all its warps: nothing else keeps it busy.

On an H200, ms with 16 warps / so: cross entropy 8x128256 0.0220 / 0.0195, 64x32000 0.0120 / 0.0114;
kl_div of 8 rows in tiles of 4096 0.0462 / 0.0317.
"""


def is_alone(kernel: TargetedKernel) -> bool:
    """Whether there are surely no more programs than multiprocessors, one for each row."""
    axes = [axis for grid in kernel.outline.grids for axis in kernel.outline.axes_of(grid)]
    return all(axis.extent for axis in axes) and kernel.programs(()) <= kernel.target.num_sms


THREAD_ROW, THREAD_ROWS = 64, 128
"""The longest row that a thread has for itself, and rows of a program then.

Nearest of 512 centres for 131072x64 on an H200, ms: tiles of 8x8 4.92, of 128x1 1.00; of 256 for
65536x16: 16x16 0.225, 128x1 0.059.
"""


def do_rows_meet(
    kernel: TargetedKernel, fact: ReductionFact, own: list[str], walked: list[str]
) -> bool:
    """Whether rows of a program meet rows of a loop in one tile."""
    meeting = {fact.axis.dim, *map(Dim.of, (*own, *walked))}
    shapes = {v.tile.shape for v in kernel.outline.tile_values}
    return bool(own and walked) and any(meeting <= {*shape} for shape in shapes)


def thread_rows_seed(kernel: TargetedKernel, own: list[str], walked: list[str]) -> GpuSeed:
    """For rows that meet: each thread has one, and sees one at a time."""
    share = power_of_2_floor(prod(map(kernel.extent, own)) / kernel.target.num_sms)
    rows = max(kernel.target.warp_size, min(THREAD_ROWS, share))
    options = unrolled(kernel, lambda loop: any(block in walked for block in loop.blocks), 2)
    return GpuSeed({own[-1]: rows}, rows // kernel.target.warp_size, options=options)


def unrolled(
    kernel: TargetedKernel, is_wanted: Callable[[AnyLoop], bool], turns: int
) -> dict[str, list[int]]:
    """The option that runs turns of some loops together: their loads are in flight together.

    On an H200, ms without / so: nearest of 512 centres for 131072x64, two turns, 1.00 / 0.83; a
    triangular solve of 64x64 for 4096 columns, four turns of its inner loop, 0.111 / 0.081.
    """
    entries = kernel.entries.ranges
    wanted = [not item.is_persistent_loop and is_wanted(item.loop) for item in entries]
    return {"range_unroll_factors": [turns * wish for wish in wanted]} if any(wanted) else {}


def only_loads(loop: AnyLoop) -> bool:
    """Whether a loop counts through indices, loads by them and adds up, and does nothing else."""
    ops = list(walk(loop.body))
    is_plain = not any(loop.blocks) and any(isinstance(op, Load) for op in ops)
    return is_plain and all(Trait.WRITES not in op.traits and not op.regions() for op in ops)
