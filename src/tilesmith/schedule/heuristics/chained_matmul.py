"""Schedules of products with more around them: attention, and row reductions of the output."""

from __future__ import annotations

from tilesmith.schedule.block_bounds import power_of_2_floor
from tilesmith.schedule.facts import AttentionFact, MatmulFact
from tilesmith.schedule.heuristics.seed import Seed, Situation
from tilesmith.schedule.schedule import next_power_of_2

ACCUMULATOR_BYTES = 128 * 1024
STAGED_BYTES = 192 * 1024


def _attention_tile(situation: Situation, fact: AttentionFact) -> tuple[int, int]:
    """128 rows by 64 columns; fewer rows where there are too few programs, or no matrix units."""
    rows, columns = fact.scores.m, fact.scores.n
    width = next_power_of_2(fact.values.n.extent_or(128))
    programs = situation.programs((rows.block,)) * -(-rows.extent_or(4096) // 128)
    bm, bn = 128, 64
    if not fact.scores.uses_tensor_cores:
        bm, bn = 64, 32
    elif programs < situation.target.num_sms:
        bm, bn = 64, 128 if width <= 64 else 64
    elif width > 128:
        bn = 32
    whole_rows = next_power_of_2(max(16, rows.extent_or(4096)))
    whole_columns = next_power_of_2(max(16, columns.extent_or(4096)))
    return min(bm, whole_rows), min(bn, whole_columns)


def attention_seeds(situation: Situation) -> list[Seed]:
    """Two chained products in one loop, with a short pipeline."""
    fact = situation.facts.attention
    if fact is None:
        return []
    target, rows, columns = situation.target, fact.scores.m, fact.scores.n
    width = next_power_of_2(fact.values.n.extent_or(128))
    bm, bn = _attention_tile(situation, fact)
    blocks = {axis.block: size for axis, size in ((rows, bm), (columns, bn)) if axis.block}
    is_wide = bm * width >= 16384 and target.kind == "cuda"
    stages = 3 if target.kind == "cuda" and target.capability >= 90 else 2
    # Wide heads are too large to keep all of them in the cache: one head's rows run together.
    fastest = (rows.block,) if width >= 128 else ()
    seeds = [Seed(blocks, 8 if is_wide else 4, stages, fastest=fastest)]
    if target.kind == "cuda":
        seeds.append(Seed(blocks, 4 if is_wide else 8, 2, fastest=fastest))
        taller = {name: size * 2 if name == rows.block else size for name, size in blocks.items()}
        seeds.append(Seed(taller, 8, stages, fastest=fastest))
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
    seed = Seed(blocks, 4 if bm * n <= 16384 else 16, stages)
    copied = Seed(blocks, seed.num_warps, stages, options=_descriptor_loads(situation))
    # Operands of short tiles arrive faster through descriptors.
    is_short = bm < 64 and situation.target.has_tensor_descriptors
    return [copied, seed] if is_short else [seed, copied]


def _descriptor_loads(situation: Situation) -> dict[str, list[str]]:
    facts = [fact for fact in situation.facts.accesses if fact.kind != "atomic"]
    wants = [fact.kind == "load" and fact.fits_descriptor for fact in facts]
    return {"indexing": ["tensor_descriptor" if want else "pointer" for want in wants]}
