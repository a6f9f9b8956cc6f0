"""What search methods share: their interface, the space they search, and the pool of candidates.

A method is asked for candidates and told what became of them. It sees a ``SearchSpace`` and
outcomes, never a device or a clock: given the same outcomes in the same order and the same seed it
asks for the same candidates. The pool turns wishes into candidates: valid, in normal form, with the
user's overrides, new. Random Configs come from its own generator; a Config leaves it once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, product
from math import prod
from random import Random
from typing import Any, Protocol

from tilesmith.exc import InvalidConfig
from tilesmith.schedule.config import STRUCTURE, Config
from tilesmith.schedule.space.slots import Dimension
from tilesmith.schedule.spec import ConfigSpec
from tilesmith.store.outcome import Candidate, Outcome

AS_IT_IS = ""
"""The structure of Configs that name none."""
MAX_DRAWS = 64
"""Random Configs in a row that may be known already before the space is taken for exhausted."""
MAX_LISTED = 2000
"""Spaces with at most so many combinations are listed when random draws find nothing new."""
TRADED_KEYS = ("block_sizes", "reduction_loops")
"""Entries that share one budget of registers and memory, so that one grows when another shrinks."""


@dataclass(frozen=True)
class SearchSpace:
    """Where to search: the Configs of one bound kernel, and good ones to start from."""

    spec: ConfigSpec
    seeds: tuple[Candidate, ...]
    """Ranked, best first: the user's seeds, the default, the model's, those of other shapes."""
    overrides: tuple[tuple[str, object], ...] = ()
    """Keys of a Config that the user has fixed; every candidate has them."""
    predict: Callable[[Config], float | None] | None = None
    """The device model's time in milliseconds, None where it has none; None: there is no model."""


class Search(Protocol):
    """One search. ``ask`` and ``tell`` may be interleaved: outcomes come back in any order."""

    name: str
    """As in the registry and the log, e.g. "DifferentialEvolutionSearch"."""

    def ask(self, count: int) -> Sequence[Candidate]:
        """Up to ``count`` new candidates; none when it must first be told more, or has ended.

        A Config is asked for once: no two candidates of one search are equal.
        """
        ...

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """What became of candidates asked for before."""

    @property
    def is_finished(self) -> bool:
        """Whether nothing more will be asked for, whatever is told."""
        ...

    @property
    def generation(self) -> int:
        """The number of the generation (or round) that candidates asked for now belong to."""
        ...


SearchMethod = Callable[[SearchSpace, int], Search]
"""Begins a search of one method in a space, with a seed."""


