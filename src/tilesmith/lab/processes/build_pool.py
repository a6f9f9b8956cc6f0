"""Builds in the background: jobs go in with a key, outcomes come out as they finish.

A build that crashes, hangs or runs out of memory is an outcome; so is one that the build server
was lost with twice. Pools and other processes are kept idle for a while, for whoever comes next.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from time import monotonic
from typing import Any, ClassVar, NamedTuple

from typing_extensions import Self

from tilesmith.lab.processes import channel
from tilesmith.lab.processes.child import ChildProcess
from tilesmith.settings import child_environment

SERVER = "tilesmith.lab.processes.build_server"
MAX_ATTEMPTS = 2
"""A job that the server was lost with so often is taken for the cause."""
SILENCE_GRACE_S = 30.0
"""Beyond a job's own timeout, which the server watches: then the server itself hangs."""
CLOSE_GRACE_S = 1.0
SINGLE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""A library's idle threads would not survive the server's forks."""
PATIENCE_S = 60.0
"""How long a process waits for the next search."""
StartParameters = tuple[Hashable, ...]


class BuildOutcome(NamedTuple):
    """What became of a job."""

    key: str
    reply: Any
    """What the function returned, an ErrorReply if it raised, else ChildDied or ChildTimeout."""
    seconds: float
    moment: float = 0.0
    """When it was done, by ``time.monotonic``."""


@dataclass
class _Waiting:
    key: str
    payload: bytes
    num_attempts: int = 0


class BuildPool:
    """Runs ``function`` (``module:name``, from job to reply) in up to ``jobs`` processes.

    The server starts in the background at once. ``preload`` names modules that it imports before
    the first build. ``is_bare`` is as of ChildProcess.
    """

    can_fork: ClassVar[bool] = sys.platform != "darwin"
    """On macOS system libraries do not survive a fork, and each build is a fresh process."""

    def __init__(
        self,
        function: str,
        *,
        jobs: int,
        timeout_s: float,
        preload: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        is_bare: bool = True,
    ) -> None:
        self._setup = channel.BuildSetup(
            function, max(1, jobs), timeout_s, tuple(preload), self.can_fork
        )
        changes = {**SINGLE_THREAD, **(environment or {})}
        self.server = ChildProcess(SERVER, changes, is_bare=is_bare)
        self._waiting: dict[int, _Waiting] = {}
        self._done: list[BuildOutcome] = []
        self._next_ticket = 0
        self._heard = monotonic()
        self._begin()

    @property
    def pending(self) -> tuple[str, ...]:
        """The keys of jobs whose outcome has not been handed out."""
        return (*(done.key for done in self._done), *(job.key for job in self._waiting.values()))

    @property
    def is_ready(self) -> bool:
        """Whether the server runs and has said that it is up."""
        return self.server.is_ready

    def submit(self, key: str, job: object) -> None:
        """Have a job done. It is pickled now; an object that cannot be is the caller's error."""
        self._waiting[self._next_ticket] = _Waiting(key, channel.encode(job))
        self._next_ticket += 1
        if len(self._waiting) == 1:
            self._heard = monotonic()
        if self.server.is_alive:
            self._post(self._next_ticket - 1)
        elif len(self._waiting) == 1:
            self._begin()  # with others waiting, its loss is still to be noticed

    def wait(self, timeout_s: float) -> list[BuildOutcome]:
        """The jobs done since the last call; waits for one at most so long, if there is any."""
        deadline = monotonic() + timeout_s
        while self._waiting:
            # What has arrived is taken together; waiting ends with the first.
            remaining = 0.0 if self._done else deadline - monotonic()
            if not self._receive(remaining) and (self._done or monotonic() >= deadline):
                break
        done, self._done = self._done, []
        return done

    def cancel_all(self) -> None:
        """Forget all jobs; what runs is killed."""
        self._waiting.clear()
        self._done.clear()
        if self.server.is_alive:
            self.server.channel.post(channel.encode(channel.CancelBuilds()))

    def close(self) -> None:
        """End the server and its builds."""
        self._waiting.clear()
        self._done.clear()
        self.server.close(CLOSE_GRACE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self) -> None:
        try:
            self.server.start()
        except channel.ChildError as failure:
            self._fail(list(self._waiting), failure)
            return
        self._heard = monotonic()
        self.server.channel.post(channel.encode(self._setup))
        for ticket in self._waiting:
            self._post(ticket)

    def _post(self, ticket: int) -> None:
        job = self._waiting[ticket]
        job.num_attempts += 1
        self.server.channel.post(channel.encode(channel.BuildRequest(ticket, job.payload)))

    def _receive(self, timeout_s: float) -> bool:
        """Take one outcome, or cope with the loss of the server; False if nothing came."""
        try:
            payload = self.server.poll(timeout_s)
        except channel.ChildError as failure:
            jobs = self._waiting.items()
            self._fail([t for t, job in jobs if job.num_attempts >= MAX_ATTEMPTS], failure)
            if self._waiting:
                self._begin()
            return True
        if payload is None:
            limit = self._setup.timeout_s + SILENCE_GRACE_S
            if self.server.is_ready and monotonic() - self._heard > limit:
                self.server.kill()  # it should have answered long ago
            return False
        self._heard = monotonic()
        result: channel.BuildResult = channel.decode(payload)
        job = self._waiting.pop(result.ticket, None)
        if job is not None:  # it was not cancelled meanwhile
            outcome = result.outcome
            reply = channel.read_reply(outcome) if isinstance(outcome, bytes) else outcome
            self._done.append(BuildOutcome(job.key, reply, result.seconds, result.moment))
        return True

    def _fail(self, tickets: list[int], failure: channel.ChildError) -> None:
        keys = [self._waiting.pop(ticket).key for ticket in tickets]
        self._done += [BuildOutcome(key, failure, 0.0) for key in keys]


def start_parameters(kind: str, details: Hashable, changes: Mapping[str, str]) -> StartParameters:
    """What a process is started as now, with these changes of the environment.

    One with equal parameters does the same.
    """
    environment = frozenset(child_environment(changes).items())
    return (kind, details, environment, *map(str, sys.path))


class _Idle(NamedTuple):
    parameters: StartParameters
    process: Any
    timer: threading.Timer


class IdleProcesses:
    """Processes, or what owns one, kept after a search: the next one need not start its own.

    Only what would be started in just the same way is handed out again. Each ends when it has
    waited too long, or with this process like any child.
    """

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
            kind = [idle for idle in self._idle if idle.parameters[0] == parameters[0]]
            leaving = own[:1] or kind
            self._idle = [idle for idle in self._idle if idle not in leaving]
        for idle in leaving:
            idle.timer.cancel()
            if own and idle.process.is_ready:
                return idle.process
            idle.process.close()
        return None

    def park(self, parameters: StartParameters, process: Any) -> None:
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

    def _end(self, process: Any) -> None:
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
