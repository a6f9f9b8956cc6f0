"""DifferentialEvolutionSearch: a population in which better mutants replace their parents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from tilesmith.schedule.config import Config
from tilesmith.schedule.space.dimensions import Dimension
from tilesmith.store.outcome import Candidate, Outcome
from tilesmith.tune.search.candidate_pool import CandidatePool, structure_of
from tilesmith.tune.search.interface import SearchSpace

MAX_ATTEMPTS = 8
"""Mutants of one parent that may be known already before a random Config takes their place."""


@dataclass
class Member:
    """One of the population."""

    config: Config
    time_ms: float


class DifferentialEvolutionSearch:
    """First twice the population, of which the better half lives; then one mutant per member.

    ``replaced`` and ``failed`` count the mutants of the current generation that took their
    parent's place, and those without a time.
    """

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
        self.replaced = 0
        self.failed = 0
        self.population: list[Member] = []
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
            if outcome.config in self._parents:
                self._judge(outcome, self._parents.pop(outcome.config))
        if not self._left and not self._parents:
            self._end_generation()

    def _judge(self, outcome: Outcome, parent: int | None) -> None:
        self.failed += outcome.time_ms == inf
        member = Member(outcome.config, outcome.time_ms)
        if parent is None:
            self.population.append(member)
        elif member.time_ms < self.population[parent].time_ms:
            self.population[parent] = member
            self.replaced += 1

    def _end_generation(self) -> None:
        if self.is_finished:
            return
        if self.generation == 0:
            self.population = sorted(self.population, key=lambda member: member.time_ms)
            del self.population[self._size :]
        self.generation += 1
        self.replaced = self.failed = 0
        self._left = len(self.population)
        if not self.population:
            self.generation = self._max_generations + 1

    def _next(self) -> Candidate | None:
        if self.generation == 0:
            return self._found()
        parent = len(self.population) - self._left
        config = self._mutant(parent) or self._pool.draw()
        if config is None:
            return None
        self._parents[config] = parent
        return self._pool.take(config, f"generation {self.generation}")

    def _found(self) -> Candidate | None:
        """A founder: a seed that is new, or a random Config."""
        while self._queue:
            seed = self._queue.pop(0)
            if self._pool.is_new(seed.config):
                self._parents[seed.config] = None
                return self._pool.take(seed.config, seed.origin)
        config = self._pool.draw()
        if config is None:
            return None
        self._parents[config] = None
        return self._pool.take(config, "random")

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
