"""Schedules of kernels with several top-level loops: each loop's own tiles, side by side.

Warps and stages are the kernel's; the loop with the most work names them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tilesmith.backends.triton.heuristics.pointwise import spread_elements
from tilesmith.backends.triton.heuristics.seed import GpuSeed
from tilesmith.schedule.facts.collect import collect_facts
from tilesmith.schedule.facts.outline import AnyLoop, GridOutline
from tilesmith.schedule.rules import TargetedKernel, least_ms
from tilesmith.schedule.space.slots import collect_entries

Heuristic = Callable[[TargetedKernel], Sequence[GpuSeed]]
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
    source = kernel.facts.source
    sizes = {} if source is None else source.sizes
    rolled = kernel.entries.rolled
    found: list[TargetedKernel] = []
    for grid in kernel.outline.grids:
        outline = GridOutline(kernel.outline, grid)
        present = {dim for value in outline.tile_values for dim in value.tile.shape}
        own = tuple(dim for dim in rolled if dim in present)
        facts = collect_facts(outline, own, sizes)
        entries = collect_entries(outline, own, ())
        found.append(TargetedKernel(outline, facts, entries, kernel.rules))
    return found


def several_grids_seeds(kernel: TargetedKernel, heuristic: Heuristic) -> list[SeveralGridsSeed]:
    """The first seeds of all loops together, then other seeds of one loop."""
    device = kernel.rules.device()
    grids = sorted(each_grid(kernel), key=lambda grid: least_ms(grid.facts, device), reverse=True)
    answers = [plain_seeds(heuristic(grid)) or [_spread(grid)] for grid in grids]
    first = SeveralGridsSeed.of([GridSeed(grid, seeds[0]) for grid, seeds in zip(grids, answers)])
    others = [
        first.with_seed(i, seed) for i, seeds in enumerate(answers) for seed in seeds[bool(not i) :]
    ]
    return [first, *others]


def plain_seeds(seeds: Sequence[GpuSeed]) -> list[GpuSeed]:
    """Those of forms that kernels with several loops can have."""
    plain = [seed for seed in seeds if not any(key in seed.options for key in OF_ONE_LOOP)]
    return plain or list(seeds)


def _spread(kernel: TargetedKernel) -> GpuSeed:
    """For loops that no heuristic is about."""
    return GpuSeed(spread_elements(kernel, TILE_ELEMENTS))
