"""One trial: a built candidate is checked, then timed next to the best until its place is known.

A candidate is dropped when its samples show that it is slower than the best.

In the finals the best few are measured side by side, the fastest twice in every round. How far its
two series are apart is the noise floor: finalists within it are tied, and of those the simplest
wins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import accumulate
from math import inf
from typing import Any

from tilesmith.measure.statistics import chance_of_ranks, median, ratio_interval, summarize
from tilesmith.schedule.config import Config
from tilesmith.store.outcome import UNKNOWN_RESOURCES, Candidate, Outcome, Verdict
from tilesmith.tune import context
from tilesmith.tune.jobs import BuildReply, CheckReply
from tilesmith.tune.options import TuneOptions
from tilesmith.tune.result import Final, Standing

MIN_SAMPLES = 8
"""Even of slow candidates that many are taken before time is looked at."""
NEAR = 1.15
"""Candidates slower than this multiple of the best are no finalists."""
NEAR_ENOUGH_TO_COMPARE = 2.0
"""But the default is one up to this: people want to know what the search has gained."""
QUICK_MS = 20.0
"""And in any case if it takes no longer: its first time may be that of a busy machine."""
ROUNDS_PER_CHUNK = 10
"""Between two looks at the clock."""
MAX_ROUNDS = 400


class Decision(Enum):
    """What to do with a candidate after a batch."""

    CONTINUE = "continue"
    DROP = "drop"
    KEEP = "keep"
    """All samples are there and it is not shown to be slower."""


@dataclass(frozen=True)
class Elimination:
    """The rule, with its constants."""

    batches: tuple[int, ...] = (3, 5, 10, 20)
    margin: float = 0.01
    """Slower by less than this share is not worth to be told apart now: the finals will."""
    significance: float = 0.001
    """Largest chance, per batch, to drop a candidate that is in truth within the margin."""
    clear_ratio: float = 1.15
    """When every sample is above this multiple of the best's median, ranks are not needed."""
    hopeless_ratio: float = 3.0
    confirmed_ratio: float = 2.0
    """What one more look at a hopeless candidate must confirm."""
    num_hopeless_samples: int = 2

    def repeats(self, num_samples: int) -> int:
        """The size of the next batch; 0 when there is none."""
        ends = zip(self.batches, accumulate(self.batches))
        return next((size for size, end in ends if num_samples < end), 0)

    def decide(self, candidate: Sequence[float], best: Sequence[float]) -> Decision:
        """Judge the samples so far; ``best`` was measured alongside (or is empty: no best yet)."""
        undecided = Decision.CONTINUE if self.repeats(len(candidate)) else Decision.KEEP
        if not best:
            return undecided
        if min(candidate) > self.clear_ratio * median(best):
            return Decision.DROP
        allowed = [sample * (1.0 + self.margin) for sample in best]
        if median(candidate) <= median(allowed):
            return undecided
        is_slower = chance_of_ranks(candidate, allowed) < self.significance
        return Decision.DROP if is_slower else undecided

    def is_hopeless(self, first_ms: float, best_ms: float) -> bool:
        """Whether a single rough time is so bad that two more samples may settle it."""
        return first_ms > self.hopeless_ratio * best_ms > 0.0

    def confirms_hopeless(self, candidate: Sequence[float], best_ms: float) -> bool:
        """Whether every further sample of a hopeless candidate is bad as well."""
        return min(candidate) > self.confirmed_ratio * best_ms


@dataclass
class Series:
    """The samples of a trial so far."""

    disturbances: tuple[int, int]
    """Those of the runner before it began."""
    own: list[float] = field(default_factory=list[float])
    best: list[float] = field(default_factory=list[float])

    def is_disturbed(self, disturbances: tuple[int, int]) -> bool:
        """Whether others had the cores in half of its requests."""
        some, among = (now - then for now, then in zip(disturbances, self.disturbances))
        return 2 * some >= max(1, among)


@dataclass(frozen=True)
class Incumbent:
    """The best candidate so far; later ones are timed next to it."""

    emitted: context.EmittedCandidate
    median_ms: float
    first_ms: float


