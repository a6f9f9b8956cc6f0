"""The search loop: candidates go through builder and runner until something says stop.

Whatever ends it (budget, roofline, Ctrl-C, an exception), the best so far is committed first.
Building overlaps with timing unless both would compete for the same processor.

The default goes before all others. Without it nobody could tell whether a search has gained
anything: whichever candidate is measured last before the budget ends would win against nothing.
"""

from __future__ import annotations

import logging
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from tilesmith.schedule.config import Config
from tilesmith.store.outcome import Candidate, Outcome, Verdict
from tilesmith.tune.context import (
    Builder,
    Deadline,
    EmittedCandidate,
    Interrupts,
    Records,
    Runner,
    RunnerLostError,
    TrialFailedError,
)
from tilesmith.tune.jobs import BuildReply
from tilesmith.tune.listener import Listener, ProgressReporter, SearchStart, Tally
from tilesmith.tune.options import TuneOptions
from tilesmith.tune.result import Final, StopReason, Timeline, TuneResult
from tilesmith.tune.search.candidate_pool import Search
from tilesmith.tune.trials import Trials, choose_finalists, final_of, hold_finals

LOG = logging.getLogger("tilesmith.autotune")
DEFAULT_ORIGIN = "default"
RECALL_RATIO = 1.1
"""A candidate known to be slower than this multiple of the best is not measured again."""
OLD_RECALL_RATIO = 1.5
"""The same while the best is itself only known from before."""
Built = tuple[EmittedCandidate, BuildReply]
HOLD_SHARE = 0.5
"""Of the budget: so long others wait for a default that takes long to build."""
QUEUE_PER_JOB = 2
"""Candidates submitted per builder process, so that none waits for the search loop."""
POLL_S = 0.1
"""How long to wait for a build before asking again whether to stop."""
NUM_FINALISTS = 5
FINALS_SHARE = 0.1
MAX_FINALS_S = 5.0
"""The finals get this share of the budget, and no more than these seconds."""
HASTY_FINALS_S = 1.0
"""For a user who has pressed Ctrl-C."""


@dataclass(frozen=True)
class TuneContext:
    """What a search works with."""

    emit: Callable[[Candidate], EmittedCandidate]
    """May raise: then the candidate does not build."""
    builder: Builder
    runner: Runner
    records: Records
    prepare: Callable[[], SearchStart]
    """Makes the runner ready, while the first candidates are built; may take seconds."""
    keep: Callable[[Config], Config | None]
    """The user's filter: the Config, another one to try in its place, or None."""
    find_obstacle: Callable[[Candidate], str]
    """Why a candidate cannot work on the device; empty if nothing is known against it."""
    default: Config
    """What is used where nothing could be measured."""
    complexity: Callable[[Config], Any]
    overlaps: bool
    """Whether building leaves timing undisturbed."""
    find_fault: Callable[[Candidate], str] | None = None
    """What the user has against a candidate's results; empty if nothing."""
    roofline_ms: float | None = None
    timeline: Timeline = field(default_factory=Timeline)
    disturbed: Callable[[], float] = lambda: 0.0
    """The share of measurements during which others had the cores."""
    find_dependence: Callable[[Candidate], str] | None = None
    """Why a candidate's results depend on the order of programs; None: nobody minds."""


class CandidateFilter:
    """Decides what becomes of candidates before they are built."""

    def __init__(self, context: TuneContext, tally: Tally) -> None:
        self._context, self._tally = context, tally
        self.emitted: dict[Config, EmittedCandidate] = {}
        """All that were emitted: finalists are checked anew."""

    def admit(self, candidate: Candidate) -> list[Outcome]:
        """Outcomes that are known now; an empty list: it was submitted."""
        kept = self._context.keep(candidate.config)
        if kept == candidate.config:
            return self._admit_kept(candidate)
        filtered = Outcome(candidate, Verdict.FILTERED, "by the filter for configs")
        if kept is None or kept in self.emitted or self._tally.find(kept) is not None:
            return [filtered]
        return [filtered, *self._admit_kept(replace(candidate, config=kept))]

    def _admit_kept(self, candidate: Candidate) -> list[Outcome]:
        outcome = self._known_outcome(candidate) or self._submit(candidate)
        return [] if outcome is None else [outcome]

    def _known_outcome(self, candidate: Candidate) -> Outcome | None:
        dependence = self._context.find_dependence and self._context.find_dependence(candidate)
        if dependence:
            return Outcome(candidate, Verdict.ORDER_DEPENDENT, dependence)
        obstacle = self._context.find_obstacle(candidate)
        if obstacle:
            return Outcome(candidate, Verdict.INFEASIBLE, obstacle)
        known = self._context.records.recall(candidate.config)
        if known is None or not known.verdict.is_timed:
            return known
        # Times of another day, or of another load, differ a little: the promising are measured
        # again. So is the default: what the search gains is told against it.
        best = self._tally.best
        if best is None or best.is_recalled:
            limit_ms = OLD_RECALL_RATIO * self._context.records.best_ms
        else:
            limit_ms = RECALL_RATIO * best.time_ms
        is_default = candidate.origin == DEFAULT_ORIGIN
        return None if is_default or known.time_ms <= limit_ms else known

    def _submit(self, candidate: Candidate) -> Outcome | None:
        try:
            emitted = self._context.emit(candidate)
        except Exception as error:  # whatever emitting raises is this candidate's own failure
            return Outcome(candidate, Verdict.BUILD_ERROR, f"{type(error).__name__}: {error}")
        self.emitted[candidate.config] = emitted
        self._context.builder.submit(emitted)
        return None


