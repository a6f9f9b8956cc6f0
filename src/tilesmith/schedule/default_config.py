"""The list of heuristics, and the Configs they lead to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tilesmith.schedule.config import Config
from tilesmith.schedule.facts import Facts
from tilesmith.schedule.heuristics.chained_matmul import attention_seeds, reduction_epilogue_seeds
from tilesmith.schedule.heuristics.matmul import matmul_seeds
from tilesmith.schedule.heuristics.pointwise import pointwise_seeds
from tilesmith.schedule.heuristics.reduction import reduction_seeds
from tilesmith.schedule.heuristics.seed import Seed, Situation
from tilesmith.schedule.slots import Entries
from tilesmith.schedule.structure import Structure
from tilesmith.targets import Target

HEURISTICS: tuple[tuple[str, Callable[[Situation], list[Seed]]], ...] = (
    ("matmul with reduction epilogue", reduction_epilogue_seeds),
    ("attention", attention_seeds),
    ("matmul", matmul_seeds),
    ("reduction", reduction_seeds),
    ("pointwise", pointwise_seeds),
)
"""The first that answers gives the default; more specific ones come first."""


class SeededSpec(Protocol):
    """What heuristics need of a ConfigSpec."""

    structure: Structure
    facts: Facts
    entries: Entries
    target: Target

    def fit(self, values: Mapping[str, Any]) -> Config:
        """The nearest Config that can be expected to build."""
        ...

    def base_config(self) -> Config:
        """The Config of a kernel of which nothing is known."""
        ...


def find_heuristic(situation: Situation) -> tuple[str, list[Seed]]:
    """The name of the heuristic that answers, and its seeds; "" and nothing when none does."""
    for name, heuristic in HEURISTICS:
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
