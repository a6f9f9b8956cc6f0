"""Schedules of products with more around them: attention, and row reductions of the output."""

from __future__ import annotations

from dataclasses import replace

from tilesmith.backends.triton.heuristics.seed import GpuSeed, copied, in_one_loop
from tilesmith.backends.triton.heuristics.tile_sides import sized
from tilesmith.ir.types import next_power_of_2
from tilesmith.schedule.facts.extents import Axis
from tilesmith.schedule.facts.fact_set import AttentionFact
from tilesmith.schedule.facts.products import MatmulFact
from tilesmith.schedule.rules import TargetedKernel
from tilesmith.schedule.space.sizes import power_of_2_floor

ACCUMULATOR_BYTES = 128 * 1024
STAGED_BYTES = 192 * 1024


def _attention_rows(kernel: TargetedKernel, fact: AttentionFact, width: int) -> int:
    """As many rows as leave a program for every multiprocessor."""
    rows = fact.scores.m
    programs = kernel.programs((rows.block,))
    is_hopper = kernel.target.capability >= 90
    choices = (256, 128, 64) if width == 128 and is_hopper else (128, 64)
    for bm in choices[:-1]:
        if programs * -(-rows.extent_or(4096) // bm) >= kernel.target.num_sms:
            return bm
    return choices[-1]


def _attention_tile(kernel: TargetedKernel, fact: AttentionFact, width: int) -> tuple[int, int]:
    bm, bn = _attention_rows(kernel, fact, width), 64
    if not fact.scores.uses_tensor_cores:
        bm, bn = 64, 32
    elif width > 128:
        bm, bn = min(bm, 128), 32
    elif bm == 64 and width <= 64:
        bn = 128
    return min(bm, _whole(fact.scores.m)), min(bn, _whole(fact.scores.n))


def _whole(axis: Axis) -> int:
    return next_power_of_2(max(16, axis.extent_or(4096)))


def attention_seeds(kernel: TargetedKernel) -> list[GpuSeed]:
    """Two chained products in one loop, with a short pipeline."""
    fact = kernel.facts.attention
    if fact is None:
        return []
    target, rows, columns = kernel.target, fact.scores.m, fact.scores.n
    width = next_power_of_2(fact.values.n.extent_or(128))
    bm, bn = _attention_tile(kernel, fact, width)
    blocks = sized((rows, bm), (columns, bn))
    is_nvidia = target.kind == "cuda"
    is_hopper = target.capability >= 90
    warps = 8 if bm * width >= (32768 if is_hopper else 16384) and is_nvidia else 4
    # Few rows (decoding) only wait for keys: a short pipeline leaves room for a third program on
    # each multiprocessor. ms with 3 / 2 stages: 8x8192 0.0845 / 0.0779, 32x2048 0.0826 / 0.0819.
    stages = 3 if is_hopper and bm * width != 16384 and bm > 16 else 2
    # Rows of one narrow head run together; wide heads do better side by side.
    fastest = (rows.block,) if width < 128 else ()
    seeds = [GpuSeed(blocks, warps, stages, fastest=fastest)]
    if is_nvidia:
        shorter = {name: max(16, size // 2) for name, size in blocks.items() if name == rows.block}
        seeds.append(GpuSeed({**blocks, **shorter}, 4, 2, fastest=fastest))
        seeds.append(GpuSeed(blocks, 12 - warps, stages, fastest=fastest))
    return seeds


def _staged_depth(kernel: TargetedKernel, matmul: MatmulFact, bm: int, n: int) -> tuple[int, int]:
    """The K block and the stages of operands as wide as a whole output row."""
    itemsize, limit = matmul.itemsize, kernel.target.shared_bytes or STAGED_BYTES
    whole = next_power_of_2(max(matmul.min_k, matmul.k.extent_or(64)))
    is_asynchronous = bm >= 64 and kernel.target.capability >= 90
    if is_asynchronous and 3 * 64 * (bm + n) * itemsize <= limit:
        return min(64, whole), 3
    bk, stages = _staged(matmul, 16 if itemsize == 4 else 32, n)
    return min(bk, whole), stages


def _staged(matmul: MatmulFact, bk: int, n: int) -> tuple[int, int]:
    """A K block and as many of three stages as fit; the least K block where three do not."""
    stages = 3
    if stages * bk * n * matmul.itemsize > STAGED_BYTES:
        bk = matmul.min_k
    while stages > 1 and stages * bk * n * matmul.itemsize > STAGED_BYTES:
        stages -= 1
    return bk, stages


def reduction_epilogue_seeds(kernel: TargetedKernel) -> list[GpuSeed]:
    """A product whose whole output row stays in registers for a reduction."""
    fact = kernel.facts.epilogue
    if fact is None:
        return []
    matmul, rows, depth = fact.matmul, fact.matmul.m.block, fact.matmul.k.block
    if rows is None:
        return []
    n = next_power_of_2(matmul.n.extent_or(1))
    bm = min(64, 128 // matmul.itemsize, power_of_2_floor(ACCUMULATOR_BYTES / (4 * n)))
    bm = max(bm, kernel.minimum(rows))
    bk, stages = _staged_depth(kernel, matmul, bm, n)
    blocks = sized((matmul.m, bm), (matmul.k, bk))
    plain = GpuSeed(blocks, 4 if bm * n <= 16384 else 16, stages)
    by_copies = replace(plain, options=copied(kernel, lambda fact: fact.kind == "load"))
    formula = _resident_row_formula(matmul, bm, n)
    if not kernel.target.has_tensor_descriptors or depth is None:
        return [plain, formula]
    measured = _half_rows if matmul.itemsize == 2 else _float_rows
    return [*measured(kernel, matmul, n), plain, by_copies, formula]


def _half_rows(kernel: TargetedKernel, matmul: MatmulFact, n: int) -> list[GpuSeed]:
    """Rows of 16-bit products through the copy engine, in one loop with those of the next tile.

    bf16 on an H200, M = 131072, K = 512, ms by pointers / so: N = 256: 0.124 / 0.079; 512: 0.197 /
    0.151; 1024: 0.609 / 0.506; 2048: 2.56 / 1.56. Where rows are few, each program has one tile, of
    fewer rows: 512^3 0.016 / 0.012 (4 warps 0.011); 1024^3 0.034 / 0.027. In one loop N = 4096 is
    ten times slower.
    """
    target, m = kernel.target, matmul.m.extent_or(4096)
    bm = max(16, min(128, power_of_2_floor(ACCUMULATOR_BYTES / (4 * n))))
    while bm > 16 and -(-m // bm) < target.num_sms:
        bm //= 2
    has_many = -(-m // bm) >= 2 * target.num_sms and n <= 2048
    is_asynchronous = bm >= 64
    bk = max(16, (16384 if is_asynchronous else 32768) // n)
    stages = 4 if is_asynchronous or (n <= 1024 and not has_many) else 3
    buffers = stages if is_asynchronous else stages - 1
    while stages > 2 and buffers * bk * (bm + n) * 2 > target.shared_bytes:
        stages, buffers = stages - 1, buffers - 1
    # In one loop a tile leaves while the operands of the next are there.
    operand_bytes = buffers * bk * (bm + n) * 2 if has_many else 0
    stores = [fact for fact in kernel.facts.accesses if fact.kind == "store"]
    itemsize = max((fact.dtype.itemsize for fact in stores if fact.fits_descriptor), default=0)
    has_room = operand_bytes + bm * n * itemsize <= target.shared_bytes
    kinds = ("load", "store") if has_room else ("load",)
    options = copied(kernel, lambda fact: fact.kind in kinds)
    warps = 4 if bm * n <= 8192 and not has_many else 8
    seed = GpuSeed(_row_blocks(matmul, bm, bk), warps, stages, options=options)
    if not has_many:
        return [seed]
    loop = {**in_one_loop(kernel), "num_sm_multiplier": 2}
    return [replace(seed, options={**options, **loop}), seed]


def _float_rows(kernel: TargetedKernel, matmul: MatmulFact, n: int) -> list[GpuSeed]:
    """Rows of fp32 products: few, so that operands fit, and many warps for long ones.

    On an H200, ms with twice the rows / so: 1024^3 0.304 / 0.123; 131072x512x512 1.79 / 1.64.
    """
    blocks = _row_blocks(matmul, 16, max(16, 16384 // n))
    if n < 1024:
        return [GpuSeed(blocks, 4, 2)]
    return [GpuSeed(blocks, 16, 4, options=copied(kernel, lambda fact: fact.kind == "load"))]


def _row_blocks(matmul: MatmulFact, bm: int, bk: int) -> dict[str, int]:
    depth = min(bk, next_power_of_2(max(matmul.min_k, matmul.k.extent_or(64))))
    return sized((matmul.m, bm), (matmul.k, depth))


def _resident_row_formula(matmul: MatmulFact, bm: int, n: int) -> GpuSeed:
    """The published formula for such kernels on an H100, as it is."""
    bk, stages = _staged(matmul, max(matmul.min_k, min(32, matmul.k.extent_or(32))), n)
    blocks = sized((matmul.m, bm), (matmul.k, bk))
    return GpuSeed(blocks, 4 if bm * n <= 16384 else 8, stages)


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
    num_products = sum(item.m == fact.scores.m for item in kernel.facts.matmuls)
    if num_products <= 2 or not set(sides) <= set(kernel.entries.blocks):
        return []
    bm, bn = _tile(kernel, fact)
    rows, columns = fact.scores.m, fact.scores.n
    is_small = 2 * _held(kernel, fact, bm, bn) <= HELD_BY_A_THREAD * 256
    width = fact.values.n.extent_or(128)
    fastest = (rows.block,) if width < 128 else ()
    stages = 3 if bm * next_power_of_2(width) <= HELD_BY_SHARED else 2
    return [
        GpuSeed(sized((rows, bm), (columns, side)), 4 if is_small else 8, depth, fastest=fastest)
        for side, depth in ((bn, stages), (max(16, bn // 2), 3))
    ]


def _held(kernel: TargetedKernel, fact: AttentionFact, bm: int, bn: int) -> int:
    """Elements of results of products that are alive at the same time."""
    own = [item for item in kernel.facts.matmuls if item.m == fact.scores.m]
    num_scores = sum(item.n == fact.scores.n for item in own)
    width = next_power_of_2(fact.values.n.extent_or(128))
    return bm * (num_scores * bn + (len(own) - num_scores) * width)


def _tile(kernel: TargetedKernel, fact: AttentionFact) -> tuple[int, int]:
    scores, most = fact.scores, HELD_BY_A_THREAD * 256
    bm, bn = min(ROWS, _whole(scores.m)), min(COLUMNS, _whole(scores.n))
    if scores.itemsize > 2:
        bn = min(bn, COLUMNS // 2)
    programs = kernel.programs((scores.m.block,))
    while bm > 16 and _held(kernel, fact, bm, bn) > most:
        bm //= 2
    while bm > 64 and programs * -(-scores.m.extent_or(4096) // bm) < kernel.target.num_sms:
        bm //= 2
    return bm, bn
