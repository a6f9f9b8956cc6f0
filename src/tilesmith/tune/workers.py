"""What a search asks of its processes: builds, and for each case a runner; several count as one.

A candidate is one build job for each of its programs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field, replace
from statistics import geometric_mean
from typing import Any

from tilesmith.backends.interface import TuningNeeds
from tilesmith.lab.processes.build_pool import BuildOutcome
from tilesmith.lab.processes.channel import (
    ChildDied,
    ChildError,
    ChildTimeout,
    ChildUnavailable,
    ErrorReply,
)
from tilesmith.measure.statistics import median
from tilesmith.store.outcome import Resources, Verdict
from tilesmith.tune import jobs
from tilesmith.tune.context import (
    Deadline,
    EmittedCandidate,
    NoTimeError,
    RunnerLostError,
    Samples,
    TrialFailedError,
)
from tilesmith.tune.options import TuneOptions
from tilesmith.tune.places import Place

START_TIMEOUT_S = 120.0
FORGET_TIMEOUT_S = 10.0
RELEASE_TIMEOUT_S = 2.0
"""A process that takes longer is ended rather than kept for the next search."""
HARMLESS = (Verdict.OK, Verdict.OUT_OF_RESOURCES, Verdict.OUT_OF_MEMORY)
"""Verdicts on candidates that have not written where they should not."""
RESTART_S = 2.0
"""With less time than this left, a runner that died is not started again."""
TIMING_SHARE = 0.5
"""Of the time allowed for a job, what the rounds may take: the rest is for the slowest of them."""


class RunnerClient:
    """Asks one runner process; its programs are those of one workload."""

    def __init__(self, options: TuneOptions, deadline: Deadline, device: str, place: Place) -> None:
        self._deadline, self._place = deadline, place
        self._known: set[str] = set()
        self._known_start = 0
        self.disturbances: list[bool] = []
        """Of each request for times, whether others had the cores meanwhile."""
        self._client = place.start_runner(options, device)
        self._client.start_timeout_s = deadline.cap(START_TIMEOUT_S)
        self._client.start()
        self._first_start = self._client.num_starts
        self._is_trusted = True
        """Whether nothing has run in the process that may have harmed it."""

    @property
    def ready_at(self) -> float:
        """When the process came up, by ``time.monotonic``."""
        return self._client.ready_at

    def announce(self, job: jobs.PrepareJob) -> None:
        """Send the workload ahead: the process prepares it while nobody waits yet."""
        self._client.send_ahead(job)

    def prepare(self, job: jobs.PrepareJob, timeout_s: float) -> jobs.PrepareReply:
        """Have the process load a workload and work out the reference."""
        reply = self._ask(lambda: self._client.prepare(job, timeout_s))
        if isinstance(reply, ErrorReply):
            raise RunnerLostError(f"the workload cannot be prepared: {reply.reason}")
        return reply

    def check(self, job: jobs.CheckJob, timeout_s: float) -> jobs.CheckReply:
        """Run a program once and judge it."""
        reply = self._ask(lambda: self._client.request(job, timeout_s))
        if isinstance(reply, ErrorReply):
            return jobs.CheckReply(Verdict.RUN_ERROR, reply.reason)
        if reply.verdict is Verdict.OK:
            self._keep_current()
            self._known.add(job.program.key)
        self._is_trusted &= reply.verdict in HARMLESS
        return reply

    def time(self, keys: Sequence[str], repeats: int, timeout_s: float) -> Samples:
        """Time programs that were checked."""
        job = jobs.TimeJob(tuple(keys), repeats, TIMING_SHARE * timeout_s)
        reply: jobs.TimeReply | ErrorReply = self._ask(lambda: self._client.request(job, timeout_s))
        if isinstance(reply, ErrorReply):
            raise TrialFailedError(Verdict.RUN_ERROR, reply.reason)
        self.disturbances.append(reply.is_disturbed)
        return reply.samples_ms

    def knows(self, key: str) -> bool:
        """Whether the process that runs now has checked it."""
        self._keep_current()
        return self._client.is_alive and key in self._known

    def forget(self, key: str) -> None:
        """Have the process drop a program that will not be timed again."""
        if self.knows(key):
            self._known.discard(key)
            with suppress(TrialFailedError, RunnerLostError):
                self._ask(lambda: self._client.request(jobs.ForgetJob((key,)), FORGET_TIMEOUT_S))

    def close(self) -> None:
        """End the process, or keep it for the next search if it is as good as new."""
        is_first = self._is_trusted and self._client.num_starts == self._first_start
        self._place.end_runner(self._client, is_as_new=is_first and self._release())

    def _release(self) -> bool:
        """Have the process drop all it holds; whether it did."""
        self._client.forget_preparation()
        with suppress(ChildError, ValueError):
            is_ready = self._client.is_ready
            return is_ready and self._client.request(jobs.ReleaseJob(), RELEASE_TIMEOUT_S) is None
        return False

    def _keep_current(self) -> None:
        """What an earlier process knew is lost."""
        if self._known_start != self._client.num_starts:
            self._known.clear()
            self._known_start = self._client.num_starts

    def _ask(self, request: Callable[[], Any]) -> Any:
        self._await_ready()
        try:
            return request()
        except (ChildTimeout, ChildDied) as failure:
            verdict = Verdict.HUNG if isinstance(failure, ChildTimeout) else Verdict.CRASHED
            raise TrialFailedError(verdict, failure.reason) from failure
        except ChildUnavailable as failure:
            if self._deadline.is_past:
                raise NoTimeError("the budget is used up") from failure
            raise RunnerLostError(str(failure)) from failure

    def _await_ready(self) -> None:
        """Wait for a process that is starting, but not beyond the end of the search."""
        client, deadline = self._client, self._deadline
        if client.is_ready:
            return
        if client.num_starts > 1 and deadline.cap(RESTART_S) < RESTART_S:
            raise NoTimeError("there is no time to start a runner again")
        client.start_timeout_s = deadline.cap(START_TIMEOUT_S)
        try:
            client.await_ready()
        except ChildError as failure:
            # If there is time, the request will try once more and say what is wrong.
            if deadline.is_past:
                raise NoTimeError("the budget is used up") from failure


class JointRunner:
    """Several workloads as one: a candidate must be right on all, and its time is one number."""

    def __init__(
        self, runners: Sequence[RunnerClient], aggregate: Callable[[Sequence[float]], float]
    ) -> None:
        self._runners = runners
        self._aggregate = aggregate
        self.weights = [1.0] * len(runners)
        """Times of each workload are divided by these."""

    def check(self, emitted: EmittedCandidate, timeout_s: float) -> jobs.CheckReply:
        """The first reply that is not OK, else the joint one."""
        replies: list[jobs.CheckReply] = []
        for number, (runner, job) in enumerate(zip(self._runners, emitted.checks)):
            reply = runner.check(job, timeout_s)
            if reply.verdict is not Verdict.OK:
                where = f" (workload {number})" if len(self._runners) > 1 else ""
                return replace(reply, reason=f"{reply.reason}{where}")
            replies.append(reply)
        return replace(replies[0], first_ms=self._join([reply.first_ms for reply in replies]))

    def time(self, keys: Sequence[str], repeats: int, timeout_s: float) -> Samples:
        """The n-th sample of a candidate is made of its n-th samples on all workloads."""
        if len(self._runners) == 1 and self.weights == [1.0]:
            return self._runners[0].time(keys, repeats, timeout_s)
        per_runner = [runner.time(keys, repeats, timeout_s) for runner in self._runners]
        return tuple(tuple(map(self._join, zip(*series))) for series in zip(*per_runner))

    @property
    def disturbances(self) -> tuple[int, int]:
        """Requests for times so far during which others had the cores, and all of them."""
        found = [one for runner in self._runners for one in runner.disturbances]
        return sum(found), len(found)

    def knows(self, key: str) -> bool:
        """Whether all know it."""
        return all(runner.knows(key) for runner in self._runners)

    def forget(self, key: str) -> None:
        """Drop it everywhere."""
        for runner in self._runners:
            runner.forget(key)

    def time_apart(self, key: str, repeats: int, timeout_s: float) -> list[float]:
        """The median of a candidate on each workload, in milliseconds."""
        return [median(runner.time([key], repeats, timeout_s)[0]) for runner in self._runners]

    def _join(self, times_ms: Sequence[float]) -> float:
        return self._aggregate([time / weight for time, weight in zip(times_ms, self.weights)])


def geomean(times_ms: Sequence[float]) -> float:
    """The geometric mean; 0 if any is."""
    return geometric_mean(times_ms) if min(times_ms) > 0.0 else 0.0


AGGREGATIONS: Mapping[str, Callable[[Sequence[float]], float]] = {"geomean": geomean, "max": max}


@dataclass
class _Pending:
    """A candidate of which some programs are still being built."""

    emitted: EmittedCandidate
    num_left: int
    replies: list[jobs.BuildReply] = field(default_factory=list[jobs.BuildReply])


class PoolBuilder:
    """A builder that works through the pool of a place, ``num_jobs`` programs at a time."""

    def __init__(self, options: TuneOptions, needs: TuningNeeds, place: Place) -> None:
        self.num_jobs, self._place = place.num_jobs(options), place
        self._pool = place.start_pool(options, needs)
        self.first_done_at: float | None = None
        """When the first program was built, by ``time.monotonic``."""
        self._pending: dict[str, _Pending] = {}

    def submit(self, emitted: EmittedCandidate) -> None:
        """Queue one build for each program of a candidate."""
        self._pending[emitted.key] = _Pending(emitted, len(emitted.programs))
        for program in emitted.programs:
            self._pool.submit(emitted.key, program)

    def collect(self, timeout_s: float) -> Sequence[tuple[EmittedCandidate, jobs.BuildReply]]:
        """Candidates whose programs are all built, or failed."""
        done: list[tuple[EmittedCandidate, jobs.BuildReply]] = []
        for outcome in self._pool.wait(timeout_s):
            if self.first_done_at is None:
                self.first_done_at = outcome.moment
            pending = self._pending[outcome.key]
            pending.replies.append(read_build(outcome))
            pending.num_left -= 1
            if not pending.num_left:
                del self._pending[outcome.key]
                done.append((pending.emitted, _merge(pending.replies)))
        return done

    @property
    def num_pending(self) -> int:
        """Candidates that were not collected."""
        return len(self._pending)

    def close(self) -> None:
        """Drop what is pending; the pool goes back to its place."""
        self._pending.clear()
        self._pool.cancel_all()
        self._place.end_pool(self._pool)


def read_build(outcome: BuildOutcome) -> jobs.BuildReply:
    """The reply of a build process, whatever it was."""
    reply = outcome.reply
    if isinstance(reply, jobs.BuildReply):
        return reply
    if isinstance(reply, ErrorReply):
        return jobs.BuildReply(Verdict.BUILD_ERROR, reply.reason, outcome.seconds)
    is_late = isinstance(reply, ChildTimeout) and reply.stage == "job"
    # A process that died may have been the machine's fault: another search tries again.
    verdict = Verdict.BUILD_TIMEOUT if is_late else Verdict.CRASHED
    return jobs.BuildReply(verdict, f"build: {reply}", outcome.seconds)


def _merge(replies: Sequence[jobs.BuildReply]) -> jobs.BuildReply:
    """The first failure, or all that is known of the programs together."""
    failed = [reply for reply in replies if reply.verdict is not Verdict.OK]
    if failed or len(replies) == 1:
        return (failed or list(replies))[0]
    used = [astuple(reply.resources) for reply in replies]
    most = [max((n for n in column if n is not None), default=None) for column in zip(*used)]
    seconds = sum(reply.seconds for reply in replies)
    return jobs.BuildReply(Verdict.OK, "", seconds, Resources(*most))
