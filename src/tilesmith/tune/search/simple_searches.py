"""Searches without a strategy: a given list of Configs, each once, and random Configs."""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.diagnostics.errors import InvalidConfig, NotEnoughConfigs
from tilesmith.schedule.config import Config
from tilesmith.store.outcome import Candidate, Outcome
from tilesmith.tune.search.candidate_pool import CandidatePool
from tilesmith.tune.search.interface import SearchSpace


class FiniteSearch:
    """The Configs of a list, in order. Those that do not fit the kernel are in ``rejected``."""

    name = "FiniteSearch"

    def __init__(self, space: SearchSpace, seed: int, *, configs: Sequence[Config] = ()) -> None:
        if len(configs) < 2:
            raise NotEnoughConfigs(count=len(configs))
        self._pool = CandidatePool(space, seed)
        self.rejected: list[tuple[Config, InvalidConfig]] = []
        self._queue: list[Config] = []
        for config in configs:
            self._add(config)
        if not self._queue:
            raise self.rejected[0][1]

    def _add(self, config: Config) -> None:
        try:
            self._pool.spec.normalize(config.updated(**self._pool.overrides))
        except InvalidConfig as error:
            self.rejected.append((config, error))
            return
        normal = self._pool.accept(config)
        if normal is not None and normal not in self._queue:
            self._queue.append(normal)

    @property
    def is_finished(self) -> bool:
        """Whether all were asked for."""
        return not self._queue

    @property
    def generation(self) -> int:
        """A list has one."""
        return 0

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

    def __init__(self, space: SearchSpace, seed: int, *, count: int = 1000) -> None:
        self._pool = CandidatePool(space, seed)
        self._seeds = self._pool.seeds()[:count]
        self._left = count

    @property
    def is_finished(self) -> bool:
        """Whether all were asked for, or there are no more."""
        return self._left <= 0 or (not self._seeds and self._pool.is_exhausted)

    @property
    def generation(self) -> int:
        """A random search has one."""
        return 0

    def ask(self, count: int) -> Sequence[Candidate]:
        """The next seeds or random Configs."""
        asked: list[Candidate] = []
        while len(asked) < count and not self.is_finished:
            candidate = self._next()
            if candidate is not None:
                asked.append(candidate)
                self._left -= 1
        return asked

    def _next(self) -> Candidate | None:
        if self._seeds:
            seed = self._seeds.pop(0)
            is_new = self._pool.is_new(seed.config)
            return self._pool.take(seed.config, seed.origin) if is_new else None
        config = self._pool.draw()
        return None if config is None else self._pool.take(config, "random")

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """Nothing is learned, but what is known is not asked for."""
        for outcome in outcomes:
            self._pool.note(outcome)
