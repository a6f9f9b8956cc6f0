"""Has jobs run in processes of their own and makes a row of whatever happens to them.

Each process is a fork of a server that has imported what all of them need, has touched no device
and runs no threads. Where forking is not safe or not wanted, each process starts from nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from typing_extensions import Self

from tilesmith.bench.implementations import ImplementationKind, preloaded_for
from tilesmith.bench.job_rows import (
    MakeReference,
    Measure,
    Progress,
    Stage,
    blank_row,
    died,
    harness_failed,
    unavailable,
)
from tilesmith.bench.plan import Job, Options
from tilesmith.bench.row import Cause, Row
from tilesmith.lab.processes.build_pool import BuildOutcome, BuildPool
from tilesmith.lab.processes.channel import ChildError, ErrorReply

FUNCTION = "tilesmith.bench.worker:answer"
WAIT_S = 60.0
"""One wait of many: the pool itself ends a job that hangs."""
TUNING_FACTOR = 3
"""A search may take so many times its budget before it is called a hang."""


class FreshPool(BuildPool):
    """Starts every process from nothing, which takes seconds."""

    can_fork = False


class WorkerProcesses:
    """Answers requests one at a time, each in a process of its own."""

    def __init__(self, options: Options, folder: Path) -> None:
        self._kind = FreshPool if options.use_fresh_processes else BuildPool
        self._variables = _variables(options, folder)
        self._pools: dict[tuple[float, tuple[str, ...]], BuildPool] = {}
        """By the time that a request may take, and what is imported before it."""

    def ask(self, request: object, timeout_s: float, preload: tuple[str, ...] = ()) -> BuildOutcome:
        """What became of a request: a reply, an ErrorReply, or how its process died.

        ``preload`` is as of BuildPool.
        """
        pool = self._pools.get((timeout_s, preload)) or self._start(timeout_s, preload)
        pool.submit("request", request)
        while True:
            outcomes = pool.wait(WAIT_S)
            if outcomes:
                return outcomes[0]

    def close(self) -> None:
        """End all processes."""
        for pool in self._pools.values():
            pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, timeout_s: float, preload: tuple[str, ...]) -> BuildPool:
        pool = self._kind(
            FUNCTION,
            jobs=1,
            timeout_s=timeout_s,
            preload=preload,
            environment=self._variables,
            is_bare=False,
        )
        self._pools[timeout_s, preload] = pool
        return pool


def _variables(options: Options, folder: Path) -> Mapping[str, str]:
    """Settings of workers: the backend, threads, caches in which nothing is found from before."""
    threads = str(torch.get_num_threads())
    found: dict[str, Any] = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    found["TMPDIR"] = str(folder)
    # Asking CUDA itself whether there is a device would make its forks unable to use it.
    found["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    if options.backend:
        found["TILESMITH_BACKEND"] = options.backend
    if not options.use_cache:
        found["TILESMITH_CACHE_DIR"] = str(folder / "cache")
        found["TRITON_CACHE_DIR"] = str(folder / "triton")
    return found


class References:
    """References of inputs, each worked out once and dropped when the next one is needed."""

    def __init__(self, processes: WorkerProcesses, folder: Path, options: Options) -> None:
        self._processes = processes
        self._path = folder / "reference.pt"
        self._timeout_s = options.timeout_s
        # Working it out takes more memory than the results, which a limit does not allow for.
        self._can_make_again = options.memory_limit_gb == 0
        self._key: tuple[Any, ...] | None = None
        self._problem = ""

    def find(self, job: Job) -> tuple[Path | None, str]:
        """The path of a job's reference, or none and why."""
        if job.input_key != self._key:
            self._path.unlink(missing_ok=True)
            self._problem = self._make(job)
            self._key = job.input_key
        return (None if self._problem else self._path), self._problem

    def _make(self, job: Job) -> str:
        request = MakeReference(job, self._path, self._can_make_again)
        reply = self._processes.ask(request, self._timeout_s).reply
        if isinstance(reply, ChildError):
            how = str(reply).splitlines()[0]
            return "" if self._path.exists() else f"{how} while working out the reference"
        return reply.reason if isinstance(reply, ErrorReply) else ""


class Supervisor:
    """Runs jobs one after the other; ``folder`` is for files between processes."""

    def __init__(self, options: Options, processes: WorkerProcesses, folder: Path) -> None:
        self._options = options
        self._processes = processes
        self._progress = folder / "progress.json"
        self._references = References(processes, folder, options)

    def run(self, job: Job) -> Row:
        """The row of a job; nothing is raised but what ends the run itself."""
        row = blank_row(job)
        if job.problem:
            cause = Cause.NOT_SUPPORTED if job.implementation.is_installed else Cause.NOT_INSTALLED
            return unavailable(row, job.problem, cause)
        try:
            return self._measure(job, row)
        except Exception as error:
            return harness_failed(row, f"{type(error).__name__}: {error}")

    def _measure(self, job: Job, row: Row) -> Row:
        reference, problem = self._references.find(job)
        if problem and self._options.require_accuracy:
            return harness_failed(row, f"no reference: {problem}")
        notes = [f"accuracy not checked: {problem}"] if problem else []
        is_eager = job.implementation.kind is ImplementationKind.EAGER
        with_baseline = "speedup" in self._options.metrics and not is_eager
        request = Measure(job, self._options, self._progress, reference, with_baseline)
        row, stage = self._ask(request)
        if with_baseline and stage in (Stage.BASELINE, Stage.MEASURE):
            # It may be the baseline's fault, which is no failure of the implementation.
            notes.append(f"no speedup: with the baseline, {row.reason.splitlines()[0]}")
            row, _ = self._ask(replace(request, with_baseline=False))
        return replace(row, reason="; ".join(filter(None, [row.reason, *notes])))

    def _ask(self, request: Measure) -> tuple[Row, Stage | None]:
        """The row and, if the process died, the stage in which it did."""
        self._progress.unlink(missing_ok=True)
        job = request.job
        preload = preloaded_for(job.implementation)
        outcome = self._processes.ask(request, self._timeout_s(job), preload)
        moment = outcome.moment or monotonic()
        started = moment - outcome.seconds
        progress = Progress.load(self._progress, blank_row(job), started)
        row, stage = _read(outcome.reply, progress, moment)
        return replace(row, seconds=outcome.seconds), stage

    def _timeout_s(self, job: Job) -> float:
        is_tuned = job.implementation.kind is ImplementationKind.TUNED
        return self._options.timeout_s + TUNING_FACTOR * self._options.tune_budget_s * is_tuned


def _read(reply: Any, progress: Progress, moment: float) -> tuple[Row, Stage | None]:
    if isinstance(reply, Row):
        return reply, None
    if isinstance(reply, ChildError):
        return died(progress, reply, moment), progress.stage
    reason = f"unexpected reply {reply!r}"
    if isinstance(reply, ErrorReply):
        reason = f"{reply.reason}\n{reply.traceback_tail}".rstrip()
    return harness_failed(progress.row, reason), None
