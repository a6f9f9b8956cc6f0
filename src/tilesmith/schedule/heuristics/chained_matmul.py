"""Schedules of products with more around them: attention, and row reductions of the output."""

from __future__ import annotations

from dataclasses import replace

from tilesmith.schedule.block_bounds import power_of_2_floor
from tilesmith.schedule.facts import AttentionFact, MatmulFact
from tilesmith.schedule.heuristics.seed import Seed, Situation
from tilesmith.schedule.schedule import next_power_of_2

ACCUMULATOR_BYTES = 128 * 1024
STAGED_BYTES = 192 * 1024


def _attention_rows(situation: Situation, fact: AttentionFact, width: int) -> int:
    """As many rows as leave a program for every multiprocessor."""
    rows = fact.scores.m
    programs = situation.programs((rows.block,))
    is_hopper = situation.target.capability >= 90
    choices = (256, 128, 64) if width == 128 and is_hopper else (128, 64)
    for bm in choices[:-1]:
        if programs * -(-rows.extent_or(4096) // bm) >= situation.target.num_sms:
            return bm
    return choices[-1]


def _attention_tile(situation: Situation, fact: AttentionFact, width: int) -> tuple[int, int]:
    bm, bn = _attention_rows(situation, fact, width), 64
    if not fact.scores.uses_tensor_cores:
        bm, bn = 64, 32
    elif width > 128:
        bm, bn = min(bm, 128), 32
    elif bm == 64 and width <= 64:
        bn = 128
    whole_rows = next_power_of_2(max(16, fact.scores.m.extent_or(4096)))
    whole_columns = next_power_of_2(max(16, fact.scores.n.extent_or(4096)))
    return min(bm, whole_rows), min(bn, whole_columns)


def attention_seeds(situation: Situation) -> list[Seed]:
    """Two chained products in one loop, with a short pipeline."""
    fact = situation.facts.attention
    if fact is None:
        return []
    target, rows, columns = situation.target, fact.scores.m, fact.scores.n
    width = next_power_of_2(fact.values.n.extent_or(128))
    bm, bn = _attention_tile(situation, fact, width)
    blocks = {axis.block: size for axis, size in ((rows, bm), (columns, bn)) if axis.block}
    is_nvidia = target.kind == "cuda"
    is_hopper = target.capability >= 90
    warps = 8 if bm * width >= (32768 if is_hopper else 16384) and is_nvidia else 4
    stages = 3 if is_hopper and bm * width != 16384 else 2
    # Rows of one narrow head run together; wide heads do better side by side.
    fastest = (rows.block,) if width < 128 else ()
    seeds = [Seed(blocks, warps, stages, fastest=fastest)]
    if is_nvidia:
        shorter = {name: max(16, size // 2) for name, size in blocks.items() if name == rows.block}
        seeds.append(Seed({**blocks, **shorter}, 4, 2, fastest=fastest))
        seeds.append(Seed(blocks, 12 - warps, stages, fastest=fastest))
    return seeds


def _staged_depth(situation: Situation, matmul: MatmulFact, bm: int, n: int) -> tuple[int, int]:
    """The K block and the stages of operands as wide as a whole output row."""
    itemsize, limit = matmul.itemsize, situation.target.shared_bytes or STAGED_BYTES
    whole = next_power_of_2(max(matmul.min_k, matmul.k.extent_or(64)))
    is_asynchronous = bm >= 64 and situation.target.capability >= 90
    if is_asynchronous and 3 * 64 * (bm + n) * itemsize <= limit:
        return min(64, whole), 3
    bk = 16 if itemsize == 4 else 32
    stages = 3
    if stages * bk * n * itemsize > STAGED_BYTES:
        bk = matmul.min_k
    while stages > 1 and stages * bk * n * itemsize > STAGED_BYTES:
        stages -= 1
    return min(bk, whole), stages


def reduction_epilogue_seeds(situation: Situation) -> list[Seed]:
    """A product whose whole output row stays in registers for a reduction."""
    fact = situation.facts.epilogue
    if fact is None:
        return []
    matmul, rows, depth = fact.matmul, fact.matmul.m.block, fact.matmul.k.block
    if rows is None:
        return []
    n = next_power_of_2(matmul.n.extent_or(1))
    bm = min(64, 128 // matmul.itemsize, power_of_2_floor(ACCUMULATOR_BYTES / (4 * n)))
    bm = max(bm, situation.minimum(rows))
    bk, stages = _staged_depth(situation, matmul, bm, n)
    blocks = {rows: bm} if depth is None else {rows: bm, depth: bk}
    measured = _measured_rows(situation, matmul, n, Seed(blocks, 16, stages))
    return [*measured, _resident_row_formula(situation, matmul, bm, n)]


def _measured_rows(situation: Situation, matmul: MatmulFact, n: int, plain: Seed) -> list[Seed]:
    """Warps, copies and program loops, best first.

    bf16 on an H200, M = 131072, K = 512, ms with pointers / descriptors / in a fused program loop:
    N = 256: 0.124 / 0.142 / 0.106 (4 warps); 512: 0.197 / 0.205 / no room (16 warps); 1024: 0.609 /
    0.634 / 0.512; 2048: 2.56 / 1.80 / 1.57; 4096: 10.2 / 7.37 / 83 (8 warps).
    """
    assert matmul.m.block is not None
    bm = plain.blocks[matmul.m.block]
    is_small, is_short = bm * n <= 16384, bm < 64
    plain = replace(plain, num_warps=4 if is_small else 16)
    has_copies = situation.target.has_tensor_descriptors
    if not has_copies or matmul.itemsize != 2 or not (is_small or is_short):
        copied = replace(plain, options=_descriptors(situation, "load"))
        return [copied, plain] if is_short and has_copies else [plain, copied]
    copied = replace(
        plain, num_warps=4 if is_small else 8, options=_descriptors(situation, "load", "store")
    )
    rows = -(-matmul.m.extent_or(4096) // bm)
    if n > 2048 or rows < 2 * situation.target.num_sms:
        return [copied, plain]
    return [_in_program_loop(situation, copied), copied, plain]


def _in_program_loop(situation: Situation, seed: Seed) -> Seed:
    """Programs that walk several tiles: the next one's operands arrive while rows are reduced."""
    flattens = [True, *[None] * (len(situation.entries.ranges) - 1)]
    loop = {"pid_type": "persistent_interleaved", "num_sm_multiplier": 2}
    return replace(seed, options={**seed.options, **loop, "range_flattens": flattens})


def _resident_row_formula(situation: Situation, matmul: MatmulFact, bm: int, n: int) -> Seed:
    """The published formula for such kernels on an H100, as it is."""
    assert matmul.m.block is not None
    bk, stages, itemsize = max(matmul.min_k, min(32, matmul.k.extent_or(32))), 3, matmul.itemsize
    if stages * bk * n * itemsize > STAGED_BYTES:
        bk = matmul.min_k
    while stages > 1 and stages * bk * n * itemsize > STAGED_BYTES:
        stages -= 1
    blocks = {matmul.m.block: bm, **({matmul.k.block: bk} if matmul.k.block else {})}
    return Seed(blocks, 4 if bm * n <= 16384 else 8, stages)


def _descriptors(situation: Situation, *kinds: str) -> dict[str, list[str]]:
    facts = [fact for fact in situation.facts.accesses if fact.kind != "atomic"]
    wants = [fact.kind in kinds and fact.fits_descriptor for fact in facts]
    return {"indexing": ["tensor_descriptor" if want else "pointer" for want in wants]}
