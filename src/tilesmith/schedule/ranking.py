"""Configs in the order of what is expected of them, best first, without compiling any.

Heuristics have measurements behind them: the first of theirs that fits is the default, whatever the
model says (where it overruled them, it was wrong). The model orders the rest. What cannot be
expected to build is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from tilesmith.schedule.config import Config
from tilesmith.schedule.model.estimates import Prediction
from tilesmith.schedule.rules import KernelModel, Seed, TargetedKernel, Values

MAX_CANDIDATES = 400
FALLBACKS = 4
SAME_TILE = 2
MODELLED = 20
NUMBERED = 8
"""Tiles that are also tried with other orders of programs."""


@dataclass(frozen=True)
class RankedConfig:
    """A Config with its predicted time and why it is in the list."""

    config: Config
    predicted: Prediction
    reason: str


class RankedSpec(Protocol):
    """What ranking needs of a ConfigSpec."""

    kernel: TargetedKernel
    model: KernelModel

    def fit(self, values: Mapping[str, Any]) -> Config:
        """The nearest Config that can be expected to build."""
        ...

    def base_config(self) -> Config:
        """The Config of a kernel of which nothing is known."""
        ...

    def seed_configs(self) -> tuple[Config, ...]:
        """Configs of the heuristics, then the base Config."""
        ...

    def normalize(self, config: Config | Mapping[str, Any]) -> Config:
        """The Config in full, or an error that says what is wrong with it."""
        ...


def rank_seeds(spec: RankedSpec) -> list[RankedConfig]:
    """The Configs that heuristics name, those that fit; none where no heuristic answers."""
    name, named = spec.kernel.rules.seeds(spec.kernel)
    ranked: list[RankedConfig] = []
    for config in spec.seed_configs()[: len(named)]:
        predicted = spec.model.predict_fitting(config)
        if predicted is not None:
            ranked.append(RankedConfig(config, predicted, f"heuristic: {name}"))
    return ranked


def _expected(item: RankedConfig) -> float:
    return item.predicted.total_ms


def seed_configs(spec: RankedSpec) -> tuple[Config, ...]:
    """Configs to start from, the default first, without repetitions."""
    _, seeds = spec.kernel.rules.seeds(spec.kernel)
    configs = [spec.fit(seed.values(spec.kernel)) for seed in seeds]
    return tuple(dict.fromkeys([*configs, spec.base_config()]))


def first_config(spec: RankedSpec) -> Config:
    """The default: only the heuristics' Configs are looked at where one of them fits."""
    ranked = rank_configs(spec, 1)
    return ranked[0].config if ranked else spec.seed_configs()[0]


def fallback_configs(spec: RankedSpec) -> tuple[Config, ...]:
    """The default, what the model and other heuristics say, then ever plainer Configs."""
    ranked = [item.config for item in rank_configs(spec, FALLBACKS)]
    small = {"block_sizes": [1] * len(spec.kernel.entries.blocks)}
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
    seed: Seed
    values: Values


class _Model:
    """Predicts seeds of one kernel; what a seed does not say is as in a template."""

    def __init__(self, spec: RankedSpec) -> None:
        self._spec = spec
        self._kernel = spec.kernel
        self._template = dict(spec.seed_configs()[0])

    def try_all(self, seeds: Iterable[Seed]) -> list[_Trial]:
        """Seeds that fit the device, with their predicted times."""
        trials: list[_Trial] = []
        for seed in seeds:
            values = {**self._template, **seed.values(self._kernel)}
            predicted = self._spec.model.predict_fitting(values)
            if predicted is not None:
                trials.append(_Trial(predicted, seed, values))
        return trials


def _time(trial: _Trial) -> float:
    return trial.predicted.total_ms


def _modelled(spec: RankedSpec, count: int) -> list[RankedConfig]:
    """Candidates of the model, the best first, as normalised Configs."""
    model, kernel, rules = _Model(spec), spec.kernel, spec.kernel.rules
    trials = sorted(model.try_all(islice(_candidates(kernel), MAX_CANDIDATES)), key=_time)
    tiles = [trial.seed for trial in trials[:NUMBERED]]
    variants = (seed for tile in tiles for seed in rules.variants(kernel, tile))
    trials = sorted([*trials, *model.try_all(variants)], key=_time)
    unique: dict[Config, RankedConfig] = {}
    for trial in trials:
        config = spec.normalize(trial.values)
        reason = f"model: {trial.predicted.limiter}"
        unique.setdefault(config, RankedConfig(config, trial.predicted, reason))
        if len(unique) >= count:
            break
    return list(unique.values())


def _candidates(kernel: TargetedKernel) -> Iterable[Seed]:
    if not kernel.entries.blocks and not kernel.entries.rolled:
        return ()
    _, named = kernel.rules.seeds(kernel)
    return kernel.rules.candidates(kernel, next(iter(named), None))
