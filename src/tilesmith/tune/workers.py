"""The processes of one search: a build server, and for each case a runner.

A candidate is one build job for each of its programs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import Self

from tilesmith.backends.interface import TuningNeeds
from tilesmith.backends.table import BACKENDS
from tilesmith.lab.processes.build_pool import BuildOutcome, BuildPool
from tilesmith.lab.processes.channel import ChildTimeout, ErrorReply
from tilesmith.lab.processes.idle import StartParameters, idle_processes, start_parameters
from tilesmith.store.outcome import Resources, Verdict
from tilesmith.tune.case import Case
from tilesmith.tune.context import EmittedCandidate
from tilesmith.tune.jobs import BuildReply
from tilesmith.tune.limits import Deadline
from tilesmith.tune.options import TuneOptions
from tilesmith.tune.runner_clients import RunnerClient

BUILD_FUNCTION = "tilesmith.tune.runner.build:build_program"
POSTPONE_TORCH = "tilesmith.tune.runner.late_torch:postpone_torch"


@dataclass
class _Pending:
    """A candidate of which some programs are still being built."""

    emitted: EmittedCandidate
    num_left: int
    replies: list[BuildReply] = field(default_factory=list[BuildReply])


class PoolBuilder:
    """A builder that works through a pool of processes."""

    def __init__(self, pool: BuildPool, num_jobs: int, parameters: StartParameters) -> None:
        self._pool = pool
        self._num_jobs = num_jobs
        self._parameters = parameters
        self.first_done_at: float | None = None
        """When the first program was built, by ``time.monotonic``."""
        self._pending: dict[str, _Pending] = {}

    def submit(self, emitted: EmittedCandidate) -> None:
        """Queue one build for each program of a candidate."""
        self._pending[emitted.key] = _Pending(emitted, len(emitted.programs))
        for program in emitted.programs:
            self._pool.submit(emitted.key, program)

    def collect(self, timeout_s: float) -> Sequence[tuple[EmittedCandidate, BuildReply]]:
        """Candidates whose programs are all built, or failed."""
        done: list[tuple[EmittedCandidate, BuildReply]] = []
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

    @property
    def num_jobs(self) -> int:
        """How many programs are built at a time."""
        return self._num_jobs

    def close(self) -> None:
        """Drop what is pending; the server is kept for the next search, or ends."""
        self._pending.clear()
        self._pool.cancel_all()
        idle_processes().park(self._parameters, self._pool)


def start_builder(
    num_jobs: int | None, timeout_s: float, environment: Mapping[str, str], needs: TuningNeeds
) -> PoolBuilder:
    """A builder whose server starts in the background now, or was kept from before."""
    jobs = num_jobs or max(1, num_cores() - 1)
    preload = find_preloads(needs)
    parameters = start_parameters(
        "builder", (BUILD_FUNCTION, jobs, timeout_s, preload), environment
    )
    pool = idle_processes().take(parameters) or BuildPool(
        BUILD_FUNCTION,
        jobs=jobs,
        timeout_s=timeout_s,
        preload=preload,
        environment=environment,
    )
    return PoolBuilder(pool, jobs, parameters)


def find_preloads(needs: TuningNeeds) -> tuple[str, ...]:
    """What processes that build import, or call, before their jobs."""
    return (*((POSTPONE_TORCH,) if needs.builds_without_torch else ()), *needs.preloads)


def num_cores() -> int:
    """Processors that this process may use."""
    affinity: Any = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def read_build(outcome: BuildOutcome) -> BuildReply:
    """The reply of a build process, whatever it was."""
    reply = outcome.reply
    if isinstance(reply, BuildReply):
        return reply
    if isinstance(reply, ErrorReply):
        return BuildReply(Verdict.BUILD_ERROR, reply.reason, outcome.seconds)
    is_late = isinstance(reply, ChildTimeout) and reply.stage == "job"
    verdict = Verdict.BUILD_TIMEOUT if is_late else Verdict.BUILD_ERROR
    return BuildReply(verdict, str(reply), outcome.seconds)


def _merge(replies: Sequence[BuildReply]) -> BuildReply:
    """The first failure, or all that is known of the programs together."""
    failed = [reply for reply in replies if reply.verdict is not Verdict.OK]
    if failed or len(replies) == 1:
        return (failed or list(replies))[0]
    seconds = sum(reply.seconds for reply in replies)
    return BuildReply(Verdict.OK, "", seconds, _largest([r.resources for r in replies]))


def _largest(used: Sequence[Resources]) -> Resources:
    def most(name: str) -> int | None:
        known = [value for item in used if (value := getattr(item, name)) is not None]
        return max(known, default=None)

    return Resources(most("shared_bytes"), most("registers"), most("spills"))


class Workers:
    """Who builds and who runs candidates."""

    def __init__(self, cases: Sequence[Case], options: TuneOptions, deadline: Deadline) -> None:
        environment = {"TILESMITH_CACHE_DIR": str(options.cache_dir)}
        needs = BACKENDS.of(cases[0].bound.target).tuning
        self.runners: list[RunnerClient] = []
        with ExitStack() as stack:
            # Runners first: they take longest to come up.
            for case in cases:
                device = str(case.bound.device)
                runner = RunnerClient(environment, deadline, regime=options.regime, device=device)
                stack.callback(runner.close)
                self.runners.append(runner)
            self.builder = start_builder(
                options.build_jobs, options.build_timeout_s, environment, needs
            )
            stack.callback(self.builder.close)
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
