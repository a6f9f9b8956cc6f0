"""Schedules of matrix products: tiles as large as keep all multiprocessors busy, deep pipelines."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from tilesmith.schedule.block_bounds import power_of_2_floor
from tilesmith.schedule.facts import Axis, MatmulFact
from tilesmith.schedule.heuristics.seed import Seed, Situation
from tilesmith.schedule.schedule import next_power_of_2
from tilesmith.targets import Target

ENOUGH_EFFICIENCY = 0.8
"""The share of multiprocessors at work over all waves below which smaller tiles are better."""


@dataclass(frozen=True)
class TileLimits:
    """How large tiles and pipelines may grow on a target."""

    area: int
    max_m: int = 128
    max_n: int = 256
    max_k: int = 256
    ring_stages: int = 4
    """Stages for which a K block must leave room."""
    max_stages: int = 6
    least_side: int = 64
    eight_warps_from: int = 16384


def tile_limits(target: Target, fact: MatmulFact) -> TileLimits:
    """The limits for one product."""
    if not fact.uses_tensor_cores:
        # Each thread multiplies its own elements: K is unrolled, so it must be short.
        side = 128 if fact.itemsize <= 4 else 64
        return TileLimits(side * side, side, side, 16, 3, 3, 32, 4096)
    if target.kind == "hip":
        return TileLimits(16384, 128, 128, 64, 2, 2, 64, 65536)
    if target.capability >= 90:
        return TileLimits(32768)
    return TileLimits(16384, 128, 128, 64, 4, 5)


@dataclass(frozen=True)
class Problem:
    """One product with its extents; fixed sides are those without a tunable block."""

    fact: MatmulFact
    limits: TileLimits
    target: Target
    programs: int
    """Programs for each tile of the output (batches, splits of K)."""
    m: int
    n: int
    k: int
    fixed_m: int | None
    fixed_n: int | None

    @property
    def is_saturated(self) -> bool:
        """Whether there are so many products that one tile of each fills the device."""
        return self.programs >= 4 * self.target.num_sms

    def efficiency(self, bm: int, bn: int) -> float:
        """The share of multiprocessors at work, averaged over all waves."""
        tiles = max(1, self.programs * -(-self.m // bm) * -(-self.n // bn))
        waves = -(-tiles // self.target.num_sms)
        return tiles / (waves * self.target.num_sms)

    def fits(self, tile: tuple[int, int, int], stages: int) -> bool:
        """Whether operand buffers and the output's fp32 tile fit shared memory."""
        bm, bn, bk = tile
        buffers = stages if self.target.capability >= 90 else max(1, stages - 1)
        ring = buffers * (bm + bn) * bk * self.fact.itemsize
        limit = self.target.shared_bytes
        return not limit or max(ring, bm * bn * 4) <= limit


def _fixed_side(axis: Axis) -> int | None:
    return None if axis.block is not None else next_power_of_2(max(16, axis.extent_or(16)))


