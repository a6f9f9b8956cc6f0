"""The finals: samples of the best few, measured side by side, become a winner.

The fastest runs twice in every round. How far its two series are apart is the noise floor:
finalists within it are tied, and of those the simplest wins.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from tilesmith.measure.statistics import Summary, ratio_interval, summarize
from tilesmith.schedule.config import Config
from tilesmith.store.outcome import Outcome, Verdict
from tilesmith.tune.context import EmittedCandidate, RunnerLostError, TrialFailedError
from tilesmith.tune.limits import Deadline
from tilesmith.tune.result import Final, Standing
from tilesmith.tune.trials import Trials

NEAR = 1.15
"""Candidates slower than this multiple of the best are no finalists."""
NEAR_ENOUGH_TO_COMPARE = 2.0
"""But the default is one up to this: people want to know what the search has gained."""
QUICK_MS = 20.0
"""And in any case if it takes no longer: its first time may be that of a busy machine."""
LOG = logging.getLogger("tilesmith.autotune")
ROUNDS_PER_CHUNK = 10
"""Between two looks at the clock."""
MAX_ROUNDS = 400


def choose_finalists(outcomes: Sequence[Outcome], count: int) -> list[Outcome]:
    """The fastest few and the default, best first; dropped ones only if they nearly made it."""
    measured = (o for o in outcomes if o.verdict.is_timed and not o.is_recalled)
    timed = sorted(measured, key=lambda outcome: outcome.time_ms)
    if not timed:
        return []
    near = [o for o in timed if o.time_ms <= NEAR * timed[0].time_ms]
    kept = [o for o in near if o.verdict is Verdict.OK]
    dropped = [o for o in near if o.verdict is not Verdict.OK]
    chosen = (kept + dropped)[:count]
    defaults = (o for o in timed if o.candidate.origin == "default" and _is_near(o, timed[0]))
    chosen += [o for o in defaults if o not in chosen]
    return sorted(chosen, key=lambda outcome: outcome.time_ms)


def _is_near(default: Outcome, best: Outcome) -> bool:
    """Whether to compare them side by side: on a busy machine the best may only be lucky."""
    is_apart = default.low_ms > best.high_ms
    longest = max(QUICK_MS, NEAR_ENOUGH_TO_COMPARE * best.time_ms)
    return not is_apart or default.time_ms <= longest


def judge_finals(
    configs: Sequence[Config],
    samples_ms: Sequence[Sequence[float]],
    complexity: Callable[[Config], Any],
) -> Final:
    """The result of the finals.

    Args:
        configs: the finalists; the first is the one that was doubled.
        samples_ms: one series per finalist, then the series of the duplicate.
        complexity: what ties are decided by, smaller first.
    """
    *series, control = samples_ms
    noise = noise_floor(series[0], control)
    standings = sorted(map(_standing, configs, map(summarize, series)), key=lambda s: s.median_ms)
    limit = standings[0].median_ms * (1.0 + noise)
    standings = [replace(s, is_tied=s.median_ms <= limit) for s in standings]
    tied = [s for s in standings if s.is_tied]
    winner = min(tied, key=lambda s: (complexity(s.config), s.median_ms))
    return Final(winner, tuple(standings), noise)


def noise_floor(series: Sequence[float], control: Sequence[float]) -> float:
    """How far two series of one program differ, as a share: the difference, or its uncertainty."""
    interval = ratio_interval(series, control)
    half_width = (interval.high - interval.low) / 2.0
    return max(abs(interval.estimate - 1.0), half_width)


def final_of(outcome: Outcome) -> Final:
    """A final with one participant that needs no race."""
    standing = Standing(outcome.config, outcome.median_ms, outcome.low_ms, outcome.high_ms, True)
    return Final(standing, (standing,), 0.0)


def _standing(config: Config, summary: Summary) -> Standing:
    return Standing(config, summary.median, summary.low, summary.high)


class FinalRace:
    """One race, over when time is."""

    def __init__(
        self, trials: Trials, deadline: Deadline, complexity: Callable[[Config], Any]
    ) -> None:
        self._trials = trials
        self._deadline = deadline
        self._complexity = complexity

    def run(self, finalists: Sequence[EmittedCandidate]) -> Final | None:
        """The result; None if there are not two to compare, no time, or no runner any more."""
        try:
            return self._race(finalists)
        except (TrialFailedError, RunnerLostError) as error:
            LOG.debug("the finals could not be held: %s", error)
            return None

    def _race(self, finalists: Sequence[EmittedCandidate]) -> Final | None:
        known = [finalist for finalist in finalists if self._trials.restore(finalist)]
        if len(known) < 2 or self._deadline.is_past:
            return None
        keys = [finalist.key for finalist in known]
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
