"""Processes that are kept for a while after a search: the next one need not start its own.

Only what would be started in just the same way is handed out again. Nothing outlives this process:
what is parked ends when it is not needed for long, or with this process like any child.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from tilesmith.settings import child_environment

PATIENCE_S = 60.0


class Parkable(Protocol):
    """A process, or what owns one."""

    @property
    def is_ready(self) -> bool:
        """Whether it runs and answers."""
        ...

    def close(self) -> None:
        """End it."""
        ...


@dataclass(frozen=True)
class Origin:
    """What a process was started as: one of equal origin does the same."""

    kind: str
    details: Hashable
    environment: frozenset[tuple[str, str]]
    import_path: tuple[str, ...]


def origin_of(kind: str, details: Hashable, changes: Mapping[str, str]) -> Origin:
    """The origin of a process that is started now, with these changes of the environment."""
    environment = frozenset(child_environment(changes).items())
    return Origin(kind, details, environment, tuple(map(str, sys.path)))


@dataclass(frozen=True, eq=False)
class _Place:
    origin: Origin
    process: Parkable
    timer: threading.Timer


class Standby:
    """Holds idle processes."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self.patience_s = patience_s
        """How long a process waits; 0: none does."""
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._places: list[_Place] = []

    def take(self, origin: Origin) -> Any:
        """A process of this origin, or None; then others of its kind are ended: times change."""
        self._leave_after_fork()
        with self._lock:
            own = [place for place in self._places if place.origin == origin]
            kind = [place for place in self._places if place.origin.kind == origin.kind]
            leaving = own[:1] or kind
            self._places = [place for place in self._places if place not in leaving]
        for place in leaving:
            place.timer.cancel()
            if own and place.process.is_ready:
                return place.process
            place.process.close()
        return None

    def park(self, origin: Origin, process: Parkable) -> None:
        """Keep a process that is not needed now, or end it."""
        self._leave_after_fork()
        if self.patience_s <= 0 or not process.is_ready:
            process.close()
            return
        timer = threading.Timer(self.patience_s, self._expire, [process])
        timer.daemon = True
        try:
            timer.start()
        except RuntimeError:  # the interpreter is ending
            process.close()
            return
        with self._lock:
            self._places.append(_Place(origin, process, timer))

    def close(self) -> None:
        """End all that are here."""
        self._leave_after_fork()
        with self._lock:
            leaving, self._places = self._places, []
        for place in leaving:
            place.timer.cancel()
            place.process.close()

    def _expire(self, process: Parkable) -> None:
        with self._lock:
            leaving = [place for place in self._places if place.process is process]
            self._places = [place for place in self._places if place not in leaving]
        for place in leaving:
            place.process.close()

    def _leave_after_fork(self) -> None:
        """In a fork of the owner: its children are not ours, not even to end them."""
        if self._owner != os.getpid():
            self._owner, self._lock, self._places = os.getpid(), threading.Lock(), []


@cache
def process_standby() -> Standby:
    """That of this process."""
    return Standby()
