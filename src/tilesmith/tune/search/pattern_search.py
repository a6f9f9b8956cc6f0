"""PatternSearch: several climbers, each of which tries all neighbours and moves to the best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from tilesmith.schedule.config import Config
from tilesmith.store.outcome import Candidate, Outcome
from tilesmith.tune.search.candidate_pool import CandidatePool, neighbours
from tilesmith.tune.search.interface import SearchSpace

LEAST_GAIN = 0.001
"""A climber stops when a generation gains less than this share."""


@dataclass
class Climber:
    """Where one climber stands, and the best it has seen in this generation."""

    config: Config
    time_ms: float
    next_config: Config
    next_ms: float


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
        self._size = initial_population
        self.generation = 0
        self.is_finished = False
        self._founders: list[Outcome] = []
        self._climbers: list[Climber] = []
        self._queue = self._found()
        self._owners: dict[Config, Climber | None] = {}
        """Of Configs asked for and not told: the climber that wants to know."""

    def _found(self) -> list[tuple[Candidate, Climber | None]]:
        seeds = self._pool.seeds()[: self._size]
        found = [self._pool.take(seed.config, seed.origin) for seed in seeds]
        while len(found) < self._size:
            config = self._pool.draw()
            if config is None:
                break
            found.append(self._pool.take(config, "random"))
        return [(candidate, None) for candidate in found]

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
            if outcome.config in self._owners:
                self._judge(outcome, self._owners.pop(outcome.config))
        if not self._queue and not self._owners:
            self._end_generation()

    def _judge(self, outcome: Outcome, climber: Climber | None) -> None:
        if climber is None:
            self._founders.append(outcome)
        elif outcome.time_ms < climber.next_ms:
            climber.next_config, climber.next_ms = outcome.config, outcome.time_ms

    def _end_generation(self) -> None:
        if self.is_finished:
            return
        if self.generation == 0:
            self._climbers = self._start_climbing()
        else:
            self._climbers = [climber for climber in self._climbers if _moves(climber)]
        self.generation += 1
        if self.generation <= self._max_generations:
            self._queue = [wish for climber in self._climbers for wish in self._surround(climber)]
        self.is_finished = not self._queue

    def _start_climbing(self) -> list[Climber]:
        ranked = sorted(self._founders, key=lambda outcome: outcome.time_ms)
        return [
            Climber(outcome.config, outcome.time_ms, outcome.config, outcome.time_ms)
            for outcome in ranked[: self._copies]
            if outcome.time_ms < inf
        ]

    def _surround(self, climber: Climber) -> list[tuple[Candidate, Climber | None]]:
        origin = f"generation {self.generation}"
        return [
            (self._pool.take(config, origin), climber)
            for config in neighbours(self._pool, climber.config)
            if self._pool.is_new(config)
        ]


def _moves(climber: Climber) -> bool:
    """Go to the best neighbour, if it is worth going on from there."""
    gain = 1.0 - climber.next_ms / climber.time_ms
    climber.config, climber.time_ms = climber.next_config, climber.next_ms
    return gain >= LEAST_GAIN
