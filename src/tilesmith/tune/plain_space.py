"""A search space that is no kernel's: named tunables, each with the values it may take."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from tilesmith.diagnostics.errors import InvalidConfigKeys, InvalidConfigValue
from tilesmith.schedule.config import Config
from tilesmith.schedule.space.dimensions import Dimension, sample_values
from tilesmith.schedule.space.fragments import Fragment


class PlainSpace:
    """Has what search methods ask of a ConfigSpec; every combination of values is allowed."""

    def __init__(self, tunables: Mapping[str, Fragment]) -> None:
        self._fragments = dict(tunables)
        self._dimensions = tuple(
            Dimension(name, None, name, fragment, fragment.default)
            for name, fragment in tunables.items()
            if fragment.cardinality > 1
        )

    def structures(self) -> dict[str, PlainSpace]:
        """There is only one."""
        return {"": self}

    def default_config(self) -> Config:
        """Every tunable at its default."""
        return Config.from_dict({n: fragment.default for n, fragment in self._fragments.items()})

    def normalize(self, config: Config | Mapping[str, Any]) -> Config:
        """Every tunable in order; raises ``InvalidConfig`` where a value is not allowed."""
        unknown = [name for name in config if name not in self._fragments]
        if unknown:
            raise InvalidConfigKeys(keys=unknown)
        values = {**self.default_config(), **config}
        for name, fragment in self._fragments.items():
            if not fragment.contains(values[name]):
                raise InvalidConfigValue(key=name, value=values[name], allowed=fragment.expects)
        return Config.from_dict({name: values[name] for name in self._fragments})

    def fit(self, values: Mapping[str, Any]) -> Config:
        """The Config with these values, those that are not allowed at their defaults."""
        kept = {
            name: value
            for name, value in values.items()
            if name in self._fragments and self._fragments[name].contains(value)
        }
        return Config.from_dict({**self.default_config(), **kept})

    def dimensions(self) -> tuple[Dimension, ...]:
        """Tunables with a choice."""
        return self._dimensions

    def active_dimensions(self, config: Config) -> tuple[Dimension, ...]:
        """All of them."""
        return self._dimensions

    def random_config(self, rng: Random) -> Config:
        """A random value for each."""
        drawn = sample_values(self._dimensions, rng)
        return self.fit({dimension.key: value for dimension, value in drawn.items()})
