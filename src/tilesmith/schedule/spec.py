"""ConfigSpec: what a Config may say about one function on one target, and what it stands for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from hashlib import sha256
from random import Random
from typing import Any

from tilesmith.analysis.flattenable import find_flattenable
from tilesmith.analysis.rollable import find_rollable_dims
from tilesmith.exc import TunableNameConflict
from tilesmith.ir.function import Function
from tilesmith.schedule.config import Config
from tilesmith.schedule.facts.collect import collect_facts
from tilesmith.schedule.facts.outline import FunctionOutline
from tilesmith.schedule.feasibility import check_tiles, find_problem, fit
from tilesmith.schedule.model.estimates import Prediction, ResourceUse
from tilesmith.schedule.ranking import (
    RankedConfig,
    fallback_configs,
    first_config,
    rank_configs,
    seed_configs,
)
from tilesmith.schedule.rules import ScheduleRules, TargetedKernel, Values
from tilesmith.schedule.space.dimensions import Dimension, collect_dimensions, sample_values
from tilesmith.schedule.space.fragments import Fragment
from tilesmith.schedule.space.keys import is_reserved
from tilesmith.schedule.space.normalize import (
    check_list,
    check_value,
    in_order,
    keep_known,
    spell_out,
)
from tilesmith.schedule.space.sizes import TileSizes, useful_elements
from tilesmith.schedule.space.slots import Slot, collect_entries


class ConfigSpec:
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
        outline = FunctionOutline(function)
        rollable = find_rollable_dims(function)
        self.facts = collect_facts(outline, rollable)
        flat_slots = find_flattenable(function)
        flattened = tuple(grid for grid in outline.grids if grid.slot in flat_slots)
        self.entries = collect_entries(outline, rollable, flattened)
        self.outline = outline
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

    def of(self, config: Config | Mapping[str, Any]) -> tuple[ConfigSpec, Config]:
        """The specification of the form that a Config is about, and what it says about it."""
        return self, Config.from_dict(dict(config))

    def normalize(self, config: Config | Mapping[str, Any]) -> Config:
        """The same choice with every key in full; raises ``InvalidConfig`` when it does not fit.

        Keys that only other targets know are dropped, so that one Config serves several devices.
        """
        values = self._check(config)
        self.rules.check(values)
        values = self._settle(values)
        check_tiles(self.model, values)
        self.rules.check_launch(self.kernel, values)
        return Config.from_dict(in_order(values))

    def settle(self, values: Mapping[str, Any]) -> Values:
        """As ``normalize``, but options without effect are reset and tiles may be of any size."""
        settled = self._settle(self.rules.reset_inactive(self.entries, self._check(values)))
        return self.rules.relax(self.kernel, settled)

    def _check(self, given: Mapping[str, Any]) -> Values:
        """Every key and value on its own, with defaults for those not given."""
        values = spell_out(given, len(self.entries.rolled))
        values = keep_known(values, self.rules.backend, self._effective)
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

    def sizes(self, values: Mapping[str, Any]) -> TileSizes:
        """Physical sizes of all dimensions under a normalised Config."""
        return self.kernel.sizes(values)

    def resources(self, values: Mapping[str, Any]) -> ResourceUse:
        """An estimate of what a normalised Config needs of the device."""
        return self.model.resources(values)

    def fill(self, values: Mapping[str, Any]) -> Values:
        """The values that a Config with only these stands for."""
        return in_order(self.settle(values))

    def fit(self, values: Mapping[str, Any]) -> Config:
        """The Config, with blocks and stages reduced until it can be expected to build."""
        return fit(self, values)

    def _defaults(self) -> Values:
        return {key: [slot.default for slot in slots] for key, slots in self.lists.items()}

    def base_config(self) -> Config:
        """A Config with the default of every key, block sizes included."""
        return self.fit(self._defaults())

    @cached_property
    def _seeds(self) -> tuple[Config, ...]:
        return seed_configs(self)

    @cached_property
    def _default(self) -> Config:
        return first_config(self)

    def default_config(self) -> Config:
        """A sensible Config that builds, without any search."""
        return self._default

    def seed_configs(self) -> tuple[Config, ...]:
        """Good Configs to start a search from, the default first."""
        return self._seeds

    @cached_property
    def _dimensions(self) -> tuple[Dimension, ...]:
        return collect_dimensions(self.lists, self.scalars)

    def dimensions(self) -> tuple[Dimension, ...]:
        """What a search may vary: the entries with more than one choice that change the code."""
        return self._dimensions

    def active_dimensions(self, config: Config) -> tuple[Dimension, ...]:
        """The dimensions that change the code, given the other choices of the Config."""
        values = dict(self.normalize(config))
        return tuple(
            item
            for item in self._dimensions
            if self.rules.is_active(self.entries, values, item.key, item.index)
        )

    def feasibility(self, config: Config | Mapping[str, Any]) -> str | None:
        """Why the Config cannot be expected to build, in words; None when it can."""
        return find_problem(self.model, self.settle(config))

    def predict(self, config: Config | Mapping[str, Any]) -> Prediction:
        """The time of one launch with the Config, before compiling."""
        return self.model.predict(self.settle(config))

    def roofline_ms(self) -> float:
        """What no Config can beat: all products at the best rate, every tensor moved once."""
        return self.model.roofline_ms()

    def ranked_configs(self, count: int = 10) -> tuple[RankedConfig, ...]:
        """Good Configs without a search, the default first."""
        return rank_configs(self, count)

    def fallback_configs(self) -> tuple[Config, ...]:
        """The default, and what to take instead when it does not compile, in this order."""
        return fallback_configs(self)

    def _expand(self, choices: Mapping[Dimension, Any]) -> Values:
        values = self._defaults()
        for dimension, value in choices.items():
            dimension.put(values, value)
        return values

    def unflatten(self, choices: Mapping[Dimension, Any]) -> Config:
        """The nearest buildable Config with these choices, everything else at its default."""
        return self.fit(self._expand(choices))

    def flatten(self, config: Config) -> dict[Dimension, Any]:
        """The choices a Config makes along the dimensions."""
        full = self.normalize(config)
        return {dimension: dimension.get(full) for dimension in self._dimensions}

    def random_config(self, rng: Random) -> Config:
        """A random Config that can be expected to build."""
        values = self._expand(sample_values(self._dimensions, rng))
        return fit(self, values, useful_elements(self.outline))

    def fingerprint(self) -> str:
        """Changes whenever Configs of this kernel change their meaning: keys, lengths, choices."""
        lines = [f"{item} {item.fragment!r} {item.default!r}" for item in self._dimensions]
        return sha256("\n".join([str(self.target), *lines]).encode()).hexdigest()[:16]
