"""Schedules of kernels with several top-level loops, and of products whose rows others reduce.

Each loop has its own tiles; warps and stages are the kernel's, and the loop with the most work
names them. A product that goes to scratch memory gets the tile that it would have alone; of the
rows, a program takes as many at a time as keep all its threads busy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from tilesmith.backends.triton.heuristics import measured_tiles as measured
from tilesmith.backends.triton.heuristics.matmul import multiply_adds
from tilesmith.backends.triton.heuristics.memory_bound import spread_elements
from tilesmith.backends.triton.heuristics.overlap import panels
from tilesmith.backends.triton.heuristics.seed import GpuSeed, copied
from tilesmith.schedule.facts.accesses import AccessFact
from tilesmith.schedule.facts.collect import collect_facts
from tilesmith.schedule.facts.outline import AnyLoop, GridOutline, counted_loops
from tilesmith.schedule.facts.products import MatmulFact
from tilesmith.schedule.rules import TargetedKernel, least_ms
from tilesmith.schedule.space.slots import collect_entries

Heuristic = Callable[[TargetedKernel], Sequence[GpuSeed]]
AnySeed = TypeVar("AnySeed", GpuSeed, "SeveralGridsSeed")
OF_ONE_LOOP = ("indexing", "pid_type")
"""Options of forms that were made for kernels with a single loop."""
OF_ALL_LOOPS = ("matrix_instr_nonkdim",)
TILE_ELEMENTS = 1024


@dataclass(frozen=True)
class GridSeed:
    """One top-level loop and its seed."""

    kernel: TargetedKernel
    seed: GpuSeed


@dataclass(frozen=True)
class SeveralGridsSeed:
    """Seeds of all top-level loops, the one with the most work first."""

    parts: tuple[GridSeed, ...]
    num_warps: int
    num_stages: int
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further keys, of all loops together."""

    @staticmethod
    def of(parts: Sequence[GridSeed]) -> SeveralGridsSeed:
        """The loops with the warps and stages of the first."""
        main = parts[0].seed
        return SeveralGridsSeed(tuple(parts), main.num_warps, main.num_stages)

    def with_seed(self, position: int, seed: GpuSeed) -> SeveralGridsSeed:
        """The same with another seed of one loop, and its warps and stages."""
        parts = list(self.parts)
        parts[position] = replace(parts[position], seed=seed)
        return SeveralGridsSeed(tuple(parts), seed.num_warps, seed.num_stages, self.options)

    def values(self, kernel: TargetedKernel) -> dict[str, Any]:
        """The keys of a Config."""
        seeds = [part.seed for part in reversed(self.parts)]
        together = GpuSeed(
            {name: size for seed in seeds for name, size in seed.blocks.items()},
            self.num_warps,
            self.num_stages,
            chunks={dim: size for seed in seeds for dim, size in seed.chunks.items()},
        )
        options = {key: value for seed in seeds for key, value in seed.options.items()}
        return {
            **together.values(kernel),
            "l2_groupings": [self._grouping(grid) for grid in kernel.entries.grouped],
            "loop_orders": [self._order(loop) for loop in kernel.entries.ordered],
            **{key: options[key] for key in OF_ALL_LOOPS if key in options},
            **self.options,
        }

    def _grouping(self, grid: AnyLoop) -> int:
        owners = [part for part in self.parts if grid in part.kernel.entries.grouped]
        return owners[0].seed.l2_grouping if owners else 1

    def _order(self, loop: AnyLoop) -> list[int]:
        owners = [part for part in self.parts if loop in part.kernel.entries.ordered[:1]]
        return owners[0].seed.order(loop) if owners else list(range(len(loop.blocks)))


def each_grid(kernel: TargetedKernel) -> list[TargetedKernel]:
    """The top-level loops, each as if it were alone."""
    found: list[TargetedKernel] = []
    for grid in kernel.outline.grids:
        outline = GridOutline(kernel.outline, grid)
        present = {dim for value in outline.tile_values for dim in value.tile.shape}
        own = tuple(dim for dim in kernel.entries.rolled if dim in present)
        facts = collect_facts(outline, own, kernel.facts.sizes)
        entries = collect_entries(outline, own, ())
        found.append(TargetedKernel(outline, facts, entries, kernel.rules))
    return found


