"""The search loop: candidates go through builder and runner until something says stop.

Whatever ends it (budget, roofline, Ctrl-C, an exception), the best so far is committed first.
Building overlaps with timing unless both would compete for the same processor.

Then come the finals: the best few are measured side by side, the fastest twice in every round. How
far its two series are apart is the noise floor: finalists within it are tied, and of those the
simplest wins.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from tilesmith.measure.statistics import ratio_interval, summarize
from tilesmith.schedule.config import Config
from tilesmith.store.outcome import Outcome, Verdict
from tilesmith.tune.candidates import CandidateFilter, ReadyQueue
from tilesmith.tune.context import EmittedCandidate, RunnerLostError, TrialFailedError, TuneContext
from tilesmith.tune.limits import Deadline, Interrupts
from tilesmith.tune.listener import Listener
from tilesmith.tune.options import TuneOptions
from tilesmith.tune.result import Final, Standing, StopReason, Timeline, TuneResult
from tilesmith.tune.search.interface import Search
from tilesmith.tune.tally import ProgressReporter, Tally
from tilesmith.tune.trials import Trials

NEAR = 1.15
"""Candidates slower than this multiple of the best are no finalists."""
NEAR_ENOUGH_TO_COMPARE = 2.0
"""But the default is one up to this: people want to know what the search has gained."""
QUICK_MS = 20.0
"""And in any case if it takes no longer: its first time may be that of a busy machine."""
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
    chosen = sorted(near, key=lambda o: o.verdict is not Verdict.OK)[:count]
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
    """The result of the finals, from one series per finalist, then that of the first's duplicate.

    Ties are decided by ``complexity``, smaller first.
    """
    *series, control = samples_ms
    noise = noise_floor(series[0], control)
    summaries = zip(configs, map(summarize, series))
    found = (Standing(config, s.median, s.low, s.high) for config, s in summaries)
    standings = sorted(found, key=lambda s: s.median_ms)
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


def hold_finals(
    finalists: Sequence[EmittedCandidate],
    trials: Trials,
    deadline: Deadline,
    complexity: Callable[[Config], Any],
) -> Final | None:
    """The result of one race, over when time is; None if there are not two to compare, or no time.

    Rounds come in chunks, as many as time allows; flushing caches may cost more than running.
    """
    known = [finalist for finalist in finalists if trials.restore(finalist)]
    if len(known) < 2 or deadline.is_past:
        return None
    keys = [finalist.key for finalist in known]
    keys.append(keys[0])
    series: list[list[float]] = [[] for _ in keys]
    chunk_s = 0.0
    while len(series[0]) < MAX_ROUNDS and deadline.cap(inf) >= 2.0 * chunk_s:
        start = deadline.elapsed_s
        for position, more in enumerate(trials.time(keys, ROUNDS_PER_CHUNK)):
            series[position] += more
        chunk_s = deadline.elapsed_s - start
    return judge_finals([e.candidate.config for e in known], series, complexity)


LOG = logging.getLogger("tilesmith.autotune")
QUEUE_PER_JOB = 2
"""Candidates submitted per builder process, so that none waits for the search loop."""
POLL_S = 0.1
"""How long to wait for a build before asking again whether to stop."""
FINALS_SHARE = 0.1
MAX_FINALS_S = 5.0
"""The finals get this share of the budget, and no more than these seconds."""
HASTY_FINALS_S = 1.0
"""For a user who has pressed Ctrl-C."""


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
        self._trials = Trials(context, deadline, options)
        most = options.max_generations
        self._last_generation = inf if most is None else most
        self.tally = Tally()
        self._reporter = ProgressReporter(search, self.tally, listener, deadline)
        self._filter = CandidateFilter(context, self.tally)
        self._ready = ReadyQueue(deadline)
        self.roofline_ms: float | None = None

    def run(self, finish: Callable[[StopReason, Final | None, str], TuneResult]) -> TuneResult:
        """Search until something says stop; ``finish`` makes the result from how it ended.

        The result is committed before anything else happens.
        """
        with self._interrupts:
            try:
                stop, problem = self._search_safely()
            except KeyboardInterrupt:
                self._commit(finish(StopReason.INTERRUPTED, self._best_as_final(), ""))
                raise
            best = self._best_as_final()
            result = self._commit(finish(stop, best, problem))
            if best is None:
                return result
            final = self._run_finals()
            if final is not None:
                self._listener.on_finals(final)
                result = self._commit(finish(stop, final, problem))
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
            self._reporter.start(self._context.prepare())
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
        goal, best = self._options.stop_at_roofline, self.tally.best
        if goal is not None and self.roofline_ms and best is not None:
            return StopReason.ROOFLINE if self.roofline_ms / best.time_ms >= goal else None
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

    def _commit(self, result: TuneResult) -> TuneResult:
        if result.is_measured:
            self._context.records.commit(result)
        return result

    def _run_finals(self) -> Final | None:
        """The finals, if there is time and more than one finalist; None leaves the best as is."""
        if self._interrupts.is_requested:
            self._deadline.reserved_s = min(self._deadline.reserved_s, HASTY_FINALS_S)
        self._deadline.end()
        finalists = choose_finalists(self.tally.outcomes, self._options.num_finalists)
        found = [self.find_emitted(outcome.config) for outcome in finalists]
        emitted = [candidate for candidate in found if candidate is not None]
        try:
            return hold_finals(emitted, self._trials, self._deadline, self._context.complexity)
        except (TrialFailedError, RunnerLostError) as error:
            LOG.debug("the finals could not be held: %s", error)
            return None