class CandidatePool:
    """The candidates of one search."""

    def __init__(self, space: SearchSpace, seed: int) -> None:
        self.space = space
        self.spec = space.spec
        self.rng = Random(seed)
        self.overrides = dict(space.overrides)
        self.dimensions_by_structure = {
            name: tuple(item for item in spec.dimensions() if item.key not in self.overrides)
            for name, spec in self.spec.forms().items()
        }
        self.dimensions = self.dimensions_by_structure[AS_IT_IS]
        self.is_exhausted = False
        self._known: set[Config] = set()
        self._predictions: dict[Config, float | None] = {}
        self._listed: list[Config] | None = None
        if self.overrides:
            default = self.spec.default_config()
            drawn = (self.spec.random_config(Random(draw)) for draw in range(16))
            if all(self._overridden(config) is None for config in chain([default], drawn)):
                # No Config can have them: rather raise than search nothing.
                self.spec.normalize(default.updated(**self.overrides))

    def movable(self, config: Config) -> list[Dimension]:
        """The dimensions along which a Config can be varied with an effect."""
        active = self.spec.active_dimensions(config)
        return [dimension for dimension in active if dimension.key not in self.overrides]

    def _overridden(self, config: Config) -> Config | None:
        return self.accept(config) if self.overrides else config

    def accept(self, config: Config) -> Config | None:
        """The Config in normal form with the overrides; None when that is not a valid one."""
        try:
            return self.spec.normalize(config.updated(**self.overrides))
        except InvalidConfig:
            return None

    def fit(self, values: Mapping[str, Any]) -> Config | None:
        """The nearest Config that can be expected to build, with the overrides."""
        try:
            fitting = self.spec.fit(Config.from_dict({**values, **self.overrides}))
        except InvalidConfig:
            return None
        # Fitting may have shrunk what the user insists on.
        return self._overridden(fitting)

    def vary(self, config: Config, choices: Mapping[Dimension, Any]) -> Config | None:
        """The Config with other choices along some dimensions."""
        values = dict(config)
        for dimension, value in choices.items():
            dimension.put(values, value)
        return self.fit(values)

    def seeds(self) -> list[Candidate]:
        """The space's seeds that are valid, in order, without repetitions."""
        found: dict[Config, Candidate] = {}
        for seed in self.space.seeds:
            config = self.accept(seed.config)
            if config is not None and config not in found:
                if seed.predicted_ms is not None:
                    self._predictions[config] = seed.predicted_ms
                found[config] = Candidate(config, seed.origin or "seed", self.predict(config))
        return list(found.values())

    def is_new(self, config: Config) -> bool:
        """Whether the Config has neither been asked for nor told of."""
        return config not in self._known

    def take(self, config: Config, origin: str) -> Candidate:
        """The candidate for a new Config, which from now on is known."""
        self._known.add(config)
        return Candidate(config, origin, self.predict(config))

    def take_seed(self, seeds: list[Candidate]) -> Candidate | None:
        """The next of some seeds that is new; those before it leave the list, too."""
        while seeds:
            seed = seeds.pop(0)
            if self.is_new(seed.config):
                return self.take(seed.config, seed.origin)
        return None

    def take_founder(self, seeds: list[Candidate]) -> Candidate | None:
        """The next seed, or a random Config where none is left."""
        seed = self.take_seed(seeds)
        config = self.draw() if seed is None else None
        return seed if config is None else self.take(config, "random")

    def note(self, outcome: Outcome) -> None:
        """Remember a Config that the search is told of, asked for or not."""
        self._known.add(outcome.config)

    def predict(self, config: Config) -> float | None:
        """The device model's time in milliseconds, where there is a model."""
        if config not in self._predictions:
            predict = self.space.predict
            self._predictions[config] = None if predict is None else predict(config)
        return self._predictions[config]

    def draw(self) -> Config | None:
        """A random new Config, not yet taken; None when there seem to be no more."""
        for _ in range(0 if self.is_exhausted else MAX_DRAWS):
            config = self._overridden(self.spec.random_config(self.rng))
            if config is not None and self.is_new(config):
                return config
        if self._listed is None:
            self._listed = self._list_all()
        found = next(filter(self.is_new, self._listed), None)
        self.is_exhausted = found is None
        return found

    def _list_all(self) -> list[Config]:
        """Every Config of a small space."""
        choices: list[list[Any]] = []
        for dimension in self.dimensions:
            found = [dimension.default]
            for value in found:  # it grows by whatever can be reached from these
                near = dimension.fragment.neighbours(value)
                found += [other for other in near if other not in found]
            choices.append(found)
        start = self._overridden(self.spec.default_config())
        if start is None or prod(map(len, choices)) > MAX_LISTED:
            return []
        varied = (self.vary(start, dict(zip(self.dimensions, each))) for each in product(*choices))
        return list(dict.fromkeys(config for config in varied if config is not None))


def structure_of(config: Config) -> str:
    """Which form of the kernel a Config is about."""
    return config.get(STRUCTURE) or AS_IT_IS


def _steps(pool: CandidatePool, config: Config) -> Iterator[Mapping[Dimension, Any]]:
    moves = {
        dimension: dimension.fragment.neighbours(dimension.get(config))
        for dimension in pool.movable(config)
    }
    for dimension, values in moves.items():
        for value in values:
            yield {dimension: value}
    traded = [dimension for dimension in moves if dimension.key in TRADED_KEYS]
    for first, second in combinations(traded, 2):
        for pair in product(moves[first], moves[second]):
            yield {first: pair[0], second: pair[1]}


def neighbours(pool: CandidatePool, config: Config) -> list[Config]:
    """All valid Configs one step from ``config``, without it and without repetitions."""
    found = (pool.vary(config, step) for step in _steps(pool, config))
    return [near for near in dict.fromkeys(found) if near is not None and near != config]


def jump(pool: CandidatePool, config: Config) -> Config | None:
    """A random Config two or three steps away: over a neighbour that fails, or that is slower."""
    moved = pool.movable(config)
    chosen = pool.rng.sample(moved, min(len(moved), pool.rng.choice((2, 3))))
    near = {item: item.fragment.neighbours(item.get(config)) for item in chosen}
    steps = {item: pool.rng.choice(values) for item, values in near.items() if values}
    return pool.vary(config, steps)
