"""ConfigSpec: what a Config may say about one function on one target, and which are good.

Configs are ranked without compiling any. Heuristics have measurements behind them: the first of
theirs that fits is the default, whatever the model says (where it overruled them, it was wrong).
The model orders the rest. What cannot be expected to build is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from hashlib import sha256
from itertools import islice
from math import inf
from random import Random
from typing import Any

from tilesmith.analysis.restructuring import find_flattenable, find_rollable_dims
from tilesmith.exc import TunableNameConflict
from tilesmith.ir.function import Function
from tilesmith.ir.ops.control_flow import Grid
from tilesmith.schedule.config import (
    RANGE_KEYS,
    Config,
    in_order,
    is_reserved,
    keep_known,
    spell_out,
)
from tilesmith.schedule.facts.collect import collect_facts
from tilesmith.schedule.facts.outline import FunctionOutline
from tilesmith.schedule.model.estimates import Prediction, ResourceUse
from tilesmith.schedule.rules import Ignored, ScheduleRules, Seed, TargetedKernel, Values
from tilesmith.schedule.space.fragments import Fragment
from tilesmith.schedule.space.sizes import TileSizes, static_range_slots, useful_elements
from tilesmith.schedule.space.slots import (
    Dimension,
    Entries,
    Slot,
    check_list,
    check_value,
    collect_dimensions,
    collect_entries,
)
from tilesmith.schedule.spec_lists import SpecLists

Given = Config | Mapping[str, Any]
MAX_STEPS = 200
"""Of a Config on its way to one that fits."""
MAX_CANDIDATES = 400
MOST_WARPS = 16
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


class ConfigSpec(SpecLists):
    """The Configs of one function (after the standard passes) on one target.

    ``normalize`` checks a Config and writes it out in full; ``default_config`` needs no search;
    ``dimensions`` and ``random_config`` are for searches.
    """

    def __init__(
        self,
        function: Function,
        rules: ScheduleRules,
        tunables: Mapping[str, Fragment] | None = None,
        *,
        allow_warp_specialize: bool = True,
    ) -> None:
        self.function = function
        self.rules = rules
        self.target = rules.target
        self.tunables = dict(tunables or {})
        for name in filter(is_reserved, self.tunables):
            raise TunableNameConflict(name=name)
        self.outline = outline = FunctionOutline(function)
        rollable = find_rollable_dims(function)
        self.facts = collect_facts(outline, rollable)
        flat_slots = find_flattenable(function)
        flattened = tuple(grid for grid in outline.grids if grid.slot in flat_slots)
        self.entries = collect_entries(outline, rollable, flattened)
        self.kernel = TargetedKernel(
            outline, self.facts, self.entries, rules, allow_warp_specialize
        )
        slots = rules.slots(self.kernel)
        self.lists = slots.lists
        own = {name: Slot.make(name, fragment) for name, fragment in self.tunables.items()}
        self.scalars = {**slots.scalars, **own}
        self._effective = frozenset((*self.lists, *self.scalars))
        self.model = rules.model(self.kernel)

    @cached_property
    def supported_keys(self) -> tuple[str, ...]:
        """Keys that may change the code of this kernel on this target."""
        return (*(key for key, slots in self.lists.items() if slots), *self.scalars)

    def forms(self) -> dict[str, ConfigSpec]:
        """All forms that the kernel has, by the name that a Config gives to them; "": as it is."""
        return {"": self}

    def of(self, config: Given) -> tuple[ConfigSpec, Config]:
        """The specification of the form that a Config is about, and what it says about it."""
        return self, Config.from_dict(config)

    def normalize(self, config: Given) -> Config:
        """The same choice with every key in full; raises ``InvalidConfig`` when it does not fit.

        Keys that only other targets know are dropped, so that one Config serves several devices.
        """
        values = self._check(config)
        self.rules.check(values)
        values = self._settle(values)
        self.model.check_tiles(values)
        self.rules.check_launch(self.kernel, values)
        return Config.from_dict(in_order(values))

    def settle(self, values: Mapping[str, Any]) -> Values:
        """As ``normalize``, but options without effect are reset and tiles may be of any size."""
        settled = self._settle(self.rules.reset_inactive(self.entries, self._check(values)))
        return self.rules.relax(self.kernel, settled)

    def _check(self, given: Mapping[str, Any]) -> Values:
        """Every key and value on its own, with defaults for those not given."""
        values = spell_out(given, len(self.entries.rolled))
        # A list that does not fit the loops is wrong on targets too where it has no effect.
        marks = values.get("static_ranges", [])
        check_list("static_ranges", tuple(static_range_slots(self.entries)), marks)
        values = _of_grids(keep_known(values, self.rules.backend, self._effective), self.entries)
        checked: Values = {
            key: check_list(key, slots, values.get(key, [])) for key, slots in self.lists.items()
        }
        for key, slot in self.scalars.items():
            value = values.get(key)
            checked[key] = check_value(key, slot, slot.default if value is None else value)
        return checked

    def _settle(self, values: Values) -> Values:
        settled = self.rules.reset_inactive(self.entries, values)
        resolver = self.kernel.resolver
        settled["block_sizes"] = resolver.settle_blocks(values["block_sizes"])
        settled["reduction_loops"] = resolver.settle_chunks(values["reduction_loops"])
        return settled

    def sizes(self, values: Given) -> TileSizes:
        """Physical sizes of all dimensions under a normalised Config."""
        form, plain = self.of(values)
        return form.kernel.sizes(plain)

    def resources(self, values: Given) -> ResourceUse:
        """An estimate of what a normalised Config needs of the device."""
        form, plain = self.of(values)
        return form.model.resources(plain)

    def fit(self, values: Given, most_elements: float = inf) -> Config:
        """The nearest smaller Config that fits; the smallest one reached when none does.

        ``most_elements`` is for a search that has no use for larger tiles, legal as they are.
        """
        current = self.settle(values)
        for _ in range(MAX_STEPS):
            use = self.model.resources(current)
            is_done = use.fits and use.tile_elements <= most_elements
            smaller = None if is_done else self.kernel.shrink(current, use, most_elements)
            if smaller is None:
                break
            current = self.settle(smaller)
        return self.normalize(current)

    def base_config(self) -> Config:
        """A Config with the default of every key, block sizes included."""
        return self.unflatten({})

    @cached_property
    def _seeds(self) -> tuple[Config, ...]:
        configs = [self.fit(seed.values(self.kernel)) for seed in self.rules.seeds(self.kernel)[1]]
        return tuple(dict.fromkeys([*configs, self.base_config()]))

    def seed_configs(self) -> tuple[Config, ...]:
        """Good Configs to start a search from, the default first."""
        return self._seeds

    @cached_property
    def _default(self) -> Config:
        # Only the heuristics' Configs are looked at where one of them fits.
        ranked = rank_configs(self, 1)
        return ranked[0].config if ranked else self.seed_configs()[0]

    def default_config(self) -> Config:
        """A sensible Config that builds, without any search."""
        return self._default

    @cached_property
    def _dimensions(self) -> tuple[Dimension, ...]:
        return collect_dimensions(self.lists, self.scalars)

    def dimensions(self) -> tuple[Dimension, ...]:
        """What a search may vary: the entries with more than one choice that change the code."""
        return self._dimensions

    def active_dimensions(self, config: Config) -> tuple[Dimension, ...]:
        """The dimensions that change the code, given the other choices of the Config."""
        form, plain = self.of(config)
        is_active = partial(form.rules.is_active, form.entries, dict(form.normalize(plain)))
        return tuple(item for item in form.dimensions() if is_active(item.key, item.index))

    def feasibility(self, config: Given) -> str | None:
        """Why the Config cannot be expected to build, in words; None when it can."""
        form, plain = self.of(config)
        return form.model.find_problem(form.settle(plain))

    def predict(self, config: Given) -> Prediction:
        """The time of a call's launches with the Config, before compiling."""
        form, plain = self.of(config)
        return form.model.in_all(form.model.predict(form.settle(plain)))

    def ranked_configs(self, count: int = 10) -> tuple[RankedConfig, ...]:
        """Good Configs without a search, the default first."""
        return rank_configs(self, count)

    def fallback_configs(self) -> tuple[Config, ...]:
        """The default, also with fewer stages, then what others say, then ever plainer Configs."""
        ranked = [item.config for item in rank_configs(self, FALLBACKS)]
        for first in ranked[:1]:  # most often memory is short
            fewer = range(first.get("num_stages", 1) - 1, 1, -1)
            ranked[1:1] = [first.updated(num_stages=n) for n in fewer]
        small = {"block_sizes": [1] * len(self.entries.blocks)}
        warps = {key: MOST_WARPS for key in self.scalars if key == "num_warps"} | small
        return tuple(dict.fromkeys([*ranked, self.base_config(), *map(self.fit, (small, warps))]))

    def _expand(self, choices: Mapping[Dimension, Any]) -> Values:
        values = {key: [slot.default for slot in slots] for key, slots in self.lists.items()}
        for dimension, value in choices.items():
            dimension.put(values, value)
        return values

    def unflatten(self, choices: Mapping[Dimension, Any]) -> Config:
        """The nearest buildable Config with these choices, everything else at its default."""
        return self.fit(self._expand(choices))

    def flatten(self, config: Config) -> dict[Dimension, Any]:
        """The choices a Config makes along the dimensions."""
        form, plain = self.of(config)
        full = form.normalize(plain)
        return {dimension: dimension.get(full) for dimension in form.dimensions()}

    def random_config(self, rng: Random) -> Config:
        """A random Config that can be expected to build."""
        choices = {item: item.fragment.random(rng) for item in self._dimensions}
        return self.fit(self._expand(choices), useful_elements(self.outline))

    def fingerprint(self) -> str:
        """Changes whenever Configs of this kernel change their meaning: keys, lengths, choices."""
        lines = [f"{item} {item.fragment!r} {item.default!r}" for item in self._dimensions]
        return sha256("\n".join([str(self.target), *lines]).encode()).hexdigest()[:16]


