"""The outcomes of a search so far, the best of them, and what listeners are told of both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import inf

from tilesmith.measure.statistics import median
from tilesmith.schedule.config import Config
from tilesmith.store.outcome import Outcome, Verdict
from tilesmith.tune.context import Deadline
from tilesmith.tune.listener import Generation, Listener, Progress, SearchStart, time_in_finals
from tilesmith.tune.result import Final, TuneResult, describe_total_failure
from tilesmith.tune.search.candidate_pool import Search


class Tally:
    """Outcomes in the order they came in."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.best: Outcome | None = None
        self._generation: list[Outcome] = []
        self._num_replaced = 0

    def add(self, outcome: Outcome) -> None:
        """Count an outcome, which may be the best so far."""
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
    def counts(self) -> dict[Verdict, int]:
        """How often each verdict was given."""
        return count_verdicts(self.outcomes)

    @property
    def failures(self) -> list[Outcome]:
        """Candidates without a time."""
        return [outcome for outcome in self.outcomes if not outcome.verdict.is_timed]

    def find(self, config: Config) -> Outcome | None:
        """The outcome of a Config, if it was tried."""
        return next((o for o in self.outcomes if o.config == config), None)

    def close_generation(self, number: int, elapsed_s: float) -> Generation | None:
        """The summary of the outcomes since the last one; None if there are none."""
        outcomes, self._generation = self._generation, []
        if not outcomes:
            return None
        times = sorted(o.time_ms for o in outcomes if o.verdict.is_timed)
        marks = (times[0], median(times), times[-1]) if times else (inf, inf, inf)
        num_replaced, self._num_replaced = self._num_replaced, 0
        counts = (len(outcomes), num_replaced, count_verdicts(outcomes))
        return Generation(number, elapsed_s, *counts, *marks, self.best)

    def complete(self, result: TuneResult, final: Final | None) -> TuneResult:
        """The result of the default config, with what was tried and what the finals say."""
        tried = self.find(result.config)
        alone_ms = tried.time_ms if tried and tried.verdict.is_timed else None
        result = replace(
            result,
            num_tried=len(self.outcomes),
            num_recalled=sum(outcome.is_recalled for outcome in self.outcomes),
            counts=self.counts,
            default_ms=time_in_finals(result.config, final) or alone_ms,
            failures=tuple(self.failures),
        )
        if final is not None:
            winner = final.winner
            found = self.find(winner.config)
            return replace(
                result,
                config=winner.config,
                ms=winner.median_ms,
                spread=winner.spread,
                noise=final.noise,
                ties=len(final.ties) - 1,
                predicted_ms=found.candidate.predicted_ms if found else None,
            )
        missing = "a candidate" if self.best is None else "the default config"
        cause = f"{result.stop.value} before {missing} was measured"
        if self.failures and self.best is None:
            cause = describe_total_failure(self.failures)
        return replace(result, problem=result.problem or cause)


def count_verdicts(outcomes: Sequence[Outcome]) -> dict[Verdict, int]:
    """How often each verdict occurs, the most frequent first."""
    return dict(Counter(outcome.verdict for outcome in outcomes).most_common())


class ProgressReporter:
    """Between the search loop and its listener."""

    def __init__(
        self, search: Search, tally: Tally, listener: Listener, deadline: Deadline
    ) -> None:
        self._search, self._tally, self._listener = search, tally, listener
        self._deadline, self._budget_s = deadline, deadline.budget_s
        self._generation = 0
        self._early: list[tuple[Outcome, int]] | None = []
        """What comes before the start is told; None afterwards."""

    def start(self, start: SearchStart) -> None:
        """Tell that the search begins, and then what was known before it did."""
        early, self._early = self._early or [], None
        self._listener.on_start(start)
        for outcome, num_in_flight in early:
            self.tell(outcome, num_in_flight)

    def tell(self, outcome: Outcome, num_in_flight: int) -> None:
        """An outcome, which is in the books; so many others are on their way."""
        if self._early is not None:
            self._early.append((outcome, num_in_flight))
            return
        elapsed_s, num_tried = self._deadline.elapsed_s, len(self._tally.outcomes)
        place = (elapsed_s, self._budget_s, num_tried, self._generation)
        self._listener.on_outcome(outcome, Progress(*place, self._tally.best, num_in_flight))
        self.note_generation()

    def note_generation(self) -> None:
        """Sum up a generation that is over."""
        if self._search.generation != self._generation:
            self.close_generation()
            self._generation = self._search.generation

    def close_generation(self) -> None:
        """Sum up the last one."""
        summary = self._tally.close_generation(self._generation, self._deadline.elapsed_s)
        if summary is not None:
            self._listener.on_generation(summary)