def several_grids_seeds(kernel: TargetedKernel, heuristic: Heuristic) -> list[SeveralGridsSeed]:
    """The first seeds of all loops together, then other seeds of one loop."""
    device = kernel.rules.device()
    grids = sorted(each_grid(kernel), key=lambda grid: least_ms(grid.facts, device), reverse=True)
    # Elements are spread in loops that no heuristic is about.
    answers = [
        plain_seeds(heuristic(grid)) or [GpuSeed(spread_elements(grid, TILE_ELEMENTS))]
        for grid in grids
    ]
    first = SeveralGridsSeed.of([GridSeed(grid, seeds[0]) for grid, seeds in zip(grids, answers)])
    others = [
        first.with_seed(i, seed) for i, seeds in enumerate(answers) for seed in seeds[bool(not i) :]
    ]
    are_alone = {len(grid.facts.matmuls) for grid in grids} - {0} == {1}
    return [*_with_copies(kernel, [first] if are_alone else []), first, *others]


def plain_seeds(seeds: Sequence[GpuSeed]) -> list[GpuSeed]:
    """Those of forms that kernels with several loops can have."""
    plain = [seed for seed in seeds if not any(key in seed.options for key in OF_ONE_LOOP)]
    return plain or list(seeds)


ELEMENTS_PER_THREAD = 64
"""Of the rows that a program has at a time."""
MOST_ROWS, LEAST_STAGES = 16, 3
WIDE, LARGE = (128, 128, 64, 4, 3), (128, 256, 64, 8, 4)
SMALL, SHALLOW = (64, 128, 128, 4, 4), (64, 128, 64, 4, 3)
"""Tiles that programs keep: usual ones, those for long contractions, and those for few rows.

bf16 on an H200, ms: 131072x3072x2048 WIDE 2.74, LARGE 2.68; 1024x4096x1024 WIDE 0.041, SMALL
0.0234, SHALLOW 0.036; 1024x512x2048 0.0150, 0.0178, 0.0142; 2048x512x1024 0.0155, 0.0184, 0.0149.
"""
SHORT, LONG_WORK = 1024, 7 << 30
TILES: tuple[measured.Tile, ...] = (WIDE, LARGE, (64, 256, 32, 4, 4))
"""Of products whose panels are reduced by the last program.

Two programs of the first share a multiprocessor: one multiplies while the other moves rows.
"""
PANELS_AT_A_TIME = 2
"""Few, so that they are complete while their rows are still in the shared cache."""


def two_phase_seeds(
    kernel: TargetedKernel, heuristic: Callable[[TargetedKernel], Sequence[GpuSeed]]
) -> list[SeveralGridsSeed]:
    """All programs multiply, then all reduce; nothing for kernels of another kind."""
    if not kernel.outline.has_barrier or len(kernel.outline.grids) != 2:
        return []
    product, rows = each_grid(kernel)
    if len(product.facts.matmuls) != 1 or rows.facts.matmuls or not rows.facts.reductions:
        return []
    tiles = plain_seeds(heuristic(product))
    if not tiles or len(rows.entries.blocks) != 1:
        return []
    (block,) = rows.entries.blocks
    most = rows.extent(block) // (2 * rows.target.num_sms)
    seeds: list[SeveralGridsSeed] = []
    for tile in tiles[:2]:
        deep = replace(tile, num_stages=max(LEAST_STAGES, tile.num_stages))
        count = min(most, _num_rows(rows, tile.num_warps))
        parts = [GridSeed(product, deep), GridSeed(rows, GpuSeed({block: max(1, count)}))]
        seeds.append(SeveralGridsSeed.of(parts))
    return [*_with_copies(kernel, seeds), *seeds]


