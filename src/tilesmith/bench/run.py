"""Runs jobs, each in its own process, and has every row on disk before the next begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tilesmith.bench.journal import JournalWriter
from tilesmith.bench.listener import Listener, SafeListener
from tilesmith.bench.plan import Job, Options
from tilesmith.bench.processes import WorkerProcesses
from tilesmith.bench.resume import describe_run, kept_rows
from tilesmith.bench.row import Row
from tilesmith.bench.scratch import scratch_folder
from tilesmith.bench.supervisor import Supervisor


def run_plan(jobs: Sequence[Job], options: Options, listener: Listener | None = None) -> list[Row]:
    """The rows of all jobs in their order, those kept from an earlier run included.

    Raises PlanError where the file of rows cannot be gone on with. Whatever an implementation does
    is a row; Ctrl-C ends the run, and what has a row stays on disk.
    """
    rows = kept_rows(jobs, options)
    told = SafeListener([] if listener is None else [listener])
    with _file_of_rows(options) as write, _supervisor(options) as supervisor:
        for job in jobs:
            if job.key in rows:
                continue
            told.started(job)
            row = rows[job.key] = supervisor.run(job)
            write(row)
            told.finished(row)
    ordered = [rows[job.key] for job in jobs]
    told.done(ordered)
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
