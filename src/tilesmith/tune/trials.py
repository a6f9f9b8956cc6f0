"""One trial: a built entrant is checked, then timed next to the best until its place is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from tilesmith.measure.statistics import median, summarize
from tilesmith.store.outcome import UNKNOWN_RESOURCES, Candidate, Outcome, Resources, Verdict
from tilesmith.tune.deadline import Deadline
from tilesmith.tune.elimination import Decision, Elimination
from tilesmith.tune.jobs import BuildReply, CheckReply
from tilesmith.tune.stations import Bench, Entrant, NoTimeError, Samples, TrialFailedError

MIN_SAMPLES = 8
"""Even of slow candidates that many are taken before time is looked at."""


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
class Champion:
    """The best entrant so far; later ones are timed next to it."""

    entrant: Entrant
    median_ms: float
    first_ms: float


class Trials:
    """Runs trials one after the other and keeps the champion."""

    def __init__(
        self,
        bench: Bench,
        deadline: Deadline,
        limits: Limits,
        rule: Elimination | None = None,
        find_fault: Callable[[Candidate], str] | None = None,
    ) -> None:
        self.champion: Champion | None = None
        self.is_out_of_time = False
        """Whether there is no time left to run anything, though the search may not be over."""
        self._bench = bench
        self._deadline = deadline
        self._limits = limits
        self._rule = rule or Elimination()
        self._find_fault = find_fault
        """What the user has against the results of a candidate that runs."""

    def run(self, entrant: Entrant, built: BuildReply) -> Outcome | None:
        """What becomes of an entrant; None if time ran out before that is known."""
        outcome = _failure(entrant, built.verdict, built.reason, built)
        if built.verdict is not Verdict.OK:
            return outcome
        try:
            return self._checked(entrant, built)
        except NoTimeError:
            self.is_out_of_time = True
            return None
        except TrialFailedError as failed:
            if failed.verdict is Verdict.HUNG and self._deadline.is_past:
                # It was ended because the search ends, not because it took too long.
                return None
            return replace(outcome, verdict=failed.verdict, reason=failed.reason)

    def restore(self, entrant: Entrant) -> bool:
        """Make the bench know an entrant again that was checked before."""
        if self._bench.knows(entrant.key):
            return True
        reply = self._bench.check(entrant, self._timeout)
        return reply.verdict is Verdict.OK

    def time(self, keys: Sequence[str], repeats: int) -> Samples:
        """Samples of entrants that the bench knows."""
        return self._bench.time(keys, repeats, self._timeout)

    def _checked(self, entrant: Entrant, built: BuildReply) -> Outcome:
        partner = self._partner()
        reply = self._bench.check(entrant, self._timeout)
        if reply.verdict is Verdict.OK and self._find_fault is not None:
            fault = self._find_fault(entrant.candidate)
            reply = replace(reply, verdict=Verdict.WRONG, reason=fault) if fault else reply
        if reply.verdict is not Verdict.OK:
            return _failure(entrant, reply.verdict, reply.reason, built, reply)
        series = _Series()
        if partner is not None and self._rule.is_hopeless(reply.first_ms, partner.first_ms):
            samples = self.time([entrant.key], self._rule.num_hopeless_samples)
            series.own += samples[0]
            if self._rule.confirms_hopeless(series.own, partner.median_ms):
                return self._timed(entrant, series, built, reply, partner)
        self._sample(entrant, partner, series)
        return self._timed(entrant, series, built, reply, partner)

    def _sample(self, entrant: Entrant, partner: Champion | None, series: _Series) -> None:
        """Take batches until the rule has decided or time is up."""
        started, decision = self._deadline.elapsed_s, Decision.CONTINUE
        while decision is Decision.CONTINUE:
            repeats = self._rule.repeats(len(series.own))
            keys = [entrant.key] if partner is None else [entrant.key, partner.entrant.key]
            samples = self.time(keys, repeats)
            series.own += samples[0]
            series.best += samples[1] if partner is not None else ()
            is_long = self._deadline.elapsed_s - started > self._limits.sampling_s
            if self._deadline.is_over or (is_long and len(series.own) >= MIN_SAMPLES):
                return
            decision = self._rule.decide(series.own, series.best)

    def _timed(
        self,
        entrant: Entrant,
        series: _Series,
        built: BuildReply,
        reply: CheckReply,
        partner: Champion | None,
    ) -> Outcome:
        summary = summarize(series.own)
        # Compared with the best as measured now: the machine may be faster or slower than before.
        best_ms = median(series.best) if series.best else partner.median_ms if partner else inf
        is_dropped = summary.median > best_ms and (
            not series.best or self._rule.decide(series.own, series.best) is Decision.DROP
        )
        if summary.median < best_ms:
            self._crown(Champion(entrant, summary.median, reply.first_ms))
        else:
            self._bench.forget(entrant.key)
        return Outcome(
            entrant.candidate,
            Verdict.SLOWER if is_dropped else Verdict.OK,
            f"{summary.median / best_ms:.2f} times the best" if is_dropped else "",
            tuple(series.own),
            summary.median,
            summary.low,
            summary.high,
            built.seconds,
            _resources(built, reply),
        )

    def _crown(self, champion: Champion) -> None:
        if self.champion is not None:
            self._bench.forget(self.champion.entrant.key)
        self.champion = champion

    def _partner(self) -> Champion | None:
        """The champion, known to the bench; after a crash it is checked again."""
        if self.champion is not None and not self._is_restored(self.champion.entrant):
            self.champion = None
        return self.champion

    def _is_restored(self, entrant: Entrant) -> bool:
        try:
            return self.restore(entrant)
        except TrialFailedError:
            return False

    @property
    def _timeout(self) -> float:
        return self._deadline.cap(self._limits.run_timeout_s)


def _failure(
    entrant: Entrant,
    verdict: Verdict,
    reason: str,
    built: BuildReply,
    reply: CheckReply | None = None,
) -> Outcome:
    return Outcome(
        entrant.candidate,
        verdict,
        reason,
        build_s=built.seconds,
        resources=_resources(built, reply),
    )


def _resources(built: BuildReply, reply: CheckReply | None) -> Resources:
    if reply is not None and reply.resources != UNKNOWN_RESOURCES:
        return reply.resources
    return built.resources
