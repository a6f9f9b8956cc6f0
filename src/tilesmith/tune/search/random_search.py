"""RandomSearch: seeds, then random Configs, up to a number of them."""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.store.outcome import Candidate, Outcome
from tilesmith.tune.search.candidate_pool import CandidatePool
from tilesmith.tune.search.interface import SearchSpace


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
