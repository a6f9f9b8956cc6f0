"""Processes that are kept for a while after a search: the next one need not start its own.

Only what would be started in just the same way is handed out again. Nothing outlives this process:
what is parked ends when it is not needed for long, or with this process like any child.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Hashable, Mapping
from functools import cache
from typing import Any, NamedTuple, Protocol

from tilesmith.settings import child_environment

PATIENCE_S = 60.0
"""How long a process waits for the next search."""


class Parkable(Protocol):
    """A process, or what owns one."""

    @property
    def is_ready(self) -> bool:
        """Whether it runs and answers."""
        ...

    def close(self) -> None:
        """End the process and all it has started."""


class StartParameters(NamedTuple):
    """What a process was started as: one with equal parameters does the same."""

    kind: str
    details: Hashable


def start_parameters(kind: str, details: Hashable, changes: Mapping[str, str]) -> StartParameters:
    """Those of a process that is started now, with these changes of the environment."""
    environment = frozenset(child_environment(changes).items())
    return StartParameters(kind, (details, environment, *map(str, sys.path)))


class _Idle(NamedTuple):
    parameters: StartParameters
    process: Parkable
    timer: threading.Timer


class IdleProcesses:
    """Idle processes with what they were started as; each ends when it has waited too long."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self.patience_s = patience_s
        """How long a process waits; 0: none does."""
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._idle: list[_Idle] = []

    def take(self, parameters: StartParameters) -> Any:
        """A process started like this, or None; then others of its kind are ended: times change."""
        self._leave_after_fork()
        with self._lock:
            own = [idle for idle in self._idle if idle.parameters == parameters]
            kind = [idle for idle in self._idle if idle.parameters.kind == parameters.kind]
            leaving = own[:1] or kind
            self._idle = [idle for idle in self._idle if idle not in leaving]
        for idle in leaving:
            idle.timer.cancel()
            if own and idle.process.is_ready:
                return idle.process
            idle.process.close()
        return None

    def park(self, parameters: StartParameters, process: Parkable) -> None:
        """Keep a process that is not needed now, or end it."""
        self._leave_after_fork()
        if self.patience_s <= 0 or not process.is_ready:
            process.close()
            return
        timer = threading.Timer(self.patience_s, self._end, [process])
        timer.daemon = True
        try:
            timer.start()
        except RuntimeError:  # the interpreter is ending
            process.close()
            return
        with self._lock:
            self._idle.append(_Idle(parameters, process, timer))

    def close(self) -> None:
        """End all that are here."""
        self._leave_after_fork()
        for idle in list(self._idle):
            self._end(idle.process)

    def _end(self, process: Parkable) -> None:
        """End a process, unless it was handed out meanwhile."""
        with self._lock:
            leaving = [idle for idle in self._idle if idle.process is process]
            self._idle = [idle for idle in self._idle if idle not in leaving]
        for idle in leaving:
            idle.timer.cancel()
            idle.process.close()

    def _leave_after_fork(self) -> None:
        """In a fork of the owner: its children are not ours, not even to end them."""
        if self._owner != os.getpid():
            self._owner, self._lock, self._idle = os.getpid(), threading.Lock(), []


@cache
def idle_processes() -> IdleProcesses:
    """That of this process."""
    return IdleProcesses()
