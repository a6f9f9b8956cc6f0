"""A child process that is asked one thing at a time and may die or hang at any of them.

It runs a module of its own, never the user's ``__main__``, in a session of its own; nothing of it
is left when it is closed, when its parent ends, or when the parent is killed.
"""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from typing_extensions import Self, override

from tilesmith.lab.processes import channel
from tilesmith.lab.processes.spawned import SpawnedProcess

START_TIMEOUT_S = 120.0
TICK_S = 0.2
"""How often a wait looks at the log's length and for a death that no closed socket shows."""
EXIT_GRACE_S = 1.0
"""For a process that is ending: its own exit code says more than that of our signal."""


@dataclass(eq=False)
class ChildProcess:
    """Runs ``module``, which ends in ``serve(handler)``, and asks it."""

    module: str
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """Added to this process's; the child's own temporary folder is made in its ``TMPDIR``."""
    start_timeout_s: float = START_TIMEOUT_S
    is_bare: bool = False
    """Whether to leave out the package's ``__init__``: it starts sooner without torch."""
    arguments: Sequence[str] = ()
    """Stand in its ``sys.argv`` from position 2."""
    num_starts: int = field(default=0, init=False)
    ready_at: float = field(default=0.0, init=False)
    """When it came up, by ``time.monotonic``."""
    _process: SpawnedProcess | None = field(default=None, init=False)
    _is_ready: bool = field(default=False, init=False)
    _sent_ahead: tuple[object, int] | None = field(default=None, init=False)
    """A job whose reply was not yet asked for, and the number of the process that has it."""
    _ready_by: float = field(default=0.0, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def start(self) -> None:
        """Start it if it does not run. Returns at once; the first request waits until it is up."""
        if self.is_alive:
            return
        self.kill()
        command = [self.module, *self.arguments]
        self._process = SpawnedProcess(command, self.environment, is_bare=self.is_bare)
        self._ready_by = monotonic() + self.start_timeout_s
        self.num_starts += 1

    def await_ready(self) -> None:
        """Wait until it has imported what it needs; raises ChildDied or ChildTimeout."""
        self.start()
        try:
            while not self._is_ready:
                self._step(TICK_S)
        except BaseException:
            self.kill()
            raise

    def send_ahead(self, job: object) -> None:
        """Let it begin with a job as soon as it is up; the next request must be for this object."""
        self.start()
        self.channel.post(channel.encode(job))
        self._sent_ahead = (job, self.num_starts)

    def request(self, job: object, timeout_s: float) -> Any:
        """The reply to a job; an ErrorReply where the handler raised, what is in a LastReply.

        Raises ChildDied or ChildTimeout. Whatever is raised, Ctrl-C included, the child is gone
        then, and the next request starts a new one. Starting does not count against the time.
        """
        encoded = channel.encode(job)
        with self._lock:
            self.await_ready()
            try:
                if not self._is_sent_ahead(job):
                    self.channel.post(encoded)
                payload = self.poll(timeout_s)
                if payload is None:
                    raise self.failure(timeout_s)
                reply = channel.read_reply(payload)
            except BaseException:
                self.kill()
                raise
            if isinstance(reply, channel.LastReply):
                self.kill()
                return reply.reply
            return reply

    def poll(self, timeout_s: float) -> bytes | None:
        """The next frame it sends once it is up; None after the timeout, which does not kill it."""
        deadline = monotonic() + timeout_s
        while (payload := self._step(min(TICK_S, deadline - monotonic()))) is None:
            if monotonic() >= deadline:
                return None
        return payload

    @property
    def channel(self) -> channel.Channel:
        """For frames that are not a request; posting to a child that has ended does nothing."""
        return self._running().channel

    @property
    def is_alive(self) -> bool:
        """Whether its process was started and has not ended."""
        return self._process is not None and self._process.is_running

    @property
    def is_ready(self) -> bool:
        """Whether it runs and has said that it is up."""
        return self._is_ready and self.is_alive

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return self._process.popen.pid if self._process is not None and self.is_alive else None

    @property
    def log_tail(self) -> str:
        """The end of what it has written to stdout and stderr."""
        return self._process.log.tail() if self._process is not None else ""

    def kill(self) -> None:
        """End it and its group now; may be called at any time, also from another thread."""
        if self._process is not None:
            self._process.end()
        self._is_ready = False

    def close(self, grace_s: float = 0.0) -> None:
        """End it; with a grace, let it end by itself first. A later request starts it again."""
        if self._process is not None and self._process.end.alive and grace_s > 0:
            with suppress(channel.ChildError, subprocess.TimeoutExpired):
                self._step(0.0)  # it may have come up without anyone having asked
                self._process.channel.close()
                self._process.popen.wait(grace_s if self._is_ready else 0.0)
        self.kill()
        self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _step(self, timeout_s: float) -> bytes | None:
        """Wait a little for a frame. Raises when it has ended, or is not up when it should be."""
        process = self._running()
        try:
            payload = process.channel.receive(timeout_s)
        except TimeoutError:
            process.log.trim()
            if process.popen.poll() is not None:
                raise self.failure(None) from None
            if not self._is_ready and monotonic() >= self._ready_by:
                raise self.failure(self.start_timeout_s) from None
            return None
        except channel.ChannelClosed:
            raise self.failure(None, "closed its channel") from None
        except channel.NotAFrame as error:
            raise self.failure(None, f"something else writes to its channel: {error}") from None
        if self._is_ready:
            return payload
        first = channel.read_reply(payload)
        if isinstance(first, channel.Ready):
            self._is_ready, self.ready_at = True, first.moment
        return None

    def _is_sent_ahead(self, job: object) -> bool:
        """Whether this process has the job already."""
        ahead, self._sent_ahead = self._sent_ahead, None
        if ahead is None or ahead[1] != self.num_starts:
            return False
        if ahead[0] is not job:
            raise ValueError("another job was sent ahead")
        return True

    def _running(self) -> SpawnedProcess:
        if self._process is None:
            raise channel.ChildError(f"{self.module} is closed")
        return self._process

    def failure(
        self, timeout_s: float | None, note: str = ""
    ) -> channel.ChildDied | channel.ChildTimeout:
        """End it and say how it failed: it was waited for so long, or (None) it has died.

        ``note`` says why it must be taken for dead although it may still run.
        """
        process, stage = self._running(), "job" if self._is_ready else "start"
        if timeout_s is None:
            with suppress(subprocess.TimeoutExpired):
                process.popen.wait(EXIT_GRACE_S)  # it is ending: see how, before it is killed
        else:
            process.dump_stack()
        has_ended = process.popen.returncode is not None
        tail = process.log.tail()
        self.kill()
        if timeout_s is not None:
            return channel.ChildTimeout(timeout_s, tail, stage)
        exit_code = process.popen.returncode
        code = -signal.SIGTERM if exit_code is None else exit_code
        return channel.ChildDied(code, tail, stage, "" if has_ended else note)


@dataclass(eq=False)
class RestartingChild(ChildProcess):
    """Asks a runner and survives it.

    ChildDied and ChildTimeout are then about the job that was asked for; that a runner cannot be
    started or prepared any more is ChildUnavailable. What a runner was told by ``request`` is
    forgotten with its process: ``num_starts`` tells one process from the next.
    """

    _preparation: tuple[object, float] | None = field(default=None, init=False)
    _prepared_start: int = field(default=0, init=False)

    def prepare(self, job: object, timeout_s: float) -> Any:
        """Ask a job whose effect every later process needs too; it replaces the one before.

        It is repeated after a restart only if it was answered, and not with an ErrorReply.
        """
        self._preparation = None
        reply = self.request(job, timeout_s)
        if not isinstance(reply, channel.ErrorReply):
            self._preparation = (job, timeout_s)
        return reply

    def forget_preparation(self) -> None:
        """Let later processes start as if nothing had been prepared."""
        self._preparation = None

    @override
    def request(self, job: object, timeout_s: float) -> Any:
        """The reply to a job, by a prepared process."""
        failure = self._try_to_bring_up() and self._try_to_bring_up()
        if failure is not None:
            raise channel.ChildUnavailable(str(failure)) from failure
        try:
            reply = super().request(job, timeout_s)
        except (channel.ChildDied, channel.ChildTimeout):
            self.start()
            raise
        self.start()  # if it was its last reply, its successor imports while the caller goes on
        return reply

    def _try_to_bring_up(self) -> channel.ChildError | None:
        try:
            self.await_ready()
            if self._preparation is not None and self._prepared_start != self.num_starts:
                reply = super().request(*self._preparation)
                if isinstance(reply, channel.ErrorReply):
                    raise channel.ChildUnavailable(f"preparing it again failed: {reply.reason}")
            self._prepared_start = self.num_starts
        except channel.ChildError as failure:
            self.kill()
            return failure
        return None
