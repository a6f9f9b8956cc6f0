"""Runs all jobs of a plan, each in a process of its own; its row is on disk before the next begins.

Whatever happens to a process is a row. Each is a fork of a server that has imported what all need,
has touched no device and runs no threads; where forking is not safe or not wanted, each starts from
nothing. An interrupted run is gone on with: rows of its file count if they go with new ones. Files
between processes lie in a folder of the run; those of killed runs go at the next start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from datetime import datetime, timezone
from operator import methodcaller
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

import torch
from typing_extensions import Self

from tilesmith.bench import job_rows
from tilesmith.bench.implementations import ImplementationKind, preloaded_for
from tilesmith.bench.journal import JournalWriter, Results, check_is_ordinary, read_journal
from tilesmith.bench.plan import Job, Options, PlanError
from tilesmith.bench.row import Cause, Row, Status
from tilesmith.lab.folders import temporary_folder
from tilesmith.lab.processes.build_pool import BuildOutcome, BuildPool
from tilesmith.lab.processes.channel import ChildError, ErrorReply
from tilesmith.lab.reports import SafeListeners

MUST_AGREE = ("suite", "regime", "use_graph", "backend", "tune_budget_s", "use_cache")
"""Options without which rows of two runs cannot stand in one table."""
SPEEDUP = "speedup"
Key = tuple[str, int, str, str, str]
PREFIX = "tilesmith_bench_"


class Listener(Protocol):
    """Told of every job that runs; not of those whose rows are kept from an earlier run."""

    def started(self, job: Job) -> None:
        """A job begins."""

    def finished(self, row: Row) -> None:
        """A job has ended, and its row is on disk."""


class SafeListener(SafeListeners[Listener]):
    """A progress display must not end a run."""

    log = logging.getLogger("tilesmith.bench")
    failure = "the progress display failed and is left out"
    # A console whose pipe has been closed asks for the end of the program.
    caught = (Exception, SystemExit)


def run_plan(jobs: Sequence[Job], options: Options, listener: Listener | None = None) -> list[Row]:
    """The rows of all jobs in their order, those kept from an earlier run included.

    Raises PlanError where the file of rows cannot be gone on with. Whatever an implementation does
    is a row; Ctrl-C ends the run, and what has a row stays on disk.
    """
    rows = kept_rows(jobs, options)
    listeners = SafeListener([] if listener is None else [listener])
    with ExitStack() as stack:
        write = stack.enter_context(file_of_rows(options))
        folder = stack.enter_context(scratch_folder())
        processes = stack.enter_context(WorkerProcesses(options, folder))
        supervisor = Supervisor(options, processes, folder)
        for job in jobs:
            if job.key not in rows:
                listeners.tell(methodcaller("started", job))
                rows[job.key] = supervisor.run(job)
                write(rows[job.key])
                listeners.tell(methodcaller("finished", rows[job.key]))
    return [rows[job.key] for job in jobs]


@contextmanager
def file_of_rows(options: Options) -> Iterator[Callable[[Row], None]]:
    """What puts a row on disk, if there is a file."""
    if options.path is None:
        yield lambda row: None
        return
    with JournalWriter(options.path) as journal:
        if journal.is_new:
            journal.write_run(describe_run(options))
        yield journal.write


def describe_run(options: Options) -> dict[str, Any]:
    """The first line of a file: when, with what, and how."""
    chosen = {name: value for name, value in asdict(options).items() if name != "path"}
    started = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return {"started": started, "software": job_rows.software(), "options": chosen}


def kept_rows(jobs: Sequence[Job], options: Options) -> dict[Key, Row]:
    """Rows of these jobs that need not be made again; PlanError where the file does not fit."""
    if options.path is None:
        return {}
    check_is_ordinary(options.path)
    if not options.path.exists() or not options.path.stat().st_size:
        return {}
    if not options.resume:
        raise PlanError(f"{options.path} exists; go on with it by --resume, or name another file")
    journal = read_journal(options.path)
    if not journal.run and not journal.rows:
        raise PlanError(f"{options.path} has no rows of a benchmark; name another file")
    _check_agreement(journal, options)
    # Suites change: a number may stand for another input now.
    labels = {job.key: job.input_label for job in jobs}
    mine = [row for row in journal.rows if labels.get(row.key) == row.input_label]
    return {row.key: row for row in mine if _is_done(row, options)}


def _is_done(row: Row, options: Options) -> bool:
    if options.retry_disturbed and (row.is_disturbed or row.is_speedup_disturbed):
        return False
    done = {Status.OK, Status.UNAVAILABLE} | (set() if options.retry_failed else {Status.FAILED})
    return row.status in done


def _check_agreement(journal: Results, options: Options) -> None:
    before: Mapping[str, Any] = journal.run.get("options", {})
    now = {name: getattr(options, name) for name in MUST_AGREE}
    if SPEEDUP in options.metrics:
        # Without it the baseline is not timed, which does no harm to rows that have both.
        before = {**before, SPEEDUP: SPEEDUP in before.get("metrics", (SPEEDUP,))}
        now[SPEEDUP] = True
    before, now = {**before, **journal.run.get("software", {})}, {**now, **job_rows.software()}
    for name, value in now.items():
        if before.get(name, value) != value:
            was = f"{name} was {before[name]!r} and is {value!r} now"
            raise PlanError(f"{options.path}: {was}; such rows do not belong in one file")


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder for files between processes; PlanError where there can be none."""
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(temporary_folder(PREFIX))
        except OSError as error:
            raise PlanError(f"no temporary folder: {error}; set TMPDIR to one with room") from None
        yield folder


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
        self._environment = _worker_environment(options, folder)
        self._pools: dict[tuple[float, tuple[str, ...]], BuildPool] = {}
        """By the time that a request may take, and what is imported before it."""

    def ask(self, request: object, timeout_s: float, preload: tuple[str, ...] = ()) -> BuildOutcome:
        """What became of a request: a reply, an ErrorReply, or how its process died.

        ``preload`` is as of BuildPool.
        """
        if (timeout_s, preload) not in self._pools:
            how: dict[str, Any] = {"timeout_s": timeout_s, "preload": preload}
            self._pools[timeout_s, preload] = self.make_pool(FUNCTION, jobs=1, **how)
        pool = self._pools[timeout_s, preload]
        pool.submit("request", request)
        while True:
            outcomes = pool.wait(WAIT_S)
            if outcomes:
                return outcomes[0]

    def make_pool(self, function: str, **how: Any) -> BuildPool:
        """Processes for a function of requests; ``how`` is as of BuildPool."""
        return self._kind(function, **how, environment=self._environment, is_bare=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pool in self._pools.values():
            pool.close()


def _worker_environment(options: Options, folder: Path) -> Mapping[str, str]:
    """Variables of workers: the backend, threads, caches in which nothing is found from before."""
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


class Supervisor:
    """Runs jobs one after the other; ``folder`` is for files between processes.

    The reference of an input is worked out once, and dropped when the next one is needed.
    """

    def __init__(self, options: Options, processes: WorkerProcesses, folder: Path) -> None:
        self._options = options
        self._processes = processes
        self._progress = folder / "progress.json"
        self._reference = folder / "reference.pt"
        self._input_key: tuple[Any, ...] | None = None
        self._problem = ""
        """Why there is no reference."""

    def run(self, job: Job) -> Row:
        """The row of a job; nothing is raised but what ends the run itself."""
        row = job_rows.blank_row(job)
        if job.problem:
            cause = Cause.NOT_SUPPORTED if job.implementation.is_installed else Cause.NOT_INSTALLED
            return job_rows.unavailable(row, job.problem, cause)
        try:
            return self._measure(job, row)
        except Exception as error:
            return job_rows.harness_failed(row, f"{type(error).__name__}: {error}")

    def _measure(self, job: Job, row: Row) -> Row:
        reference, problem = self._find_reference(job)
        if problem and self._options.require_accuracy:
            return job_rows.harness_failed(row, f"no reference: {problem}")
        notes = [f"accuracy not checked: {problem}"] if problem else []
        is_eager = job.implementation.kind is ImplementationKind.EAGER
        with_baseline = "speedup" in self._options.metrics and not is_eager
        request = job_rows.Measure(job, self._options, self._progress, reference, with_baseline)
        row, stage = self._ask(request)
        if with_baseline and stage in (job_rows.Stage.BASELINE, job_rows.Stage.MEASURE):
            # It may be the baseline's fault, which is no failure of the implementation.
            notes.append(f"no speedup: with the baseline, {row.reason.splitlines()[0]}")
            row, _ = self._ask(replace(request, with_baseline=False))
        return replace(row, reason="; ".join(filter(None, [row.reason, *notes])))

    def _find_reference(self, job: Job) -> tuple[Path | None, str]:
        """The path of a job's reference, or none and why."""
        if job.input_key != self._input_key:
            self._reference.unlink(missing_ok=True)
            # Working it out takes more memory than the results, which a limit does not allow for.
            can_make_again = self._options.memory_limit_gb == 0
            request = job_rows.MakeReference(job, self._reference, can_make_again)
            reply = self._processes.ask(request, self._options.timeout_s).reply
            self._problem = reply.reason if isinstance(reply, ErrorReply) else ""
            if isinstance(reply, ChildError) and not self._reference.exists():
                how = str(reply).splitlines()[0]
                self._problem = f"{how} while working out the reference"
            self._input_key = job.input_key
        return (None if self._problem else self._reference), self._problem

    def _ask(self, request: job_rows.Measure) -> tuple[Row, job_rows.Stage | None]:
        """The row and, if the process died, the stage in which it did."""
        self._progress.unlink(missing_ok=True)
        job = request.job
        timeout_s = self._options.timeout_s
        if job.implementation.kind is ImplementationKind.TUNED:
            timeout_s += TUNING_FACTOR * self._options.tune_budget_s
        outcome = self._processes.ask(request, timeout_s, preloaded_for(job.implementation))
        reply, moment = outcome.reply, outcome.moment or monotonic()
        progress = job_rows.Progress.load(
            self._progress, job_rows.blank_row(job), moment - outcome.seconds
        )
        if isinstance(reply, Row):
            row = reply
        elif isinstance(reply, ChildError):
            row = job_rows.died(progress, reply, moment)
        elif isinstance(reply, ErrorReply):
            reason = f"{reply.reason}\n{reply.traceback_tail}".rstrip()
            row = job_rows.harness_failed(progress.row, reason)
        else:
            row = job_rows.harness_failed(progress.row, f"unexpected reply {reply!r}")
        stage = progress.stage if isinstance(reply, ChildError) else None
        return replace(row, seconds=outcome.seconds), stage