def rank_seeds(spec: ConfigSpec) -> list[RankedConfig]:
    """The Configs that heuristics name, those that fit; none where no heuristic answers."""
    name, named = spec.rules.seeds(spec.kernel)
    ranked: list[RankedConfig] = []
    # Those of other forms follow, and seeds that are the same are one.
    for config in ConfigSpec.seed_configs(spec)[: len(named)]:
        predicted = spec.model.predict_fitting(config)
        if predicted is not None:
            ranked.append(RankedConfig(config, predicted, f"heuristic: {name}"))
    return ranked


def ignored_entries(spec: ConfigSpec, given: Config, normal: Config) -> Iterable[Ignored]:
    """What loops cannot have of what a Config asks for."""
    form, plain = spec.of(given)
    asked = spell_out(plain, len(form.entries.rolled))
    values = {**normal, **{key: asked[key] for key in RANGE_KEYS if key in asked}}
    return form.rules.ignored(form.entries, values)


def rank_configs(spec: ConfigSpec, count: int) -> tuple[RankedConfig, ...]:
    """The first ``count`` of all: those of heuristics and those the model finds."""
    seeds = rank_seeds(spec)
    if count <= 1 and seeds:
        return tuple(seeds[:count])
    known = {item.config for item in seeds}
    found = [item for item in _modelled(spec, MODELLED + 2 * count) if item.config not in known]
    if not seeds:
        return tuple(found[:count])
    first, *others = seeds
    rest = sorted([*others, *found], key=lambda item: item.predicted.total_ms)
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


