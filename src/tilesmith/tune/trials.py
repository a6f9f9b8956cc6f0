"""One trial: a built candidate is checked, then timed next to the best until its place is known.

A candidate is dropped when its samples show that it is slower than the best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from math import inf

from tilesmith.measure.statistics import chance_of_ranks, median, summarize
from tilesmith.store.outcome import UNKNOWN_RESOURCES, Candidate, Outcome, Resources, Verdict
from tilesmith.tune.context import EmittedCandidate, NoTimeError, Runner, Samples, TrialFailedError
from tilesmith.tune.jobs import BuildReply, CheckReply
from tilesmith.tune.limits import Deadline

MIN_SAMPLES = 8
"""Even of slow candidates that many are taken before time is looked at."""


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
        return next((size for size, end in self._ends() if num_samples < end), 0)

    def decide(self, candidate: Sequence[float], best: Sequence[float]) -> Decision:
        """Judge the samples so far; ``best`` was measured alongside (or is empty: no best yet)."""
        if best and self._is_slower(candidate, best):
            return Decision.DROP
        return Decision.CONTINUE if self.repeats(len(candidate)) else Decision.KEEP

    def is_hopeless(self, first_ms: float, best_ms: float) -> bool:
        """Whether a single rough time is so bad that two more samples may settle it."""
        return first_ms > self.hopeless_ratio * best_ms > 0.0

    def confirms_hopeless(self, candidate: Sequence[float], best_ms: float) -> bool:
        """Whether every further sample of a hopeless candidate is bad as well."""
        return min(candidate) > self.confirmed_ratio * best_ms

    def _is_slower(self, candidate: Sequence[float], best: Sequence[float]) -> bool:
        if min(candidate) > self.clear_ratio * median(best):
            return True
        allowed = [sample * (1.0 + self.margin) for sample in best]
        if median(candidate) <= median(allowed):
            return False
        return chance_of_ranks(candidate, allowed) < self.significance

    def _ends(self) -> Iterator[tuple[int, int]]:
        end = 0
        for size in self.batches:
            end += size
            yield size, end


@dataclass(frozen=True)
class Limits:
    """How long one trial may take."""

    run_timeout_s: float = 30.0
    sampling_s: float = 0.5
    """No further batch of samples is started after this."""


@dataclass
class _Series:
    """The samples of a trial so far."""

    own: list[float] = field(default_factory=list[float])
    best: list[float] = field(default_factory=list[float])


@dataclass(frozen=True)
class Incumbent:
    """The best candidate so far; later ones are timed next to it."""

    emitted: EmittedCandidate
    median_ms: float
    first_ms: float


class Trials:
    """Runs trials one after the other and keeps the incumbent."""

    def __init__(
        self,
        runner: Runner,
        deadline: Deadline,
        limits: Limits,
        rule: Elimination | None = None,
        find_fault: Callable[[Candidate], str] | None = None,
    ) -> None:
        self.incumbent: Incumbent | None = None
        self.is_out_of_time = False
        """Whether there is no time left to run anything, though the search may not be over."""
        self._runner = runner
        self._deadline = deadline
        self._limits = limits
        self._rule = rule or Elimination()
        self._find_fault = find_fault
        """What the user has against the results of a candidate that runs."""

    def run(self, emitted: EmittedCandidate, built: BuildReply) -> Outcome | None:
        """What becomes of a candidate; None if time ran out before that is known."""
        outcome = _failure(emitted, built.verdict, built.reason, built)
        if built.verdict is not Verdict.OK:
            return outcome
        try:
            return self._checked(emitted, built)
        except NoTimeError:
            self.is_out_of_time = True
            return None
        except TrialFailedError as failed:
            if failed.verdict is Verdict.HUNG and self._deadline.is_past:
                # It was ended because the search ends, not because it took too long.
                return None
            return replace(outcome, verdict=failed.verdict, reason=failed.reason)

    def restore(self, emitted: EmittedCandidate) -> bool:
        """Make the runner know a candidate again that was checked before."""
        if self._runner.knows(emitted.key):
            return True
        reply = self._runner.check(emitted, self._timeout)
        return reply.verdict is Verdict.OK

    def time(self, keys: Sequence[str], repeats: int) -> Samples:
        """Samples of candidates that the runner knows."""
        return self._runner.time(keys, repeats, self._timeout)

    def _checked(self, emitted: EmittedCandidate, built: BuildReply) -> Outcome:
        partner = self._partner()
        reply = self._runner.check(emitted, self._timeout)
        if reply.verdict is Verdict.OK and self._find_fault is not None:
            fault = self._find_fault(emitted.candidate)
            reply = replace(reply, verdict=Verdict.WRONG, reason=fault) if fault else reply
        if reply.verdict is not Verdict.OK:
            return _failure(emitted, reply.verdict, reply.reason, built, reply)
        series = _Series()
        if partner is not None and self._rule.is_hopeless(reply.first_ms, partner.first_ms):
            samples = self.time([emitted.key], self._rule.num_hopeless_samples)
            series.own += samples[0]
            if self._rule.confirms_hopeless(series.own, partner.median_ms):
                return self._timed(emitted, series, built, reply, partner)
        self._sample(emitted, partner, series)
        return self._timed(emitted, series, built, reply, partner)

    def _sample(
        self, emitted: EmittedCandidate, partner: Incumbent | None, series: _Series
    ) -> None:
        """Take batches until the rule has decided or time is up."""
        started, decision = self._deadline.elapsed_s, Decision.CONTINUE
        while decision is Decision.CONTINUE:
            repeats = self._rule.repeats(len(series.own))
            keys = [emitted.key] if partner is None else [emitted.key, partner.emitted.key]
            samples = self.time(keys, repeats)
            series.own += samples[0]
            series.best += samples[1] if partner is not None else ()
            is_long = self._deadline.elapsed_s - started > self._limits.sampling_s
            if self._deadline.is_over or (is_long and len(series.own) >= MIN_SAMPLES):
                return
            decision = self._rule.decide(series.own, series.best)

    def _timed(
        self,
        emitted: EmittedCandidate,
        series: _Series,
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
        if summary.median < best_ms:
            self._replace_incumbent(Incumbent(emitted, summary.median, reply.first_ms))
        else:
            self._runner.forget(emitted.key)
        return Outcome(
            emitted.candidate,
            Verdict.SLOWER if is_dropped else Verdict.OK,
            f"{summary.median / best_ms:.2f} times the best" if is_dropped else "",
            tuple(series.own),
            summary.median,
            summary.low,
            summary.high,
            built.seconds,
            _resources(built, reply),
        )

    def _replace_incumbent(self, incumbent: Incumbent) -> None:
        if self.incumbent is not None:
            self._runner.forget(self.incumbent.emitted.key)
        self.incumbent = incumbent

    def _partner(self) -> Incumbent | None:
        """The incumbent, known to the runner; after a crash it is checked again."""
        if self.incumbent is not None and not self._is_restored(self.incumbent.emitted):
            self.incumbent = None
        return self.incumbent

    def _is_restored(self, emitted: EmittedCandidate) -> bool:
        try:
            return self.restore(emitted)
        except TrialFailedError:
            return False

    @property
    def _timeout(self) -> float:
        return self._deadline.cap(self._limits.run_timeout_s)


def _failure(
    emitted: EmittedCandidate,
    verdict: Verdict,
    reason: str,
    built: BuildReply,
    reply: CheckReply | None = None,
) -> Outcome:
    return Outcome(
        emitted.candidate,
        verdict,
        reason,
        build_s=built.seconds,
        resources=_resources(built, reply),
    )


def _resources(built: BuildReply, reply: CheckReply | None) -> Resources:
    if reply is not None and reply.resources != UNKNOWN_RESOURCES:
        return reply.resources
    return built.resources
