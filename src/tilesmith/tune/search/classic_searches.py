"""Search methods that use no device model: a list, random, differential evolution, pattern search.

PatternSearch has several climbers, each of which tries all neighbours and moves to the best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from tilesmith.exc import InvalidConfig, NotEnoughConfigs
from tilesmith.schedule.config import Config
from tilesmith.schedule.space.slots import Dimension
from tilesmith.store.outcome import Candidate, Outcome
from tilesmith.tune.search.candidate_pool import (
    CandidatePool,
    SearchSpace,
    neighbours,
    structure_of,
)

MAX_ATTEMPTS = 8
"""Mutants of one parent that may be known already before a random Config takes their place."""
LEAST_GAIN = 0.001
"""A climber stops when a generation gains less than this share."""


class FiniteSearch:
    """The Configs of a list, in order. Those that do not fit the kernel are in ``rejected``."""

    name = "FiniteSearch"
    generation = 0

    def __init__(self, space: SearchSpace, seed: int, *, configs: Sequence[Config] = ()) -> None:
        if len(configs) < 2:
            raise NotEnoughConfigs(count=len(configs))
        self._pool = CandidatePool(space, seed)
        self.rejected: list[tuple[Config, InvalidConfig]] = []
        self._queue: list[Config] = []
        for config in configs:
            try:
                normal = self._pool.spec.normalize(config.updated(**self._pool.overrides))
            except InvalidConfig as error:
                self.rejected.append((config, error))
                continue
            if normal not in self._queue:
                self._queue.append(normal)
        if not self._queue:
            raise self.rejected[0][1]

    @property
    def is_finished(self) -> bool:
        """Whether all were asked for."""
        return not self._queue

    def ask(self, count: int) -> Sequence[Candidate]:
        """The next ones of the list."""
        taken, self._queue = self._queue[:count], self._queue[count:]
        return [self._pool.take(config, "given") for config in taken]

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """What is known already is not asked for."""
        known = {outcome.config for outcome in outcomes}
        self._queue = [config for config in self._queue if config not in known]


class RandomSearch:
    """``count`` Configs, the seeds among them."""

    name = "RandomSearch"
    generation = 0

    def __init__(self, space: SearchSpace, seed: int, *, count: int = 1000) -> None:
        self._pool = CandidatePool(space, seed)
        self._seeds = self._pool.seeds()[:count]
        self._left = count

    @property
    def is_finished(self) -> bool:
        """Whether all were asked for, or there are no more."""
        return self._left <= 0 or (not self._seeds and self._pool.is_exhausted)

    def ask(self, count: int) -> Sequence[Candidate]:
        """The next seeds or random Configs."""
        asked: list[Candidate] = []
        while len(asked) < count and not self.is_finished:
            candidate = self._pool.take_founder(self._seeds)
            if candidate is not None:
                asked.append(candidate)
                self._left -= 1
        return asked

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """Nothing is learned, but what is known is not asked for."""
        for outcome in outcomes:
            self._pool.note(outcome)


class DifferentialEvolutionSearch:
    """First twice the population, of which the better half lives; then one mutant per member."""

    name = "DifferentialEvolutionSearch"

    def __init__(
        self,
        space: SearchSpace,
        seed: int,
        *,
        population_size: int = 40,
        max_generations: int = 20,
        crossover_rate: float = 0.8,
    ) -> None:
        self._pool = CandidatePool(space, seed)
        self._size = population_size
        self._max_generations = max_generations
        self._crossover_rate = crossover_rate
        self.generation = 0
        self.population: list[Outcome] = []
        self._queue = self._pool.seeds()[: 2 * population_size]
        self._left = 2 * population_size
        """Candidates of this generation that were not asked for yet."""
        self._parents: dict[Config, int | None] = {}
        """Of candidates that were not told yet: the member they challenge."""

    @property
    def is_finished(self) -> bool:
        """Whether all generations are over, or there is nothing new."""
        if self.generation > self._max_generations:
            return True
        return self._pool.is_exhausted and not self._queue and not self._parents

    def ask(self, count: int) -> Sequence[Candidate]:
        """The next of the generation; none while the last ones are not told."""
        asked: list[Candidate] = []
        while len(asked) < count and not self.is_finished:
            if not self._left and self._parents:
                break
            if not self._left:
                self._end_generation()
                continue
            candidate = self._next()
            self._left -= 1
            if candidate is not None:
                asked.append(candidate)
        return asked

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """Replace parents at once; a generation ends with its last outcome."""
        for outcome in outcomes:
            self._pool.note(outcome)
            if outcome.config not in self._parents:
                continue
            parent = self._parents.pop(outcome.config)
            if parent is None:
                self.population.append(outcome)
            elif outcome.time_ms < self.population[parent].time_ms:
                self.population[parent] = outcome
        if not self._left and not self._parents:
            self._end_generation()

    def _end_generation(self) -> None:
        if self.is_finished:
            return
        if self.generation == 0:
            self.population = sorted(self.population, key=lambda member: member.time_ms)
            del self.population[self._size :]
        self.generation += 1
        self._left = len(self.population)
        if not self.population:
            self.generation = self._max_generations + 1

    def _next(self) -> Candidate | None:
        if self.generation == 0:
            parent, found = None, self._pool.take_founder(self._queue)
        else:
            parent = len(self.population) - self._left
            config = self._mutant(parent) or self._pool.draw()
            origin = f"generation {self.generation}"
            found = None if config is None else self._pool.take(config, origin)
        if found is not None:
            self._parents[found.config] = parent
        return found

    def _mutant(self, parent: int) -> Config | None:
        for _ in range(MAX_ATTEMPTS):
            config = self._pool.vary(self.population[parent].config, self._cross(parent))
            if config is not None and self._pool.is_new(config):
                return config
        return None

    def _cross(self, parent: int) -> dict[Dimension, Any]:
        """Choices of another member, moved by the difference of two more."""
        own = structure_of(self.population[parent].config)
        rng, dimensions = self._pool.rng, self._pool.dimensions_by_structure[own]
        configs = [item.config for i, item in enumerate(self.population) if i != parent]
        others = [config for config in configs if structure_of(config) == own]
        if not others or not dimensions:
            return {}
        a, b, c = rng.sample(others, 3) if len(others) >= 3 else rng.choices(others, k=3)
        forced = rng.randrange(len(dimensions))
        return {
            dimension: dimension.fragment.mutate(
                dimension.get(a), (dimension.get(b), dimension.get(c)), rng
            )
            for i, dimension in enumerate(dimensions)
            if i == forced or rng.random() < self._crossover_rate
        }


@dataclass
class Climber:
    """Where one climber stands, and the best it has seen in this generation."""

    here: Outcome
    best: Outcome


class PatternSearch:
    """An initial population, then ``copies`` climbers from its best."""

    name = "PatternSearch"

    def __init__(
        self,
        space: SearchSpace,
        seed: int,
        *,
        initial_population: int = 100,
        copies: int = 5,
        max_generations: int = 20,
    ) -> None:
        self._pool = CandidatePool(space, seed)
        self._copies = copies
        self._max_generations = max_generations
        self.generation = 0
        self.is_finished = False
        self._founders: list[Outcome] = []
        self._climbers: list[Climber] = []
        seeds = self._pool.seeds()[:initial_population]
        founders = (self._pool.take_founder(seeds) for _ in range(initial_population))
        self._queue: list[tuple[Candidate, Climber | None]] = [
            (founder, None) for founder in founders if founder is not None
        ]
        self._owners: dict[Config, Climber | None] = {}
        """Of Configs asked for and not told: the climber that wants to know."""

    def ask(self, count: int) -> Sequence[Candidate]:
        """The next of the generation; none while the last ones are not told."""
        if not self._queue and not self._owners:
            self._end_generation()
        taken, self._queue = self._queue[:count], self._queue[count:]
        for candidate, climber in taken:
            self._owners[candidate.config] = climber
        return [candidate for candidate, _ in taken]

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """Note what climbers find; a generation ends with its last outcome."""
        for outcome in outcomes:
            self._pool.note(outcome)
            if outcome.config not in self._owners:
                continue
            climber = self._owners.pop(outcome.config)
            if climber is None:
                self._founders.append(outcome)
            elif outcome.time_ms < climber.best.time_ms:
                climber.best = outcome
        if not self._queue and not self._owners:
            self._end_generation()

    def _end_generation(self) -> None:
        if self.is_finished:
            return
        if self.generation == 0:
            ranked = sorted(self._founders, key=lambda outcome: outcome.time_ms)[: self._copies]
            self._climbers = [Climber(found, found) for found in ranked if found.time_ms < inf]
        else:
            # Climbers go to their best neighbours, if it is worth going on from there.
            moved = [(1.0 - c.best.time_ms / c.here.time_ms, c.best) for c in self._climbers]
            self._climbers = [Climber(best, best) for gain, best in moved if gain >= LEAST_GAIN]
        self.generation += 1
        if self.generation <= self._max_generations:
            self._queue = [wish for climber in self._climbers for wish in self._surround(climber)]
        self.is_finished = not self._queue

    def _surround(self, climber: Climber) -> list[tuple[Candidate, Climber | None]]:
        origin = f"generation {self.generation}"
        near = neighbours(self._pool, climber.here.config)
        return [(self._pool.take(c, origin), climber) for c in near if self._pool.is_new(c)]
