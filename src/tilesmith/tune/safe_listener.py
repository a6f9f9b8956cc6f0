"""A listener that keeps a search safe from the mistakes of the listeners behind it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from tilesmith.store.outcome import Outcome
from tilesmith.tune.listener import Generation, Listener, Progress, SearchStart
from tilesmith.tune.result import Final, TuneResult

LOG = logging.getLogger("tilesmith.autotune")


class SafeListener:
    """Passes everything on; a listener that raises is logged and not told any more."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self._listeners = list(listeners)

    def on_start(self, start: SearchStart) -> None:
        """Pass on."""
        self._tell(lambda listener: listener.on_start(start))

    def on_outcome(self, outcome: Outcome, progress: Progress) -> None:
        """Pass on."""
        self._tell(lambda listener: listener.on_outcome(outcome, progress))

    def on_generation(self, generation: Generation) -> None:
        """Pass on."""
        self._tell(lambda listener: listener.on_generation(generation))

    def on_finals(self, final: Final) -> None:
        """Pass on."""
        self._tell(lambda listener: listener.on_finals(final))

    def on_end(self, result: TuneResult) -> None:
        """Pass on."""
        self._tell(lambda listener: listener.on_end(result))

    def _tell(self, say: Callable[[Listener], Any]) -> None:
        self._listeners = [listener for listener in self._listeners if _try(say, listener)]


def _try(say: Callable[[Listener], Any], listener: Listener) -> bool:
    try:
        say(listener)
    except Exception:  # a report must never end a search
        LOG.warning("a report of the search failed and is left out", exc_info=True)
        return False
    return True
