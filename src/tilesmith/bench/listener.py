"""Who is told while a benchmark runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tilesmith.bench.plan import Job
from tilesmith.bench.row import Row

LOG = logging.getLogger("tilesmith.bench")


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


class SafeListener:
    """Passes everything on until the listener behind it raises: a report must not end a run."""

    def __init__(self, listener: Listener | None) -> None:
        self._listener = listener

    def started(self, job: Job) -> None:
        """Pass on."""
        self._tell(lambda listener: listener.started(job))

    def finished(self, row: Row) -> None:
        """Pass on."""
        self._tell(lambda listener: listener.finished(row))

    def done(self, rows: Sequence[Row]) -> None:
        """Pass on."""
        self._tell(lambda listener: listener.done(rows))

    def _tell(self, say: Callable[[Listener], Any]) -> None:
        if self._listener is None:
            return
        try:
            say(self._listener)
        except (Exception, SystemExit):
            # A console whose pipe has been closed asks for the end of the program.
            self._listener = None
            LOG.warning("the progress display failed and is left out", exc_info=True)