def panel_seeds(kernel: TargetedKernel) -> list[GpuSeed]:
    """A panel's rows are reduced by the last that multiplied some of it; nothing for others."""
    facts, outline = kernel.facts, kernel.outline
    if len(facts.matmuls) != 1 or not facts.reductions:
        return []
    (fact,) = facts.matmuls
    m, n, k = fact.m.block, fact.n.block, fact.k.block
    others = [block for block in kernel.loop_blocks if block not in (n, k)]
    if m is None or n is None or k is None or len(others) != 1:
        return []
    (rows,) = others
    if outline.outer_bounds.get(rows) != m or not counted_loops(outline):
        return []
    tiles = measured.TILES_OF_WORDS if fact.itemsize > 2 else TILES
    seeds = [
        GpuSeed(
            {m: bm, n: bn, k: depth, rows: _num_rows(kernel, warps)},
            warps,
            stages,
            l2_grouping=PANELS_AT_A_TIME,
        )
        for bm, bn, depth, warps, stages in tiles
    ]
    return [*_with_copies(kernel, seeds), *seeds]


def exchange_seeds(kernel: TargetedKernel) -> list[GpuSeed]:
    """Tiles stay in registers, and programs of a panel exchange sums; nothing for other kernels.

    The programs of one multiprocessor should be of several panels: while one waits, another works.
    """
    facts = kernel.facts
    if not kernel.outline.group_barriers or len(facts.matmuls) != 1:
        return []
    (fact,) = facts.matmuls
    m, n, k = fact.m.block, fact.n.block, fact.k.block
    if m is None or n is None or k is None:
        return []
    seeds = [
        GpuSeed({m: bm, n: bn, k: depth}, warps, stages)
        for bm, bn, depth, warps, stages in _tiles_to_keep(kernel, fact)
    ]
    if not fact.uses_tensor_cores:
        return seeds
    return [*_with_copies(kernel, seeds, is_kept=True), *seeds]


def _tiles_to_keep(kernel: TargetedKernel, fact: MatmulFact) -> list[measured.Tile]:
    """Tiles of an exchange, the one for this product first."""
    is_short, num_sms = fact.k.extent_or(0) < SHORT, kernel.target.num_sms
    num_tiles = -(-fact.m.extent_or(4096) // 64) * -(-fact.n.extent_or(4096) // 128)
    if fact.itemsize > 2:
        return measured.words_to_keep(is_short=is_short, has_few=num_tiles <= 2 * num_sms)
    first = LARGE if fact.k.extent_or(0) >= panels.DEEP else WIDE
    if num_tiles <= num_sms:
        first = SMALL
    elif num_tiles <= 2 * num_sms and is_short:
        first = SHALLOW
    return [first, *(tile for tile in (WIDE, LARGE, SMALL, SHALLOW) if tile != first)]


def _num_rows(kernel: TargetedKernel, num_warps: int) -> int:
    length = max(fact.axis.extent_or(4096) for fact in kernel.facts.reductions)
    elements = ELEMENTS_PER_THREAD * num_warps * kernel.target.warp_size
    return max(1, min(MOST_ROWS, elements // max(1, length)))


def _is_long_half(fact: MatmulFact) -> bool:
    return fact.itemsize == 2 and multiply_adds(fact) >= LONG_WORK


def _with_copies(
    kernel: TargetedKernel, seeds: Sequence[AnySeed], *, is_kept: bool = False
) -> list[AnySeed]:
    """Seeds whose operands are copied: of long products (results, too), or of tiles to keep."""
    are_long = all(map(_is_long_half, kernel.facts.matmuls))
    if not kernel.target.has_tensor_descriptors or not (are_long or is_kept):
        return []

    def is_wanted(fact: AccessFact) -> bool:
        is_operand = fact.kind == "load" and bool(fact.purpose.sides)
        return is_operand or (is_kept and are_long and fact.kind == "store")

    options = copied(kernel, is_wanted)
    are_some = "tensor_descriptor" in options["indexing"]
    return [replace(seed, options=options) for seed in seeds if are_some]
