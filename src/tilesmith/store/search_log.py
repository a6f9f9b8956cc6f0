"""Lines of the logger "tilesmith.autotune"; to stderr where the user has not set up logging.

A stored winner is logged at a first call, before any tuner is loaded.
"""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
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
        with _Output(self._logger, self._level):
            prefix = f"[{elapsed_s:.0f}s] "
            for line in lines:
                self._logger.log(level, "%s%s", prefix, line)
                prefix = " " * len(prefix)


class _Output:
    """Makes sure that records of a level come out somewhere; leaves the logger as it was."""

    def __init__(self, logger: logging.Logger, level: int) -> None:
        self._logger, self._level = logger, level
        self._before = logger.level
        self._handler = None if logger.hasHandlers() else _StderrHandler()

    def __enter__(self) -> None:
        if self._logger.getEffectiveLevel() > self._level:
            self._logger.setLevel(self._level)
        if self._handler is not None:
            self._logger.addHandler(self._handler)

    def __exit__(self, *_: object) -> None:
        self._logger.setLevel(self._before)
        if self._handler is not None:
            self._logger.removeHandler(self._handler)


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