def _try_all(spec: ConfigSpec, seeds: Iterable[Seed]) -> list[_Trial]:
    """Seeds that fit the device, with their predicted times; the rest is as in the first seed."""
    template = dict(spec.seed_configs()[0])
    trials: list[_Trial] = []
    for seed in seeds:
        values = {**template, **seed.values(spec.kernel)}
        predicted = spec.model.predict_fitting(values)
        if predicted is not None:
            trials.append(_Trial(predicted, seed, values))
    return trials


def _modelled(spec: ConfigSpec, count: int) -> list[RankedConfig]:
    """Candidates of the model, the best first, as normalised Configs."""
    kernel, rules = spec.kernel, spec.rules
    if not kernel.entries.blocks and not kernel.entries.rolled:
        return []
    _, named = rules.seeds(kernel)
    candidates = rules.candidates(kernel, next(iter(named), None))
    trials = _try_all(spec, islice(candidates, MAX_CANDIDATES))
    trials.sort(key=lambda trial: trial.predicted.total_ms)
    tiles = [trial.seed for trial in trials[:NUMBERED]]
    trials += _try_all(spec, (seed for tile in tiles for seed in rules.variants(kernel, tile)))
    trials.sort(key=lambda trial: trial.predicted.total_ms)
    unique: dict[Config, RankedConfig] = {}
    for trial in trials:
        config = spec.normalize(trial.values)
        reason = f"model: {trial.predicted.limiter}"
        unique.setdefault(config, RankedConfig(config, trial.predicted, reason))
        if len(unique) >= count:
            break
    return list(unique.values())


def _of_grids(values: Values, entries: Entries) -> Values:
    """Configs from elsewhere mark inner loops to flatten too, whose axes are never merged."""
    merged, marks = entries.flattened, values.get("flatten_loops")
    loops = [at for at in entries.ordered if at in merged or not isinstance(at, Grid)]
    if not isinstance(marks, list) or not len(merged) < len(marks) == len(loops):
        return values
    return {**values, "flatten_loops": [m for m, at in zip(marks, loops) if at in merged]}