class Trials:
    """Runs trials one after the other and keeps the incumbent."""

    def __init__(
        self,
        runner: context.Runner,
        find_fault: Callable[[Candidate], str] | None,
        deadline: context.Deadline,
        options: TuneOptions,
    ) -> None:
        self.is_out_of_time = False
        """Whether there is no time left to run anything, though the search may not be over."""
        self._incumbent: Incumbent | None = None
        self._runner, self._find_fault = runner, find_fault
        self._deadline = deadline
        self._run_timeout_s = options.settings.autotune_benchmark_timeout
        self._sampling_s = max(0.2, options.budget_s / 50)
        """No further batch of samples is started after this."""
        self._rule = Elimination()

    def run(self, emitted: context.EmittedCandidate, built: BuildReply) -> Outcome | None:
        """What becomes of a candidate; None if time ran out before that is known."""
        outcome = _outcome(emitted, built.verdict, built.reason, built)
        if built.verdict is not Verdict.OK:
            return outcome
        try:
            return self._checked(emitted, built)
        except context.NoTimeError:
            self.is_out_of_time = True
            return None
        except context.TrialFailedError as failed:
            if failed.verdict is Verdict.HUNG and self._deadline.is_past:
                # It was ended because the search ends, not because it took too long.
                return None
            return replace(outcome, verdict=failed.verdict, reason=failed.reason)

    def restore(self, emitted: context.EmittedCandidate) -> bool:
        """Make the runner know a candidate again that was checked before."""
        if self._runner.knows(emitted.key):
            return True
        reply = self._runner.check(emitted, self._timeout)
        return reply.verdict is Verdict.OK

    def time(self, keys: Sequence[str], repeats: int) -> context.Samples:
        """Samples of candidates that the runner knows."""
        return self._runner.time(keys, repeats, self._timeout)

    def _checked(self, emitted: context.EmittedCandidate, built: BuildReply) -> Outcome:
        partner = self._partner()
        reply = self._runner.check(emitted, self._timeout)
        if reply.verdict is Verdict.OK and self._find_fault is not None:
            fault = self._find_fault(emitted.candidate)
            reply = replace(reply, verdict=Verdict.WRONG, reason=fault) if fault else reply
        if reply.verdict is not Verdict.OK:
            return _outcome(emitted, reply.verdict, reply.reason, built, reply)
        series = Series(self._runner.disturbances)
        if partner is not None and self._rule.is_hopeless(reply.first_ms, partner.first_ms):
            samples = self.time([emitted.key], self._rule.num_hopeless_samples)
            series.own += samples[0]
            if self._rule.confirms_hopeless(series.own, partner.median_ms):
                return self._timed(emitted, series, built, reply, partner)
        self._sample(emitted, partner, series)
        return self._timed(emitted, series, built, reply, partner)

    def _sample(
        self, emitted: context.EmittedCandidate, partner: Incumbent | None, series: Series
    ) -> None:
        """Take batches until the rule has decided or time is up."""
        started, decision = self._deadline.elapsed_s, Decision.CONTINUE
        while decision is Decision.CONTINUE:
            repeats = self._rule.repeats(len(series.own))
            keys = [emitted.key] if partner is None else [emitted.key, partner.emitted.key]
            samples = self.time(keys, repeats)
            series.own += samples[0]
            series.best += samples[1] if partner is not None else ()
            is_long = self._deadline.elapsed_s - started > self._sampling_s
            if self._deadline.is_over or (is_long and len(series.own) >= MIN_SAMPLES):
                return
            decision = self._rule.decide(series.own, series.best)

    def _timed(
        self,
        emitted: context.EmittedCandidate,
        series: Series,
        built: BuildReply,
        reply: CheckReply,
        partner: Incumbent | None,
    ) -> Outcome:
        summary = summarize(series.own)
        # Compared with the best as measured now: the machine may be faster or slower than before.
        best_ms = median(series.best) if series.best else partner.median_ms if partner else inf
        is_dropped = summary.median > best_ms and (
            not series.best or self._rule.decide(series.own, series.best) is Decision.DROP
        )
        dropped = emitted.key
        if summary.median < best_ms:
            again = self._check_again(emitted)
            if again is not None and again.verdict is not Verdict.OK:
                reason = f"after it was timed: {again.reason}"
                return _outcome(emitted, again.verdict, reason, built, again)
            dropped = self._incumbent.emitted.key if self._incumbent else ""
            self._incumbent = Incumbent(emitted, summary.median, reply.first_ms)
        if dropped:
            self._runner.forget(dropped)
        verdict = Verdict.SLOWER if is_dropped else Verdict.OK
        reason = f"{summary.median / best_ms:.2f} times the best" if is_dropped else ""
        return replace(
            _outcome(emitted, verdict, reason, built, reply),
            samples_ms=tuple(series.own),
            median_ms=summary.median,
            low_ms=summary.low,
            high_ms=summary.high,
            is_disturbed=series.is_disturbed(self._runner.disturbances),
        )

    def _check_again(self, emitted: context.EmittedCandidate) -> CheckReply | None:
        """Whether the new best is still right after so many runs; None: there is no time to ask."""
        return None if self._deadline.is_past else self._runner.check(emitted, self._timeout)

    def _partner(self) -> Incumbent | None:
        """The incumbent, known to the runner; after a crash it is checked again."""
        try:
            if self._incumbent is not None and not self.restore(self._incumbent.emitted):
                self._incumbent = None
        except context.TrialFailedError:
            self._incumbent = None
        return self._incumbent

    @property
    def _timeout(self) -> float:
        return self._deadline.cap(self._run_timeout_s)


def _outcome(
    emitted: context.EmittedCandidate,
    verdict: Verdict,
    reason: str,
    built: BuildReply,
    reply: CheckReply | None = None,
) -> Outcome:
    resources = built.resources
    if reply is not None and reply.resources != UNKNOWN_RESOURCES:
        resources = reply.resources
    return Outcome(emitted.candidate, verdict, reason, build_s=built.seconds, resources=resources)


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
    finalists: Sequence[context.EmittedCandidate],
    trials: Trials,
    deadline: context.Deadline,
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
