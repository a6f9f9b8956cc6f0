"""Who is told while a benchmark runs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from tilesmith.bench.plan import Job
from tilesmith.bench.row import Row
from tilesmith.lab.listeners import SafeListeners


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
