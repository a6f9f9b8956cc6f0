"""Configs in the order of what is expected of them, best first, without compiling any.

Heuristics have measurements behind them: the first of theirs that fits is the default, whatever the
model says (where it overruled them, it was wrong). The model orders the rest. What cannot be
expected to build is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from tilesmith.schedule.candidates import (
    cpu_candidates,
    gpu_candidates,
    several_grids_candidates,
    with_numbering,
)
from tilesmith.schedule.config import Config
from tilesmith.schedule.default_config import AnySeed, SeededSpec, find_heuristic
from tilesmith.schedule.heuristics.cpu_seed import CpuSeed
from tilesmith.schedule.heuristics.seed import Seed, Situation
from tilesmith.schedule.heuristics.several_grids import SeveralGridsSeed
from tilesmith.schedule.model.prediction import Prediction
from tilesmith.schedule.predictor import Predictor

MAX_CANDIDATES = 400
FALLBACKS = 4
SAME_TILE = 2
MODELLED = 20
NUMBERED = 8
"""Tiles that are also tried with other orders of programs."""
Values = dict[str, Any]


@dataclass(frozen=True)
class RankedConfig:
    """A Config with its predicted time and why it is in the list."""

    config: Config
    predicted: Prediction
    reason: str


class RankedSpec(SeededSpec, Protocol):
    """What ranking needs of a ConfigSpec."""

    predictor: Predictor

    def seed_configs(self) -> tuple[Config, ...]:
        """Configs of the heuristics, then the base Config."""
        ...

    def normalize(self, config: Config | Mapping[str, Any]) -> Config:
        """The strict form."""
        ...


def rank_seeds(spec: RankedSpec) -> list[RankedConfig]:
    """The Configs that heuristics name, those that fit; none where no heuristic answers."""
    name, named = find_heuristic(situation_of(spec))
    ranked: list[RankedConfig] = []
    for config in spec.seed_configs()[: len(named)]:
        predicted = spec.predictor.predict_fitting(config)
        if predicted is not None:
            ranked.append(RankedConfig(config, predicted, f"heuristic: {name}"))
    return ranked


def _expected(item: RankedConfig) -> float:
    return item.predicted.total_ms


def situation_of(spec: SeededSpec) -> Situation:
    """What heuristics are asked about."""
    return Situation(spec.structure, spec.facts, spec.entries, spec.target)


def first_config(spec: RankedSpec) -> Config:
    """The default: only the heuristics' Configs are looked at where one of them fits."""
    ranked = rank_configs(spec, 1)
    return ranked[0].config if ranked else spec.seed_configs()[0]


def fallback_configs(spec: RankedSpec) -> tuple[Config, ...]:
    """The default, what the model and other heuristics say, then ever plainer Configs."""
    ranked = [item.config for item in rank_configs(spec, FALLBACKS)]
    small = {"block_sizes": [1] * len(spec.entries.blocks)}
    return tuple(dict.fromkeys([*ranked, spec.base_config(), spec.fit(small)]))


def rank_configs(spec: RankedSpec, count: int) -> tuple[RankedConfig, ...]:
    """The first ``count`` of all: those of heuristics and those the model finds."""
    seeds = rank_seeds(spec)
    if count <= 1 and seeds:
        return tuple(seeds[:count])
    known = {item.config for item in seeds}
    found = [item for item in _modelled(spec, MODELLED + 2 * count) if item.config not in known]
    if not seeds:
        return tuple(found[:count])
    first, *others = seeds
    rest = sorted([*others, *found], key=_expected)
    return (first, *_varied(rest)[: max(0, count - 1)])


def _varied(ranked: list[RankedConfig]) -> list[RankedConfig]:
    """At most two of each tile first: a list of small changes to one tile teaches little."""
    seen: Counter[str] = Counter()
    early: list[RankedConfig] = []
    late: list[RankedConfig] = []
    for item in ranked:
        tile = f"{item.config.get('block_sizes')} {item.config.get('reduction_loops')}"
        seen[tile] += 1
        (early if seen[tile] <= SAME_TILE else late).append(item)
    return early + late


@dataclass(frozen=True)
class _Trial:
    predicted: Prediction
    seed: AnySeed
    values: Values


class _Model:
    """Predicts seeds of one kernel; what a seed does not say is as in a template."""

    def __init__(self, spec: RankedSpec) -> None:
        self._spec = spec
        self.situation = situation_of(spec)
        self._template = dict(spec.seed_configs()[0])

    def try_all(self, seeds: Iterable[AnySeed]) -> list[_Trial]:
        """Those that fit."""
        trials: list[_Trial] = []
        for seed in seeds:
            values = {**self._template, **seed.values(self.situation)}
            predicted = self._spec.predictor.predict_fitting(values)
            if predicted is not None:
                trials.append(_Trial(predicted, seed, values))
        return trials


def _time(trial: _Trial) -> float:
    return trial.predicted.total_ms


def _modelled(spec: RankedSpec, count: int) -> list[RankedConfig]:
    """Candidates of the model, the best first, as normalised Configs."""
    model = _Model(spec)
    trials = sorted(model.try_all(islice(_seeds(model.situation), MAX_CANDIDATES)), key=_time)
    tiles = [trial.seed for trial in trials[:NUMBERED] if isinstance(trial.seed, Seed)]
    variants = (seed for tile in tiles for seed in with_numbering(model.situation, tile))
    trials = sorted([*trials, *model.try_all(variants)], key=_time)
    unique: dict[Config, RankedConfig] = {}
    for trial in trials:
        config = spec.normalize(trial.values)
        reason = f"model: {trial.predicted.limiter}"
        unique.setdefault(config, RankedConfig(config, trial.predicted, reason))
        if len(unique) >= count:
            break
    return list(unique.values())


def _seeds(situation: Situation) -> Iterator[AnySeed]:
    _, named = find_heuristic(situation)
    if not situation.entries.blocks and not situation.entries.rolled:
        return
    first = next(iter(named), None)
    if isinstance(first, SeveralGridsSeed):
        yield from several_grids_candidates(first)
    elif situation.target.is_gpu:
        yield from gpu_candidates(situation, first if isinstance(first, Seed) else Seed({}))
    else:
        yield from cpu_candidates(situation, first if isinstance(first, CpuSeed) else CpuSeed({}))
