"""Configs of kernels that have more than one form: rows of a product, reduced in several ways.

Products whose rows are reduced can have their rows split: ``structure="two_phases"``,
``"last_reduces"`` or ``"exchange"`` in a Config says so, and it then has the keys and lengths of
that form of the function. Without the key it is about the function as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from hashlib import sha256
from math import inf, prod
from random import Random
from typing import Any

from typing_extensions import override

from tilesmith.exc import InvalidConfigValue
from tilesmith.ir.function import Function
from tilesmith.ir.ops.control_flow import LEAST_SMS_FOR_GROUPS
from tilesmith.schedule.config import Config
from tilesmith.schedule.rules import ScheduleRules, Values
from tilesmith.schedule.space.fragments import Fragment
from tilesmith.schedule.space.keys import STRUCTURE
from tilesmith.schedule.spec import ConfigSpec, Given, RankedConfig

TWO_PHASES, LAST_REDUCES, EXCHANGE = FORMS = ("two_phases", "last_reduces", "exchange")
LEAST_GAIN = 1.35
"""How many times faster another form must promise to be: the model errs most between them."""
MOST_SCRATCH = 4 << 30
"""Bytes that a kernel may take without being asked to."""
OTHER_SHARE = 0.25
"""Of random Configs, those of other forms."""
Split = Callable[[Function, str], Function | None]
"""Makes the form of a function that has this name; None where it has none."""


def _plain(config: Given) -> Config:
    return Config.from_dict({key: config[key] for key in config if key != STRUCTURE})


def _marked(values: Mapping[str, Any], name: str) -> Config:
    return Config.from_dict({**values, STRUCTURE: name})


class MultiFormSpec(ConfigSpec):
    """A ConfigSpec that also knows the Configs of other forms of the function, if it has any."""

    def __init__(
        self,
        function: Function,
        rules: ScheduleRules,
        tunables: Mapping[str, Fragment] | None = None,
        *,
        split: Split,
        allow_warp_specialize: bool = True,
    ) -> None:
        super().__init__(function, rules, tunables, allow_warp_specialize=allow_warp_specialize)
        self._split = split

    @cached_property
    def others(self) -> dict[str, ConfigSpec]:
        """The specifications of the function's other forms, by name."""
        if not self.rules.has_row_forms or self.facts.epilogue is None:
            return {}
        # Programs that wait must leave room for those they wait for.
        has_room = self.target.num_sms >= LEAST_SMS_FOR_GROUPS
        allowed = self.kernel.allow_warp_specialize
        names = [name for name in FORMS if name != EXCHANGE or has_room]
        split = {name: self._split(self.function, name) for name in names}
        return {
            name: ConfigSpec(form, self.rules, self.tunables, allow_warp_specialize=allowed)
            for name, form in split.items()
            if form is not None
        }

    @override
    def forms(self) -> dict[str, ConfigSpec]:
        return super().forms() | self.others

    @override
    def of(self, config: Given) -> tuple[ConfigSpec, Config]:
        other = self._other(config)
        return (self, self._portable(config)) if other is None else (other, _plain(config))

    def _other(self, config: Given) -> ConfigSpec | None:
        """The specification that a Config is about, if it is another one."""
        name = config.get(STRUCTURE)
        if name is None or not self.rules.has_row_forms:
            return None
        if name not in self.others:
            choices = ", ".join(f'"{name}"' for name in self.others)
            allowed = f"{choices}, or nothing" if choices else "nothing: the kernel has one form"
            raise InvalidConfigValue(key=STRUCTURE, value=repr(name), allowed=allowed)
        return self.others[name]

    def _portable(self, config: Given) -> Config:
        """A Config of another target's form has more tiles; the first are the kernel's own."""
        plain = _plain(config)
        if config.get(STRUCTURE) is None:
            return plain
        return Config(block_sizes=plain.block_sizes[: len(self.lists["block_sizes"])])

    @override
    def normalize(self, config: Given) -> Config:
        other = self._other(config)
        if other is None:
            return super().normalize(self._portable(config))
        return _marked(other.normalize(_plain(config)), config[STRUCTURE])

    @override
    def settle(self, values: Given) -> Values:
        other = self._other(values)
        if other is None:
            return super().settle(self._portable(values))
        return {**other.settle(_plain(values)), STRUCTURE: values[STRUCTURE]}

    @override
    def fit(self, values: Given, most_elements: float = inf) -> Config:
        other = self._other(values)
        if other is None:
            return super().fit(values, most_elements)
        return _marked(other.fit(_plain(values), most_elements), values[STRUCTURE])

    @override
    def seed_configs(self) -> tuple[Config, ...]:
        others = (
            _marked(config, name)
            for name, other in self.others.items()
            for config in other.seed_configs()
        )
        return (*super().seed_configs(), *others)

    @override
    def ranked_configs(self, count: int = 10) -> tuple[RankedConfig, ...]:
        default = self.default_config()
        lists = [super().ranked_configs(count)]
        for name, other in self.others.items():
            suffix = f", {name.replace('_', ' ')}"
            lists.append(
                tuple(
                    replace(item, config=_marked(item.config, name), reason=item.reason + suffix)
                    for item in other.ranked_configs(count)
                )
            )
        # The first of each form comes early: between forms the model errs most.
        early = [item for ranked in lists for item in ranked[:1]]
        late = [item for ranked in lists for item in ranked[1:]]
        early.sort(key=lambda item: (item.config != default, item.predicted.total_ms))
        late.sort(key=lambda item: item.predicted.total_ms)
        return tuple([*early, *late][:count])

    @override
    def default_config(self) -> Config:
        return self._first

    @cached_property
    def _first(self) -> Config:
        """Rows are split where they fit no registers, or where that promises to be much faster."""
        own = super().default_config()
        splits = [
            _marked(spec.default_config(), name)
            for name, spec in self.others.items()
            if _scratch_bytes(spec) <= MOST_SCRATCH
            and self.rules.may_be_first_form(name, spec.facts)
        ]
        if not splits:
            return own
        split = min(splits, key=lambda config: self.predict(config).total_ms)
        if super().feasibility(own) is not None:
            return split
        gain = super().predict(own).total_ms / self.predict(split).total_ms
        return split if gain >= LEAST_GAIN else own

    @override
    def fallback_configs(self) -> tuple[Config, ...]:
        return tuple(dict.fromkeys([self.default_config(), *super().fallback_configs()]))

    @override
    def random_config(self, rng: Random) -> Config:
        if not self.others or rng.random() >= OTHER_SHARE:
            return super().random_config(rng)
        name = rng.choice(list(self.others))
        return _marked(self.others[name].random_config(rng), name)

    @override
    def fingerprint(self) -> str:
        own = super().fingerprint()
        if not self.others:
            return own
        parts = [own, *(f"{name} {spec.fingerprint()}" for name, spec in self.others.items())]
        return sha256("\n".join(parts).encode()).hexdigest()[:16]


def _scratch_bytes(spec: ConfigSpec) -> int:
    """What a launch allocates besides what host code does."""
    made = [p.value.tensor for p in spec.function.parameters if p.source.startswith("torch.empty(")]
    return sum(tensor.dtype.itemsize * prod(map(int, tensor.shape)) for tensor in made)
