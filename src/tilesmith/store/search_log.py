"""Lines of the logger "tilesmith.autotune"; to stderr where the user has not set up logging.

A stored winner is logged at a first call, before any tuner is loaded.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf

from typing_extensions import override

from tilesmith.diagnostics.wording import ms_text
from tilesmith.schedule.config import Config
from tilesmith.store.config_text import config_text

LOGGER_NAME = "tilesmith.autotune"


class SearchLog:
    """Writes lines of at least one level."""

    def __init__(self, level: int = logging.INFO, logger: logging.Logger | None = None) -> None:
        self._logger = logger or logging.getLogger(LOGGER_NAME)
        self._level = level

    def write(self, level: int, elapsed_s: float, *lines: str) -> None:
        """The lines as one record each; those after the first are indented."""
        if level < self._level or not lines:
            return
        with _output(self._logger, self._level):
            prefix = f"[{elapsed_s:.0f}s] "
            for line in lines:
                self._logger.log(level, "%s%s", prefix, line)
                prefix = " " * len(prefix)


@contextmanager
def _output(logger: logging.Logger, level: int) -> Iterator[None]:
    """Makes sure that records of a level come out somewhere; leaves the logger as it was."""
    before = logger.level
    handler = None if logger.hasHandlers() else _StderrHandler()
    if logger.getEffectiveLevel() > level:
        logger.setLevel(level)
    if handler is not None:
        logger.addHandler(handler)
    try:
        yield
    finally:
        logger.setLevel(before)
        if handler is not None:
            logger.removeHandler(handler)


class _StderrHandler(logging.Handler):
    """Writes to what is stderr at the moment: a progress bar replaces it while it is shown."""

    @override
    def emit(self, record: logging.LogRecord) -> None:
        # A closed stderr must not end a search; `handleError` would write to it again.
        with suppress(AttributeError, OSError, ValueError):
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()


def stored_text(kernel: str, config: Config, ms: float = inf) -> str:
    """The line about a Config that needed no search."""
    time = f" ({ms_text(ms)})" if ms < inf else ""
    return (
        f"{kernel or 'kernel'}: stored config{time}: {config_text(config)}; "
        "force=True (--force) searches again"
    )
