"""Who is told about a search while it runs, what is told, and the History of it.

The search loop keeps a Tally of outcomes, and tells listeners in its own thread: plain, frozen
records.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, prod
from typing import Protocol

from typing_extensions import override

from tilesmith.lab.reports import SafeListeners
from tilesmith.measure.statistics import median
from tilesmith.schedule.config import Config
from tilesmith.schedule.spec import ConfigSpec
from tilesmith.store.outcome import Candidate, Outcome, Verdict
from tilesmith.tune.context import Deadline
from tilesmith.tune.result import Final, StopReason, TuneResult, describe_total_failure
from tilesmith.tune.search.candidate_pool import Search


@dataclass(frozen=True)
class SearchStart:
    """What is about to be searched."""

    kernel: str
    target: str
    device: str
    method: str
    seed: int
    budget_s: float
    judge: str
    """What results are compared with, in words."""
    judge_reason: str = ""
    """Why that is not the fp64 reference, if so."""
    seeds: tuple[Candidate, ...] = ()
    space_size: float | None = None
    """How many Configs there are to choose from."""
    roofline_ms: float | None = None
    num_known: int = 0
    """Measurements of earlier searches that may be recalled."""
    arguments: str = ""
    """Types and shapes, for headings."""
    meaning: str = ""
    """What times stand for, if they are not those of one set of arguments."""
    code_of: Callable[[Config], str] = field(default=lambda _: "", repr=False, compare=False)
    """The code that a Config leads to, for readers; nothing where nobody knows."""

    @property
    def default(self) -> Config | None:
        """The default Config, if it is among the seeds."""
        return next((seed.config for seed in self.seeds if seed.origin == "default"), None)


@dataclass(frozen=True)
class Progress:
    """Where a search stands after an outcome."""

    elapsed_s: float
    budget_s: float
    num_tried: int
    generation: int
    best: Outcome | None = None
    num_in_flight: int = 0
    """Candidates being built or waiting to be timed."""


@dataclass(frozen=True)
class Generation:
    """Summary of one generation (or round) of the search, for the line of founding logs."""

    number: int
    elapsed_s: float
    num_tried: int
    """In this generation."""
    num_replaced: int
    """How often the best was replaced."""
    counts: Mapping[Verdict, int]
    min_ms: float = inf
    mid_ms: float = inf
    max_ms: float = inf
    best: Outcome | None = None

    @property
    def num_failed(self) -> int:
        """Candidates without a time."""
        return sum(count for verdict, count in self.counts.items() if not verdict.is_timed)


class Listener(Protocol):
    """Is told about one search; one that is derived from this need not listen to everything."""

    def on_start(self, start: SearchStart) -> None:
        """Before the first candidate."""

    def on_outcome(self, outcome: Outcome, progress: Progress) -> None:
        """After every candidate."""

    def on_generation(self, generation: Generation) -> None:
        """After all candidates of a generation."""

    def on_finals(self, final: Final) -> None:
        """After the finalists were measured side by side."""

    def on_end(self, result: TuneResult) -> None:
        """At the end, however it came; also when a stored winner was found (then only this)."""


class SafeListener(SafeListeners[Listener]):
    """A report must never end a search."""

    log = logging.getLogger("tilesmith.autotune")
    failure = "a report of the search failed and is left out"

    def on_start(self, start: SearchStart) -> None:
        """Pass on."""
        self.tell(lambda listener: listener.on_start(start))

    def on_outcome(self, outcome: Outcome, progress: Progress) -> None:
        """Pass on."""
        self.tell(lambda listener: listener.on_outcome(outcome, progress))

    def on_generation(self, generation: Generation) -> None:
        """Pass on."""
        self.tell(lambda listener: listener.on_generation(generation))

    def on_finals(self, final: Final) -> None:
        """Pass on."""
        self.tell(lambda listener: listener.on_finals(final))

    def on_end(self, result: TuneResult) -> None:
        """Pass on."""
        self.tell(lambda listener: listener.on_end(result))


def space_size(spec: ConfigSpec) -> float:
    """How many combinations of choices there are; some of them do not fit together."""
    return prod(float(dimension.fragment.cardinality) for dimension in spec.dimensions())


@dataclass(frozen=True)
class Trial:
    """One outcome, and its place among all."""

    outcome: Outcome
    number: int
    """Counts from 1."""


@dataclass
class History(Listener):
    """A listener that remembers."""

    start: SearchStart | None = None
    trials: list[Trial] = field(default_factory=list[Trial])
    final: Final | None = None
    result: TuneResult | None = None

    @override
    def on_start(self, start: SearchStart) -> None:
        # Whatever came before belongs to another search.
        self.start, self.trials = start, []
        self.final = self.result = None

    @override
    def on_outcome(self, outcome: Outcome, progress: Progress) -> None:
        self.trials.append(Trial(outcome, len(self.trials) + 1))

    @override
    def on_finals(self, final: Final) -> None:
        self.final = final

    @override
    def on_end(self, result: TuneResult) -> None:
        self.result = result

    @property
    def default(self) -> Config | None:
        """The Config that is taken without a search, if the search knew it."""
        return self.start.default if self.start else None

    @property
    def default_ms(self) -> float | None:
        """Time of the default Config, where it has one; best where the winner got its own."""
        together = time_in_finals(self.default, self.final)
        if together is not None:
            return together
        if self.result and self.result.default_ms is not None:
            return self.result.default_ms
        times = [t.outcome.time_ms for t in self.timed if t.outcome.config == self.default]
        return times[0] if times else None

    @property
    def roofline_ms(self) -> float | None:
        """The time that no schedule can beat."""
        ended = self.result.roofline_ms if self.result else None
        return ended or (self.start.roofline_ms if self.start else None)

    @property
    def timed(self) -> list[Trial]:
        """Trials with a time."""
        return [trial for trial in self.trials if trial.outcome.time_ms < inf]

    @property
    def failed(self) -> list[Trial]:
        """Trials that were rejected and have no time."""
        return [trial for trial in self.trials if trial.outcome.time_ms == inf]


@dataclass
class EndListener(Listener):
    """Tells one function how a search has ended."""

    tell: Callable[[TuneResult], object]

    @override
    def on_end(self, result: TuneResult) -> None:
        self.tell(result)


def time_in_finals(config: Config | None, final: Final | None) -> float | None:
    """The time of a Config where finalists were measured side by side, if it was one of them."""
    standings = final.standings if final else ()
    return next((found.median_ms for found in standings if found.config == config), None)


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
        if result.stop is StopReason.BUDGET:
            cause += "; the machine is slow or busy: allow more seconds (budget=60, --budget 60)"
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
