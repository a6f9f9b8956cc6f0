"""The books of a search: all outcomes, the best, and the summary of each generation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf

from tilesmith.measure.statistics import median
from tilesmith.schedule.config import Config
from tilesmith.store.outcome import Outcome, Verdict
from tilesmith.tune.listener import Generation
from tilesmith.tune.search.interface import Best


class Tally:
    """Outcomes in the order they came in."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.best: Outcome | None = None
        self._generation: list[Outcome] = []
        self._num_replaced = 0

    def add(self, outcome: Outcome) -> None:
        """Enter an outcome."""
        self.outcomes.append(outcome)
        self._generation.append(outcome)
        if self._is_better(outcome):
            self.best = outcome
            self._num_replaced += 1

    def _is_better(self, outcome: Outcome) -> bool:
        """What was measured now counts for more than what is remembered, however fast that was."""
        best = self.best
        if best is None or (best.is_recalled and not outcome.is_recalled):
            return outcome.verdict.is_timed
        if outcome.is_recalled and not best.is_recalled:
            return False
        return outcome.time_ms < best.time_ms

    @property
    def best_entry(self) -> Best | None:
        """The best so far, for progress lines."""
        return Best(self.best.config, self.best.time_ms) if self.best else None

    @property
    def counts(self) -> dict[Verdict, int]:
        """How often each verdict was given."""
        return count_verdicts(self.outcomes)

    @property
    def failures(self) -> list[Outcome]:
        """Candidates without a time."""
        return [outcome for outcome in self.outcomes if not outcome.verdict.is_timed]

    @property
    def num_in_generation(self) -> int:
        """Outcomes since the last summary."""
        return len(self._generation)

    def find(self, config: Config) -> Outcome | None:
        """The outcome of a Config, if it was tried."""
        return next((o for o in self.outcomes if o.config == config), None)

    def close_generation(self, number: int, elapsed_s: float) -> Generation:
        """The summary of the outcomes since the last one."""
        outcomes, self._generation = self._generation, []
        times = sorted(o.time_ms for o in outcomes if o.verdict.is_timed)
        num_replaced, self._num_replaced = self._num_replaced, 0
        return Generation(
            number,
            elapsed_s,
            len(outcomes),
            num_replaced,
            count_verdicts(outcomes),
            *((times[0], median(times), times[-1]) if times else (inf, inf, inf)),
            best=self.best_entry,
        )


def count_verdicts(outcomes: Sequence[Outcome]) -> dict[Verdict, int]:
    """How often each verdict occurs, the most frequent first."""
    return dict(Counter(outcome.verdict for outcome in outcomes).most_common())
