"""ConfigSpec: what a Config may say about one function on one target, and what it stands for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from hashlib import sha256
from random import Random
from typing import Any

from tilesmith.analysis.rollable import find_rollable_dims
from tilesmith.diagnostics.errors import TunableNameConflict
from tilesmith.ir.function import Function
from tilesmith.schedule.config import Config
from tilesmith.schedule.config_checks import check_launch, check_tiles, exceeds_launch
from tilesmith.schedule.default_config import seed_configs
from tilesmith.schedule.facts.collect import collect_facts
from tilesmith.schedule.facts.outline import FunctionOutline
from tilesmith.schedule.feasibility import find_problem
from tilesmith.schedule.fitting import fit
from tilesmith.schedule.launch_summary import launch_of
from tilesmith.schedule.model.prediction import Prediction
from tilesmith.schedule.pid_types import allowed_types, find_disallowed
from tilesmith.schedule.predictor import Predictor
from tilesmith.schedule.ranking import (
    RankedConfig,
    fallback_configs,
    first_config,
    rank_configs,
)
from tilesmith.schedule.resources import ResourceModel, ResourceUse
from tilesmith.schedule.slot_table import Kernel, list_slots, scalar_slots
from tilesmith.schedule.space.conditions import reset_inactive
from tilesmith.schedule.space.dimensions import Dimension, collect_dimensions, sample_values
from tilesmith.schedule.space.fragments import Fragment
from tilesmith.schedule.space.keys import KEYS_BY_NAME, applies_to, is_reserved
from tilesmith.schedule.space.normalize import (
    check_combinations,
    check_list,
    check_pid_type,
    check_value,
    exceeds_registers,
    in_order,
    keep_known,
    spell_out,
)
from tilesmith.schedule.space.size_resolution import SizeResolver
from tilesmith.schedule.space.slots import collect_entries
from tilesmith.schedule.space.tile_sizes import TileSizes, useful_elements
from tilesmith.schedule.structural_choices import find_flattenable_grids
from tilesmith.targets import Target

Values = dict[str, Any]


class ConfigSpec:
    """The Configs of one function (after the standard passes) on one target.

    ``normalize`` checks a Config and writes it out in full; ``default_config`` needs no search;
    ``dimensions`` and ``random_config`` are for searches.
    """

    def __init__(
        self,
        function: Function,
        target: Target,
        tunables: Mapping[str, Fragment] | None = None,
        *,
        has_barrier: bool = False,
        allow_warp_specialize: bool = True,
    ) -> None:
        self.function = function
        self.target = target
        self.tunables = dict(tunables or {})
        for name in filter(is_reserved, self.tunables):
            raise TunableNameConflict(name=name)
        self.structure = FunctionOutline(function)
        rollable = find_rollable_dims(function)
        self.facts = collect_facts(self.structure, rollable)
        flattened = find_flattenable_grids(self.structure)
        self.entries = collect_entries(self.structure, rollable, flattened)
        self.disallowed_pid_types = find_disallowed(self.structure, has_barrier)
        allowed = allowed_types(self.disallowed_pid_types)
        kernel = Kernel(
            self.structure, self.facts, self.entries, target, allowed, allow_warp_specialize
        )
        self.lists = list_slots(kernel)
        self.scalars = scalar_slots(kernel, self.tunables)
        self._resolver = SizeResolver(self.structure, self.facts, self.entries, target)
        self.resource_model = ResourceModel(self.structure, target, self.facts.accesses)
        self.predictor = Predictor(self)

    @cached_property
    def supported_keys(self) -> tuple[str, ...]:
        """Keys that may change the code of this kernel on this target."""
        lists = [key for key, slots in self.lists.items() if slots]
        return tuple(key for key in (*lists, *self.scalars) if applies_to(key, self.target))

    def structures(self) -> dict[str, ConfigSpec]:
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
        if self.target.is_gpu:
            check_combinations(values, self.target)
        values = self._settle(values)
        check_tiles(self, values)
        check_launch(self, values)
        return Config.from_dict(in_order(values))

    def settle(self, values: Mapping[str, Any]) -> Values:
        """As ``normalize``, but options without effect are reset and tiles may be of any size."""
        settled = self._settle(reset_inactive(self.entries, self._check(values)))
        if exceeds_registers(settled, self.target):
            del settled["maxnreg"]
        if exceeds_launch(self, settled):
            settled["pid_type"] = self.scalars["pid_type"].default
        return settled

    def _check(self, given: Mapping[str, Any]) -> Values:
        """Every key and value on its own, with defaults for those not given."""
        values = spell_out(given, len(self.entries.rolled))
        values = keep_known(values, self.target, self.tunables)
        checked: Values = {}
        for key, slots in self.lists.items():
            if applies_to(key, self.target):
                checked[key] = check_list(key, slots, values.get(key, []))
        for key, slot in self.scalars.items():
            if applies_to(key, self.target):
                given_value = values.get(key)
                checked[key] = check_value(
                    key, slot, slot.default if given_value is None else given_value
                )
        if "pid_type" in checked:
            default = self.scalars["pid_type"].default
            check_pid_type(checked["pid_type"], self.disallowed_pid_types, default)
        return checked

    def _settle(self, values: Values) -> Values:
        settled = reset_inactive(self.entries, values)
        settled["block_sizes"] = self._resolver.settle_blocks(values["block_sizes"])
        settled["reduction_loops"] = self._resolver.settle_chunks(values["reduction_loops"])
        for key in ("num_sm_multiplier", "maxnreg", "epilogue_subtile"):
            if settled.get(key) == KEYS_BY_NAME[key].default:
                settled.pop(key, None)
        return settled

    def sizes(self, values: Mapping[str, Any]) -> TileSizes:
        """Physical sizes of all dimensions under a normalised Config."""
        return self._resolver.sizes(values)

    def resources(self, values: Mapping[str, Any]) -> ResourceUse:
        """An estimate of what a normalised Config needs of the device."""
        launch = launch_of(self, values) if self.target.is_gpu else None
        return self.resource_model.estimate(self.sizes(values), launch)

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
        return collect_dimensions(self.lists, self.scalars, self.target)

    def dimensions(self) -> tuple[Dimension, ...]:
        """What a search may vary: the entries with more than one choice that change the code."""
        return self._dimensions

    def active_dimensions(self, config: Config) -> tuple[Dimension, ...]:
        """The dimensions that change the code, given the other choices of the Config."""
        values = dict(self.normalize(config))
        return tuple(item for item in self._dimensions if item.is_active(self.entries, values))

    def feasibility(self, config: Config | Mapping[str, Any]) -> str | None:
        """Why the Config cannot be expected to build, in words; None when it can."""
        return find_problem(self, self.settle(config))

    def predict(self, config: Config | Mapping[str, Any]) -> Prediction:
        """The time of one launch with the Config, before compiling."""
        return self.predictor.predict(self.settle(config))

    def roofline_ms(self) -> float:
        """What no Config can beat: all products at the best rate, every tensor moved once."""
        return self.predictor.roofline_ms()

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
        return fit(self, values, useful_elements(self.structure))

    def fingerprint(self) -> str:
        """Changes whenever Configs of this kernel change their meaning: keys, lengths, choices."""
        lines = [f"{item} {item.fragment!r} {item.default!r}" for item in self._dimensions]
        return sha256("\n".join([str(self.target), *lines]).encode()).hexdigest()[:16]
