"""Schedules of kernels with several top-level loops: each loop's own tiles, side by side.

Warps and stages are the kernel's; the loop with the most work names them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tilesmith.schedule.device_model import device_of
from tilesmith.schedule.facts.collect import collect_facts
from tilesmith.schedule.facts.outline import AnyLoop, GridOutline
from tilesmith.schedule.heuristics.pointwise import spread_elements
from tilesmith.schedule.heuristics.seed import Seed, Situation
from tilesmith.schedule.predictor import least_ms
from tilesmith.schedule.space.slots import collect_entries

Heuristic = Callable[[Situation], Sequence[Seed]]
OF_ONE_LOOP = ("indexing", "pid_type")
"""Options of forms that were made for kernels with a single loop."""
OF_ALL_LOOPS = ("matrix_instr_nonkdim",)
TILE_ELEMENTS = 1024


@dataclass(frozen=True)
class GridSeed:
    """One top-level loop and its seed."""

    situation: Situation
    seed: Seed


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

    def with_seed(self, position: int, seed: Seed) -> SeveralGridsSeed:
        """The same with another seed of one loop, and its warps and stages."""
        parts = list(self.parts)
        parts[position] = replace(parts[position], seed=seed)
        return SeveralGridsSeed(tuple(parts), seed.num_warps, seed.num_stages, self.options)

    def values(self, situation: Situation) -> dict[str, Any]:
        """The keys of a Config."""
        seeds = [part.seed for part in reversed(self.parts)]
        together = Seed(
            {name: size for seed in seeds for name, size in seed.blocks.items()},
            self.num_warps,
            self.num_stages,
            chunks={dim: size for seed in seeds for dim, size in seed.chunks.items()},
        )
        options = {key: value for seed in seeds for key, value in seed.options.items()}
        return {
            **together.values(situation),
            "l2_groupings": [self._grouping(grid) for grid in situation.entries.grouped],
            "loop_orders": [self._order(loop) for loop in situation.entries.ordered],
            **{key: options[key] for key in OF_ALL_LOOPS if key in options},
            **self.options,
        }

    def _grouping(self, grid: AnyLoop) -> int:
        owners = [part for part in self.parts if grid in part.situation.entries.grouped]
        return owners[0].seed.l2_grouping if owners else 1

    def _order(self, loop: AnyLoop) -> list[int]:
        owners = [part for part in self.parts if loop in part.situation.entries.ordered[:1]]
        return owners[0].seed.order(loop) if owners else list(range(len(loop.blocks)))


def each_grid(situation: Situation) -> list[Situation]:
    """The top-level loops, each as if it were alone."""
    source = situation.facts.source
    sizes = {} if source is None else source.sizes
    rolled = situation.entries.rolled
    found: list[Situation] = []
    for grid in situation.structure.grids:
        structure = GridOutline(situation.structure, grid)
        present = {dim for value in structure.tile_values for dim in value.tile.shape}
        own = tuple(dim for dim in rolled if dim in present)
        facts = collect_facts(structure, own, sizes)
        entries = collect_entries(structure, own, ())
        found.append(Situation(structure, facts, entries, situation.target))
    return found


def several_grids_seeds(situation: Situation, heuristic: Heuristic) -> list[SeveralGridsSeed]:
    """The first seeds of all loops together, then other seeds of one loop."""
    device = device_of(situation.target)
    grids = sorted(
        each_grid(situation), key=lambda grid: least_ms(grid.facts, device), reverse=True
    )
    answers = [plain_seeds(heuristic(grid)) or [_spread(grid)] for grid in grids]
    first = SeveralGridsSeed.of([GridSeed(grid, seeds[0]) for grid, seeds in zip(grids, answers)])
    others = [
        first.with_seed(i, seed) for i, seeds in enumerate(answers) for seed in seeds[bool(not i) :]
    ]
    return [first, *others]


def plain_seeds(seeds: Sequence[Seed]) -> list[Seed]:
    """Those of forms that kernels with several loops can have."""
    plain = [seed for seed in seeds if not any(key in seed.options for key in OF_ONE_LOOP)]
    return plain or list(seeds)


def _spread(situation: Situation) -> Seed:
    """For loops that no heuristic is about."""
    return Seed(spread_elements(situation, TILE_ELEMENTS))