def _grow(problem: Problem) -> tuple[int, int]:
    """The largest tile within the area, sides bounded by the matrix."""
    limits = problem.limits
    most_m, most_n = power_of_2_floor(problem.m), power_of_2_floor(problem.n)
    bm = problem.fixed_m or min(limits.max_m, max(16, most_m))
    bn = problem.fixed_n or min(limits.max_n, max(16, most_n))
    if bm * bn < limits.area:
        bn = problem.fixed_n or max(bn, min(limits.area // bm, most_n))
        bm = problem.fixed_m or max(bm, min(limits.area // bn, most_m))
    return bm, bn


def _shrink(problem: Problem, bm: int, bn: int) -> tuple[int, int]:
    """Halve the larger side while too few multiprocessors would be at work."""
    least = 16 if problem.m <= 16 else problem.limits.least_side
    while problem.efficiency(bm, bn) < ENOUGH_EFFICIENCY:
        prefer_n = problem.fixed_n is None and (bn >= bm or problem.fixed_m is not None)
        smaller = (bm, bn // 2) if prefer_n else (bm // 2, bn)
        side, is_fixed = (bn, problem.fixed_n) if prefer_n else (bm, problem.fixed_m)
        is_worse = problem.efficiency(*smaller) < problem.efficiency(bm, bn)
        if is_fixed or side <= least or is_worse:
            break
        bm, bn = smaller
    return bm, bn


def _depth(problem: Problem, bm: int, bn: int) -> tuple[int, int]:
    """The K block and the number of stages."""
    limits = problem.limits
    least = problem.fact.min_k
    bk = max(least, power_of_2_floor(min(limits.max_k, problem.k / 4)))
    while bk > least and not problem.fits((bm, bn, bk), limits.ring_stages):
        bk //= 2
    deepest = 2 if problem.is_saturated else limits.max_stages
    deepest = min(deepest, max(2, problem.k // bk))
    stages = next((s for s in range(deepest, 1, -1) if problem.fits((bm, bn, bk), s)), 1)
    return bk, stages


def _seed(problem: Problem, bm: int, bn: int) -> Seed:
    fact = problem.fact
    bk, stages = _depth(problem, bm, bn)
    rows, columns = -(-problem.m // bm), -(-problem.n // bn)
    sizes = zip((fact.m, fact.n, fact.k), (bm, bn, bk))
    is_hip_product = problem.target.is_cdna and fact.uses_tensor_cores
    return Seed(
        blocks={axis.block: size for axis, size in sizes if axis.block is not None},
        num_warps=8 if bm * bn >= problem.limits.eight_warps_from else 4,
        num_stages=stages,
        l2_grouping=2 if rows > 1 and rows >= 3 * columns else 1,
        options={"matrix_instr_nonkdim": 16} if is_hip_product else {},
    )


def _problem(situation: Situation, fact: MatmulFact) -> Problem:
    limits = tile_limits(situation.target, fact)
    return Problem(
        fact=fact,
        limits=limits,
        target=situation.target,
        programs=situation.programs((fact.m.block, fact.n.block)),
        m=fact.m.extent_or(4096),
        n=fact.n.extent_or(4096),
        k=fact.k.extent_or(4096),
        fixed_m=_fixed_side(fact.m),
        fixed_n=_fixed_side(fact.n),
    )


def _main_product(facts: tuple[MatmulFact, ...]) -> MatmulFact:
    """The product with the most multiply-adds."""
    return max(facts, key=lambda f: f.m.extent_or(4096) * f.n.extent_or(4096) * f.k.extent_or(4096))


def matmul_seeds(situation: Situation) -> list[Seed]:
    """A seed for the main product, and variants of it."""
    facts = situation.facts.matmuls
    if not facts:
        return []
    problem = _problem(situation, _main_product(facts))
    bm, bn = _grow(problem)
    if problem.is_saturated:
        bm, bn = problem.fixed_m or min(bm, 64), problem.fixed_n or min(bn, 128)
    # Accumulators of products that run side by side share the registers.
    side_by_side = max(Counter((fact.m.dim, fact.n.dim) for fact in facts).values())
    while side_by_side * bm * bn > max(problem.limits.area, 4096) and max(bm, bn) > 32:
        bm, bn = (bm, bn // 2) if bn >= bm and not problem.fixed_n else (bm // 2, bn)
    best = _seed(problem, *_shrink(problem, bm, bn))
    seeds = [best, *_variants(problem, best)]
    return [_with_splits(situation, problem, seed) for seed in seeds]


def _with_splits(situation: Situation, problem: Problem, seed: Seed) -> Seed:
    """Where programs also split K (into tuned tiles), as many splits as fill the device."""
    outer = situation.structure.outer_bounds.get(problem.fact.k.block or "")
    if not isinstance(outer, str) or outer not in situation.entries.blocks:
        return seed
    sizes = [seed.blocks.get(axis.block or "", 16) for axis in (problem.fact.m, problem.fact.n)]
    tiles = max(1, -(-problem.m // sizes[0]) * -(-problem.n // sizes[1]))
    splits = max(1, power_of_2_floor(problem.target.num_sms / tiles))
    length = next_power_of_2(-(-situation.extent(outer) // splits))
    return replace(seed, blocks={**seed.blocks, outer: length})


def _variants(problem: Problem, seed: Seed) -> list[Seed]:
    """Tiles of the other shape and shallower pipelines, for a search."""
    fact = problem.fact
    found: list[Seed] = []
    if fact.m.block and fact.n.block:
        bm, bn = seed.blocks[fact.m.block] * 2, seed.blocks[fact.n.block] // 2
        if bm * bn >= 4096 and bn >= 16 and (bm, bn) != (bn * 2, bm // 2):
            found.append(_seed(problem, bm, bn))
    if seed.num_stages > 2:
        found.append(replace(seed, num_stages=seed.num_stages - 1))
    return found