class ReadyQueue:
    """Candidates that are built and not yet run."""

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self._items: deque[Built] = deque()
        self.default: Config | None = None
        """The default, if it was submitted."""
        self._is_building_default = False

    def __len__(self) -> int:
        return len(self._items)

    def note_submitted(self, candidate: Candidate) -> None:
        """A candidate is being built."""
        if candidate.origin == DEFAULT_ORIGIN:
            self.default, self._is_building_default = candidate.config, True

    def extend(self, built: Iterable[Built]) -> None:
        """Take over what is built."""
        for item in built:
            if item[0].candidate.config == self.default:
                self._is_building_default = False
                self._items.appendleft(item)
            else:
                self._items.append(item)

    def pop(self) -> Built:
        """The candidate whose turn it is, which leaves the queue."""
        return self._items.popleft()

    @property
    def is_held(self) -> bool:
        """Whether those that are here wait for the default."""
        end_s = HOLD_SHARE * self._deadline.budget_s
        return self._is_building_default and self._deadline.elapsed_s < end_s


class Tuner:
    """Runs one search; all it works with stands in its context."""

    def __init__(
        self,
        search: Search,
        context: TuneContext,
        options: TuneOptions,
        deadline: Deadline,
        listener: Listener,
    ) -> None:
        self._search, self._context, self._options = search, context, options
        self._deadline, self._listener = deadline, listener
        deadline.reserved_s = min(FINALS_SHARE * options.budget_s, MAX_FINALS_S)
        self._interrupts = Interrupts()
        self._trials = Trials(context.runner, context.find_fault, deadline, options)
        most = options.settings.autotune_max_generations
        self._last_generation = inf if most is None else most
        self.tally = Tally()
        self._reporter = ProgressReporter(search, self.tally, listener, deadline)
        self._filter = CandidateFilter(context, self.tally)
        self._ready = ReadyQueue(deadline)
        self._judge = ""

    def run(self) -> TuneResult:
        """Search until something says stop; the result is committed before anything else."""
        with self._interrupts:
            try:
                stop, problem = self._search_safely()
            except KeyboardInterrupt:
                self._commit(StopReason.INTERRUPTED, self._best_as_final(), "")
                raise
            best = self._best_as_final()
            result = self._commit(stop, best, problem)
            if best is None:
                return result
            final = self._run_finals()
            if final is not None:
                self._listener.on_finals(final)
                result = self._commit(stop, final, problem)
            return result

    def find_emitted(self, config: Config) -> EmittedCandidate | None:
        """What a Config was built from, if it was."""
        return self._filter.emitted.get(config)

    def _search_safely(self) -> tuple[StopReason, str]:
        """How the search ended; an exception that leaves nothing to return is raised."""
        try:
            return self._loop(), ""
        except RunnerLostError as error:
            return StopReason.NO_RUNNER, str(error)
        except Exception:
            if self.tally.best is None:
                raise
            LOG.exception("the search ends early; the best so far is kept")
            return StopReason.ERROR, traceback.format_exc()

    def _loop(self) -> StopReason:
        # The runner becomes ready while builds go on; outcomes that are known now wait.
        self._refill()
        try:
            start = self._context.prepare()
            self._judge = start.judge
            self._reporter.start(start)
        except TrialFailedError as failed:
            if not self._deadline.is_past:
                raise RunnerLostError(failed.reason) from failed
        while (stop := self._find_stop()) is None:
            self._refill()
            self._collect()
            if self._ready and not self._is_held:
                self._try_next()
            elif not self._context.builder.num_pending and not self._refill():
                self._reporter.close_generation()
                return self._find_stop() or StopReason.FINISHED
        self._reporter.close_generation()
        return stop

    def _find_stop(self) -> StopReason | None:
        if self._interrupts.is_requested:
            return StopReason.INTERRUPTED
        if self._deadline.is_over or self._trials.is_out_of_time:
            return StopReason.BUDGET
        if self._search.generation > self._last_generation and self._is_idle:
            return StopReason.GENERATIONS
        goal, best = self._options.settings.autotune_stop_at_roofline, self.tally.best
        roofline_ms = self._context.roofline_ms
        if goal is not None and roofline_ms and best is not None:
            return StopReason.ROOFLINE if roofline_ms / best.time_ms >= goal else None
        return None

    @property
    def _is_held(self) -> bool:
        return self._ready.is_held and self._context.builder.num_pending > 0

    @property
    def _is_idle(self) -> bool:
        return not self._ready and not self._context.builder.num_pending

    def _refill(self) -> bool:
        """Ask for candidates until there is enough to do; whether any came."""
        builder, has_asked = self._context.builder, False
        started, capacity = self._deadline.elapsed_s, builder.num_jobs * QUEUE_PER_JOB
        while (room := capacity - builder.num_pending - len(self._ready)) > 0:
            # Where hardly any candidate fits the device, asking must not take all the time.
            is_long = self._deadline.elapsed_s - started > POLL_S and not self._is_idle
            if is_long or self._find_stop() is not None:
                return has_asked
            self._reporter.note_generation()
            if self._search.generation > self._last_generation:
                return has_asked
            candidates = self._search.ask(room)
            if not candidates:
                return has_asked
            has_asked = True
            for candidate in candidates:
                outcomes = self._filter.admit(candidate)
                if not outcomes:
                    self._ready.note_submitted(candidate)
                for outcome in outcomes:
                    self._record(outcome)
        return has_asked

    def _collect(self) -> None:
        """Take over what is built; wait only when there is nothing else to do."""
        builder = self._context.builder
        must_wait = not self._ready or not self._context.overlaps or self._is_held
        while builder.num_pending:
            wait_s = self._deadline.cap(POLL_S) if must_wait else 0.0
            self._ready.extend(builder.collect(wait_s))
            is_done = self._ready and (self._context.overlaps or not builder.num_pending)
            if (is_done and not self._is_held) or not must_wait or self._find_stop() is not None:
                return

    def _try_next(self) -> None:
        emitted, built = self._ready.pop()
        self._context.timeline.note("tried", self._deadline.elapsed_s)
        outcome = self._trials.run(emitted, built)
        if outcome is not None:
            if outcome.verdict.is_timed:
                self._context.timeline.note(Timeline.MEASURED, self._deadline.elapsed_s)
            self._record(outcome)

    def _record(self, outcome: Outcome) -> None:
        self.tally.add(outcome)
        if not outcome.is_recalled:
            self._context.records.append(outcome)
        self._search.tell([outcome])
        self._reporter.tell(outcome, self._context.builder.num_pending + len(self._ready))

    def _best_as_final(self) -> Final | None:
        """The best, once it is known to be no worse than the default."""
        default, best = self._ready.default, self.tally.best
        is_known = default is None or self.tally.find(default) is not None
        return final_of(best) if best and is_known else None

    def _commit(self, stop: StopReason, final: Final | None, problem: str) -> TuneResult:
        context = self._context
        known = TuneResult(
            context.default,
            stop,
            seconds=self._deadline.elapsed_s,
            budget_s=self._options.budget_s,
            judge=self._judge,
            roofline_ms=context.roofline_ms,
            problem=problem,
            timeline=context.timeline,
            disturbed=context.disturbed(),
        )
        result = self.tally.complete(known, final)
        if result.is_measured:
            context.records.commit(result)
        return result

    def _run_finals(self) -> Final | None:
        """The finals, if there is time and more than one finalist; None leaves the best as is."""
        if self._interrupts.is_requested:
            self._deadline.reserved_s = min(self._deadline.reserved_s, HASTY_FINALS_S)
        self._deadline.end()
        finalists = choose_finalists(self.tally.outcomes, NUM_FINALISTS)
        found = [self.find_emitted(outcome.config) for outcome in finalists]
        emitted = [candidate for candidate in found if candidate is not None]
        try:
            return hold_finals(emitted, self._trials, self._deadline, self._context.complexity)
        except (TrialFailedError, RunnerLostError) as error:
            LOG.debug("the finals could not be held: %s", error)
            return None
