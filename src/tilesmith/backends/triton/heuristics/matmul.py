"""Schedules of matrix products: the tile that a small time model likes best, then a deep pipeline.

The model: a multiprocessor works at the speed of its matrix units or of the traffic of a tile's
sides, whichever is slower; all tiles take as many waves as they need.
Constants are of an H200 (bf16, K from 512 to 8192: within 10% of measured times); the ratio of the
two decides, and it is much the same on other GPUs. Long products go through the copy engine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from math import prod

from tilesmith.backends.triton.heuristics import measured_tiles as measured
from tilesmith.backends.triton.heuristics import tile_sides as sides
from tilesmith.backends.triton.heuristics.overlap import products as overlap
from tilesmith.backends.triton.heuristics.seed import GpuSeed, copied, in_one_loop
from tilesmith.ir.types import next_power_of_2
from tilesmith.schedule.facts.extents import Axis
from tilesmith.schedule.facts.products import MatmulFact
from tilesmith.schedule.rules import TargetedKernel
from tilesmith.schedule.space.sizes import power_of_2_floor
from tilesmith.targets import Target

LEAST_K = 256


def multiply_adds(fact: MatmulFact) -> int:
    """Of the whole product, all of its batch."""
    count = 1 if fact.batch is None else fact.batch.extent_or(1)
    return count * prod(axis.extent_or(4096) for axis in fact.axes)


def _copied_seeds(kernel: TargetedKernel, seed: GpuSeed, num_tiles: int) -> list[GpuSeed]:
    """The tile of a seed in this form, if the kernel is such a product; else nothing."""
    facts = kernel.facts
    if len(facts.matmuls) != 1 or not _is_copyable(kernel, facts.matmuls[0]):
        return []
    (fact,) = facts.matmuls
    assert fact.m.block is not None
    assert fact.n.block is not None
    assert fact.k.block is not None
    area = seed.blocks[fact.m.block] * seed.blocks[fact.n.block]
    if area < measured.LEAST_AREA or not overlap.do_ends_show(kernel, fact, area, num_tiles):
        return []
    pipeline = measured.pipeline_of(kernel, fact, area, has_more=num_tiles > kernel.target.num_sms)
    parts = sides.parts_of_tile(kernel, pipeline.parts)
    if parts is None:
        return []
    loop = {"epilogue_subtile": parts, **in_one_loop(kernel)} if parts else {}
    depth = pipeline.block_k * sides.HALF // fact.itemsize
    through = replace(
        seed,
        blocks={**seed.blocks, fact.k.block: max(fact.min_k, depth)},
        num_warps=pipeline.num_warps,
        num_stages=pipeline.num_stages,
        l2_grouping=pipeline.grouping or seed.l2_grouping,
        options={
            **seed.options,
            **copied(kernel, lambda fact: fact.kind == "store" or bool(fact.purpose.sides)),
            **loop,
        },
    )
    return [through, replace(through, num_stages=through.num_stages - 1)]


def _is_copyable(kernel: TargetedKernel, fact: MatmulFact) -> bool:
    """Whether this is one loop over K in one grid, and the hardware can copy all its tiles."""
    if not kernel.target.has_tensor_descriptors or not fact.is_looped:
        return False
    outline = kernel.outline
    # Of a batch, a program has one product at a time: other blocks take their least size.
    batch = [] if fact.batch is None else [fact.batch.block]
    if any(block not in outline.grid_blocks or kernel.minimum(block) != 1 for block in batch):
        return False
    is_plain = len(outline.grids) == 1 and len(outline.loops) == 1
    if not is_plain or any(axis.block is None for axis in fact.axes):
        return False
    accesses = kernel.facts.accesses
    operands = [item for item in accesses if item.kind == "load" and item.purpose.sides]
    moved = [*operands, *(item for item in accesses if item.kind != "load")]
    is_deep = fact.k.extent_or(0) >= LEAST_K
    rank = 2 + len(batch)
    are_tiles = all(item.kind != "atomic" and len(item.strides) == rank for item in moved)
    return is_deep and len(operands) == 2 and are_tiles and overlap.are_copied_well(fact, moved)


NS_PER_PRODUCT = 3.6e-4
"""Time of a tile for each step of K: matrix units, per element of the tile ..."""
NS_PER_SIDE = 0.018
"""... and traffic, per row and column."""


@dataclass(frozen=True)
class _TileLimits:
    """How large tiles and pipelines may grow."""

    max_m: int = 128
    max_n: int = 256
    max_k: int = 256
    ring_stages: int = 4
    """Stages for which a K block must leave room."""
    max_stages: int = 6
    least_side: int = 64
    eight_warps_from: int = 16384
    num_warps: int = 4
    ns_per_side: float = NS_PER_SIDE


def _tile_limits(kernel: TargetedKernel, fact: MatmulFact) -> _TileLimits:
    target = kernel.target
    if not fact.uses_tensor_cores:
        # Each thread multiplies its own elements and K is unrolled, so tiles must be small.
        return _TileLimits(64, 64, 32 if fact.itemsize <= 4 else 16, 3, 3, 32, 1 << 20)
    if target.kind == "hip":
        return _TileLimits(128, 128, 64, 2, 2, 64, 65536)
    if fact.itemsize == 4 and target.capability >= 90:
        # Asynchronous products of tf32 must turn one operand around; two warps use the older
        # instructions, at more than twice the speed.
        return _TileLimits(128, 64, 32, 3, 4, 64, 1 << 20, 2)
    if target.capability < 90:
        return _TileLimits(128, 128, 64, 4, 5)
    late = measured.late_limits(kernel)
    copied = overlap.copied_limits(kernel, fact, is_busy=measured.is_busy(kernel, fact))
    return _TileLimits(**(late or (copied if _is_copyable(kernel, fact) else {})))


@dataclass(frozen=True)
class _Problem:
    """One product with its extents; fixed sides are those without a tunable block."""

    fact: MatmulFact
    limits: _TileLimits
    target: Target
    programs: int
    """Programs for each tile of the output (batches, splits of K)."""
    m: int
    n: int
    k: int
    accumulators: int = 1
    """How many accumulators of the tile's size are alive at once."""
    walked: tuple[str, ...] = ()
    """Blocks whose tiles one program takes one after the other."""

    def sides(self, axis: Axis, extent: int, most: int) -> list[int]:
        if axis.block is None:
            return [next_power_of_2(max(16, extent))]
        whole = max(16, next_power_of_2(extent))
        # A program that walks along one side has only its other side's share of the device.
        is_free = self.m <= 32 or self.fact.n.block in self.walked
        least = 16 if is_free else min(self.limits.least_side, whole)
        high = max(16, min(most, whole))
        return [1 << e for e in range(min(least, high).bit_length() - 1, high.bit_length())]

    def num_tiles(self, bm: int, bn: int) -> int:
        """Tiles of the output, of all programs together."""
        return max(1, self.programs * -(-self.m // bm) * -(-self.n // bn))

    def num_walked(self, bm: int, bn: int) -> int:
        """Tiles that one program works on, one after the other."""
        sides = ((self.fact.m, self.m, bm), (self.fact.n, self.n, bn))
        counts = [-(-extent // size) for axis, extent, size in sides if axis.block in self.walked]
        return max(1, prod(counts))

    def time(self, bm: int, bn: int) -> float:
        # For each step of K.
        walked = self.num_walked(bm, bn)
        waves = walked * -(-self.num_tiles(bm, bn) // (walked * self.target.num_sms))
        per_side = measured.NS_PER_LATE_SIDE if walked > 1 else self.limits.ns_per_side
        return waves * max(NS_PER_PRODUCT * bm * bn, per_side * (bm + bn))

    def best_tile(self) -> tuple[int, int]:
        """Sides with the least modelled time, or 2% more: of these few, square and wide ones."""
        limits = self.limits
        area = limits.max_m * limits.max_n // self.accumulators
        rows = self.sides(self.fact.m, self.m, limits.max_m)
        columns = self.sides(self.fact.n, self.n, limits.max_n)
        tiles = [tile for tile in product(rows, columns) if tile[0] * tile[1] <= area]
        tiles = tiles or [(rows[0], columns[0])]
        least = 1.02 * min(self.time(*tile) for tile in tiles)
        fast = [tile for tile in tiles if self.time(*tile) <= least]
        return self._spread(*min(fast, key=lambda tile: (-prod(tile), sum(tile), -tile[1])))

    def _spread(self, bm: int, bn: int) -> tuple[int, int]:
        """Narrower tiles where few programs would leave most of the device idle.

        fp16 on an H200, us: 256^3 5.0 with 64 columns, 4.6 with 16; 384^3 5.9 with 64, 5.5 with 32.
        """
        is_measured = self.target.capability >= 90 and self.fact.uses_tensor_cores
        is_fixed = self.fact.n.block is None or self.fact.n.block in self.walked
        if not is_measured or is_fixed or bm > 64:
            return bm, bn
        while bn > 16 and 10 * self.num_tiles(bm, bn) <= 3 * self.target.num_sms:
            bn //= 2
        return bm, bn

    def fits(self, tile: tuple[int, int, int], stages: int) -> bool:
        """Whether operand buffers and the output's fp32 tile fit shared memory."""
        bm, bn, bk = tile
        buffers = stages if self.target.capability >= 90 else max(1, stages - 1)
        ring = buffers * (bm + bn) * bk * self.fact.itemsize
        limit = self.target.shared_bytes
        return not limit or max(ring, bm * bn * 4) <= limit

    def depth(self, bm: int, bn: int) -> tuple[int, int]:
        least = self.fact.min_k
        bk = max(least, power_of_2_floor(min(self.limits.max_k, self.k / 4)))
        while bk > least and not self.fits((bm, bn, bk), self.limits.ring_stages):
            bk //= 2
        deepest = min(self.limits.max_stages, max(2, self.k // bk))
        stages = next((s for s in range(deepest, 1, -1) if self.fits((bm, bn, bk), s)), 1)
        return bk, stages


def _seed(kernel: TargetedKernel, problem: _Problem, bm: int, bn: int) -> GpuSeed:
    fact = problem.fact
    bk, stages = problem.depth(bm, bn)
    is_hip_product = problem.target.is_cdna and fact.uses_tensor_cores
    alive = problem.accumulators if fact.n.block in problem.walked else 1
    is_large = bm * bn * alive >= problem.limits.eight_warps_from
    return GpuSeed(
        blocks=sides.sized((fact.m, bm), (fact.n, bn), (fact.k, bk)),
        num_warps=8 if is_large else problem.limits.num_warps,
        num_stages=stages,
        l2_grouping=_grouping(kernel, problem, bm, bn),
        options={"matrix_instr_nonkdim": 16} if is_hip_product else {},
        fastest=(fact.m.block, fact.n.block),
    )


def _grouping(kernel: TargetedKernel, problem: _Problem, bm: int, bn: int) -> int:
    """Rows of tiles that run together: for tall outputs, and where loads are narrow."""
    rows, columns = -(-problem.m // bm), -(-problem.n // bn)
    loads = [fact for fact in kernel.facts.accesses if fact.kind == "load"]
    if min(rows, columns) > 4 and any(not fact.is_aligned for fact in loads):
        return 4
    return 2 if rows > 1 and rows >= 3 * columns else 1


def problem_of(kernel: TargetedKernel, fact: MatmulFact) -> _Problem:
    """A product with its extents on a target."""
    stepped = {block for loop in kernel.outline.loops for block in loop.blocks}
    return _Problem(
        fact=fact,
        limits=_tile_limits(kernel, fact),
        target=kernel.target,
        programs=kernel.programs((fact.m.block, fact.n.block)),
        m=fact.m.extent_or(4096),
        n=fact.n.extent_or(4096),
        k=fact.k.extent_or(4096),
        accumulators=measured.num_sums(kernel),
        walked=tuple(block for block in kernel.loop_blocks if block in stepped),
    )


def main_product(facts: tuple[MatmulFact, ...]) -> MatmulFact:
    """The product with the most multiply-adds."""
    return max(facts, key=multiply_adds)


def matmul_seeds(kernel: TargetedKernel) -> list[GpuSeed]:
    """A seed for the main product, and variants of it."""
    facts = kernel.facts.matmuls
    if not facts:
        return []
    problem = problem_of(kernel, main_product(facts))
    words = measured.word_seeds(kernel, problem.fact)
    bm, bn = problem.best_tile()
    best = _seed(kernel, problem, bm, bn)
    copied = _copied_seeds(kernel, best, problem.num_tiles(bm, bn))
    seeds = [best, *copied, *_variants(kernel, problem, best)]
    if multiply_adds(problem.fact) >= measured.LEAST_WORK:
        seeds = [*copied, best, *seeds[1 + len(copied) :]]
    return [sides.with_splits(kernel, problem.fact, seed) for seed in (*words, *seeds)]


def _variants(kernel: TargetedKernel, problem: _Problem, seed: GpuSeed) -> list[GpuSeed]:
    """Tiles of the other shape, shallower pipelines and other warps, for a search."""
    fact = problem.fact
    found: list[GpuSeed] = []
    if fact.m.block and fact.n.block:
        bm, bn = seed.blocks[fact.n.block], seed.blocks[fact.m.block]
        if bm != bn and bm * bn >= 4096:
            found.append(_seed(kernel, problem, bm, bn))
    if seed.num_stages > 2:
        found.append(replace(seed, num_stages=seed.num_stages - 1))
    if seed.num_warps > 2:
        found.append(replace(seed, num_warps=12 - seed.num_warps))
    return found
