"""Holds the finals: the best few are checked again where needed and timed side by side."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from tilesmith.schedule.config import Config
from tilesmith.tune.deadline import Deadline
from tilesmith.tune.finals import judge_finals
from tilesmith.tune.result import Final
from tilesmith.tune.stations import BenchLostError, Entrant, TrialFailedError
from tilesmith.tune.trials import Trials

LOG = logging.getLogger("tilesmith.autotune")
ROUNDS_PER_CHUNK = 10
MAX_ROUNDS = 400


class FinalRace:
    """One race, over when time is."""

    def __init__(
        self, trials: Trials, deadline: Deadline, complexity: Callable[[Config], Any]
    ) -> None:
        self._trials = trials
        self._deadline = deadline
        self._complexity = complexity

    def run(self, entrants: Sequence[Entrant]) -> Final | None:
        """The result; None if there are not two to compare, no time, or no bench any more."""
        try:
            return self._race(entrants)
        except (TrialFailedError, BenchLostError) as error:
            LOG.debug("the finals could not be held: %s", error)
            return None

    def _race(self, entrants: Sequence[Entrant]) -> Final | None:
        known = [entrant for entrant in entrants if self._trials.restore(entrant)]
        if len(known) < 2 or self._deadline.is_past:
            return None
        keys = [entrant.key for entrant in known]
        samples = self._sample([*keys, keys[0]])
        return judge_finals([e.candidate.config for e in known], samples, self._complexity)

    def _sample(self, keys: list[str]) -> list[list[float]]:
        """Rounds in chunks, as many as time allows; flushing caches may cost more than running."""
        series: list[list[float]] = [[] for _ in keys]
        chunk_s = 0.0
        while len(series[0]) < MAX_ROUNDS and self._deadline.cap(inf) >= 2.0 * chunk_s:
            start = self._deadline.elapsed_s
            for position, more in enumerate(self._trials.time(keys, ROUNDS_PER_CHUNK)):
                series[position] += more
            chunk_s = self._deadline.elapsed_s - start
        return series
