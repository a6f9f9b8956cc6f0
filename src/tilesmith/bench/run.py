"""Runs all jobs of a plan; each row is on disk before the next job begins.

An interrupted run is gone on with: rows of its file count if they go with new ones. Files between
processes lie in a folder of the run; folders of runs that were killed go at the next start.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from secrets import token_hex
from typing import Any, Protocol

from filelock import FileLock, Timeout

from tilesmith.bench.environment import software
from tilesmith.bench.journal import Journal, JournalWriter, check_is_ordinary, read_journal
from tilesmith.bench.plan import Job, Options, PlanError
from tilesmith.bench.row import Row, Status
from tilesmith.bench.supervisor import Supervisor, WorkerProcesses
from tilesmith.lab.listeners import SafeListeners

MUST_AGREE = ("suite", "regime", "use_graph", "backend", "tune_budget_s", "use_cache")
"""Options without which rows of two runs cannot stand in one table."""
SPEEDUP = "speedup"
Key = tuple[str, int, str, str, str]
PREFIX = "tilesmith_bench_"


class Listener(Protocol):
    """Told of every job that runs; not of those whose rows are kept from an earlier run."""

    def started(self, job: Job) -> None:
        """A job begins."""
        ...

    def finished(self, row: Row) -> None:
        """A job has ended, and its row is on disk."""
        ...

    def done(self, rows: Sequence[Row]) -> None:
        """All jobs have a row; those of an earlier run are among them."""
        ...


class SafeListener(SafeListeners[Listener]):
    """A progress display must not end a run."""

    log = logging.getLogger("tilesmith.bench")
    failure = "the progress display failed and is left out"
    # A console whose pipe has been closed asks for the end of the program.
    caught = (Exception, SystemExit)

    def started(self, job: Job) -> None:
        """Pass on."""
        self.tell(lambda listener: listener.started(job))

    def finished(self, row: Row) -> None:
        """Pass on."""
        self.tell(lambda listener: listener.finished(row))

    def done(self, rows: Sequence[Row]) -> None:
        """Pass on."""
        self.tell(lambda listener: listener.done(rows))


def run_plan(jobs: Sequence[Job], options: Options, listener: Listener | None = None) -> list[Row]:
    """The rows of all jobs in their order, those kept from an earlier run included.

    Raises PlanError where the file of rows cannot be gone on with. Whatever an implementation does
    is a row; Ctrl-C ends the run, and what has a row stays on disk.
    """
    rows = kept_rows(jobs, options)
    listeners = SafeListener([] if listener is None else [listener])
    with _file_of_rows(options) as write, _supervisor(options) as supervisor:
        for job in jobs:
            if job.key in rows:
                continue
            listeners.started(job)
            row = rows[job.key] = supervisor.run(job)
            write(row)
            listeners.finished(row)
    ordered = [rows[job.key] for job in jobs]
    listeners.done(ordered)
    return ordered


@contextmanager
def _supervisor(options: Options) -> Iterator[Supervisor]:
    with scratch_folder() as folder, WorkerProcesses(options, folder) as processes:
        yield Supervisor(options, processes, folder)


@contextmanager
def _file_of_rows(options: Options) -> Iterator[Callable[[Row], None]]:
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
    return {"started": started, "software": software(), "options": chosen}


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


def _check_agreement(journal: Journal, options: Options) -> None:
    before: dict[str, Any] = journal.run.get("options", {})
    now = {name: getattr(options, name) for name in MUST_AGREE}
    if SPEEDUP in options.metrics:
        # Without it the baseline is not timed, which does no harm to rows that have both.
        before = {**before, SPEEDUP: SPEEDUP in before.get("metrics", (SPEEDUP,))}
        now[SPEEDUP] = True
    before, now = {**before, **journal.run.get("software", {})}, {**now, **software()}
    for name, value in now.items():
        if before.get(name, value) != value:
            was = f"{name} was {before[name]!r} and is {value!r} now"
            raise PlanError(f"{options.path}: {was}; such rows do not belong in one file")


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder, removed in the end; what killed runs have left is removed before."""
    with ExitStack() as stack:
        try:
            folder = Path(tempfile.gettempdir()) / f"{PREFIX}{token_hex(6)}"
            stack.enter_context(_held(folder.with_suffix(".lock"), -1))
            folder.mkdir(mode=0o700)
        except OSError as error:
            raise PlanError(f"no temporary folder: {error}; set TMPDIR to one with room") from None
        try:
            _sweep(folder.parent, folder.stat().st_uid)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _held(lock_path: Path, timeout_s: float) -> Iterator[None]:
    """With the lock, whose file goes too in the end."""
    with FileLock(lock_path, timeout=timeout_s):
        try:
            yield
        finally:
            with suppress(OSError):  # some systems keep files that are open
                lock_path.unlink()


def _sweep(parent: Path, owner: int) -> None:
    """Remove the folders of this user whose lock nobody holds."""
    for lock_path in parent.glob(f"{PREFIX}*.lock"):
        with suppress(OSError, Timeout):
            if lock_path.is_symlink() or lock_path.stat().st_uid != owner:
                continue
            with _held(lock_path, 0):
                shutil.rmtree(lock_path.with_suffix(""), ignore_errors=True)
