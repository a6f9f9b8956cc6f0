"""Logs by topic: loggers ``tilesmith.<topic>``, switched on by the setting ``logs``.

Records go where the user has set up logging; otherwise to stderr, under their topic. Nothing is
logged when a kernel is called that has run before.
"""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from time import perf_counter

from typing_extensions import override

from tilesmith.diagnostics.wording import ms_text
from tilesmith.setting_rules import log_levels

PACKAGE = "tilesmith"


def topic_log(topic: str) -> logging.Logger:
    """The logger of a topic."""
    return logging.getLogger(f"{PACKAGE}.{topic}")


def set_up_logs(text: str) -> None:
    """Switch on the topics that ``logs`` names, for all kernels of this process."""
    for topic, level in log_levels(text).items():
        log = topic_log(topic)
        log.setLevel(min(level, log.level or level))
    package = logging.getLogger(PACKAGE)
    if text and not any(isinstance(handler, TopicHandler) for handler in package.handlers):
        package.addHandler(TopicHandler())


class StderrHandler(logging.Handler):
    """Writes to what is stderr at the moment: a progress bar replaces it while it is shown."""

    @override
    def emit(self, record: logging.LogRecord) -> None:
        # A closed stderr must not end anything; `handleError` would write to it again.
        with suppress(AttributeError, OSError, ValueError):
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()


class TopicHandler(StderrHandler):
    """Names the topic of each line; silent where the user's own logging shows the record."""

    @override
    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:
            super().emit(record)

    @override
    def format(self, record: logging.LogRecord) -> str:
        return f"[{record.name.removeprefix(f'{PACKAGE}.')}] {super().format(record)}"


class Stopwatch:
    """Tells the time since it was made, or asked last."""

    def __init__(self) -> None:
        self._last = perf_counter()

    def lap(self) -> str:
        """How long it took since the last question, in milliseconds."""
        last, self._last = self._last, perf_counter()
        return ms_text(1e3 * (self._last - last))
