"""The list of heuristics, and the Configs they lead to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from tilesmith.schedule.config import Config
from tilesmith.schedule.facts.collect import Facts
from tilesmith.schedule.facts.outline import FunctionOutline
from tilesmith.schedule.heuristics.attention_gradient import attention_gradient_seeds
from tilesmith.schedule.heuristics.chained_matmul import attention_seeds, reduction_epilogue_seeds
from tilesmith.schedule.heuristics.cpu_matmul import (
    cpu_attention_seeds,
    cpu_matmul_seeds,
    cpu_reduction_epilogue_seeds,
)
from tilesmith.schedule.heuristics.cpu_pointwise import cpu_pointwise_seeds
from tilesmith.schedule.heuristics.cpu_reduction import cpu_reduction_seeds
from tilesmith.schedule.heuristics.cpu_seed import CpuSeed
from tilesmith.schedule.heuristics.matmul import matmul_seeds
from tilesmith.schedule.heuristics.pointwise import pointwise_seeds
from tilesmith.schedule.heuristics.reduction import reduction_seeds
from tilesmith.schedule.heuristics.seed import Seed, Situation
from tilesmith.schedule.heuristics.several_grids import several_grids_seeds
from tilesmith.schedule.heuristics.split_rows import exchange_seeds, panel_seeds, two_phase_seeds
from tilesmith.schedule.space.slots import Entries
from tilesmith.targets import Target


class AnySeed(Protocol):
    """What a heuristic answers."""

    def values(self, situation: Situation) -> dict[str, Any]:
        """The keys of a Config."""
        ...


AnySeedT = TypeVar("AnySeedT", bound=AnySeed)
Heuristic = Callable[[Situation], Sequence[AnySeed]]
HEURISTICS: tuple[tuple[str, Callable[[Situation], Sequence[Seed]]], ...] = (
    ("product whose programs exchange sums", exchange_seeds),
    ("product of a panel, then its rows", panel_seeds),
    ("matmul with reduction epilogue", reduction_epilogue_seeds),
    ("attention with more products", attention_gradient_seeds),
    ("attention", attention_seeds),
    ("matmul", matmul_seeds),
    ("reduction", reduction_seeds),
    ("pointwise", pointwise_seeds),
)
"""The first that answers gives the default; more specific ones come first."""


def _middling_tiles(situation: Situation) -> list[CpuSeed]:
    return [CpuSeed({})] if situation.entries.blocks else []


CPU_HEURISTICS: tuple[tuple[str, Heuristic], ...] = (
    ("matmul with reduction epilogue", cpu_reduction_epilogue_seeds),
    ("attention", cpu_attention_seeds),
    ("matmul", cpu_matmul_seeds),
    ("reduction", cpu_reduction_seeds),
    ("pointwise", cpu_pointwise_seeds),
    ("anything", _middling_tiles),
)


class SeededSpec(Protocol):
    """What heuristics need of a ConfigSpec."""

    structure: FunctionOutline
    facts: Facts
    entries: Entries
    target: Target

    def fit(self, values: Mapping[str, Any]) -> Config:
        """The nearest Config that can be expected to build."""
        ...

    def base_config(self) -> Config:
        """The Config of a kernel of which nothing is known."""
        ...


def find_heuristic(situation: Situation) -> tuple[str, Sequence[AnySeed]]:
    """The name of the heuristic that answers, and its seeds; "" and nothing when none does."""
    if not situation.target.is_gpu:
        return _first_answer(CPU_HEURISTICS, situation)
    if len(situation.structure.grids) > 1:
        split = two_phase_seeds(situation, _gpu_seeds)
        if split:
            return "product, then its rows", split
        return "each loop", several_grids_seeds(situation, _gpu_seeds)
    return _first_answer(HEURISTICS, situation)


def _gpu_seeds(situation: Situation) -> Sequence[Seed]:
    return _first_answer(HEURISTICS, situation)[1]


def _first_answer(
    heuristics: Sequence[tuple[str, Callable[[Situation], Sequence[AnySeedT]]]],
    situation: Situation,
) -> tuple[str, Sequence[AnySeedT]]:
    for name, heuristic in heuristics:
        seeds = heuristic(situation)
        if seeds:
            return name, seeds
    return "", []


def seed_configs(spec: SeededSpec) -> tuple[Config, ...]:
    """Configs to start from, the default first, without repetitions."""
    situation = Situation(spec.structure, spec.facts, spec.entries, spec.target)
    _, seeds = find_heuristic(situation)
    configs = [spec.fit(seed.values(situation)) for seed in seeds]
    return tuple(dict.fromkeys([*configs, spec.base_config()]))
