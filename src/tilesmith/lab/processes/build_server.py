"""A process that has imported the compiler once and forks for every build.

It reads jobs as they come, runs a few at a time, kills those that take too long, and sends each
outcome when it is there. It never unpickles a job or a reply itself, so no build can harm it.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import traceback
import warnings
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from time import monotonic, sleep
from typing import Any

from tilesmith.lab.processes import start
from tilesmith.lab.processes.channel import (
    BuildRequest,
    BuildResult,
    BuildSetup,
    CancelBuilds,
    Channel,
    ChannelClosed,
    ChildDied,
    ChildError,
    ChildTimeout,
    NotAFrame,
    Ready,
    decode,
    describe_error,
    encode,
    pump_any,
)
from tilesmith.lab.processes.child import EXIT_GRACE_S, ChildProcess
from tilesmith.lab.processes.serve import Handler, answer, leave, serve
from tilesmith.lab.processes.spawned import KILL_GRACE_S, STACK_DUMP_S, OutputLog

REAP_INTERVAL_S = 0.005
THIS_MODULE = "tilesmith.lab.processes.build_server"
ONE_BUILD = "one"
"""Argument of a process that does one build: where a server cannot fork."""
TICK_S = 0.5
"""How often logs are trimmed and the parent is looked for."""


def import_function(name: str) -> Handler:
    """The function of ``module:name``."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


def build_one(request: tuple[str, bytes]) -> Any:
    """The reply to the payload of a job, by a function imported for it."""
    name, payload = request
    return import_function(name)(decode(payload))


class ForkedJob:
    """A build that runs in a fork of this process, which must have a single thread."""

    def __init__(self, function: Handler, payload: bytes, others: Iterable[Channel]) -> None:
        ours, theirs = socket.socketpair()
        self.channel = Channel(ours)
        self._log = OutputLog()
        self.started = monotonic()
        server = os.getpid()
        try:
            self._pid = os.fork()
        except OSError:
            theirs.close()
            self._release()
            raise
        if self._pid == 0:
            for channel in (self.channel, *others):
                channel.close()
            _run_fork(server, self._log, Channel(theirs), (function, payload))
        theirs.close()
        with suppress(OSError):
            os.setpgid(self._pid, self._pid)
        self._exit_code: int | None = None

    def take_reply(self) -> bytes | None:
        """The payload of the reply, if it is there; as ``Channel.take``."""
        self._log.trim()
        return self.channel.take()

    def failure(self, timeout_s: float | None) -> ChildError:
        """End it and say how it failed: without a timeout it has died."""
        if timeout_s is None:
            self._reap(EXIT_GRACE_S)
        else:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGUSR1)
            sleep(STACK_DUMP_S)
        tail = self._log.tail()
        self.end()
        if timeout_s is None:
            return ChildDied(-signal.SIGKILL if self._exit_code is None else self._exit_code, tail)
        return ChildTimeout(timeout_s, tail)

    def end(self) -> None:
        """Kill its group, itself included, and reap it."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)
        self._reap(KILL_GRACE_S)
        self._release()

    def _reap(self, grace_s: float) -> None:
        deadline = monotonic() + grace_s
        while self._exit_code is None and monotonic() < deadline:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._exit_code = os.waitstatus_to_exitcode(status)
            else:
                sleep(REAP_INTERVAL_S)

    def _release(self) -> None:
        self.channel.close()
        self._log.close()


def _run_fork(server: int, log: OutputLog, channel: Channel, task: tuple[Handler, bytes]) -> None:
    """Do a build in the fork; never returns to the server's code."""
    exit_code = 1
    try:
        os.setpgid(0, 0)
        if not start.die_with_parent(server):
            start.watch_parent(server)
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        channel.send(answer(*task))
        exit_code = 0
    except SystemExit as error:
        exit_code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc(file=sys.stderr)
    finally:
        leave(exit_code)


class SpawnedJob:
    """A build in a fresh process, which imports all it needs itself; as ForkedJob."""

    def __init__(self, function: str, payload: bytes, is_bare: bool) -> None:
        self.started = monotonic()
        self._child = ChildProcess(THIS_MODULE, is_bare=is_bare, arguments=(ONE_BUILD,))
        self._child.start()
        self.channel = self._child.channel
        self.channel.post(encode((function, payload)))
        self._is_up = False

    def take_reply(self) -> bytes | None:
        """The payload of the reply, if it is there."""
        payload = self.channel.take()
        if payload is None or self._is_up:
            return payload
        self._is_up = True  # the first message says only that
        return self.channel.take()

    def failure(self, timeout_s: float | None) -> ChildError:
        """End it and say how it failed."""
        return self._child.failure(timeout_s)

    def end(self) -> None:
        """Kill its group, itself included, and reap it."""
        self._child.close()


BuildJob = ForkedJob | SpawnedJob


class BuildServer:
    """The jobs that wait and run, and the channel to the parent."""

    def __init__(self, channel: Channel, setup: BuildSetup, info: start.StartInfo) -> None:
        self._channel = channel
        self._setup = setup
        self._info = info
        self._function: Handler | None = None
        self._waiting: deque[BuildRequest] = deque()
        self._running: dict[int, BuildJob] = {}

    def load(self) -> None:
        """Import what builds need; without fork each build does that itself."""
        if not self._setup.can_fork:
            return
        for name in self._setup.preload:
            module, _, function = name.partition(":")
            with suppress(Exception):  # the build that needs it will say so
                found = import_module(module)
                if function:
                    getattr(found, function)()
        self._function = import_function(self._setup.function)
        # Python warns of threads, which may hold locks at a fork; those of libraries here idle.
        warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork")
        gc.freeze()

    def run(self) -> None:
        """Work until the parent has gone."""
        try:
            self._channel.post(encode(Ready(monotonic())))
            while not start.is_orphan(self._info.parent):
                self._take_messages()
                self._start_jobs()
                ages = (monotonic() - job.started for job in self._running.values())
                left = [max(0.0, self._setup.timeout_s - age) for age in ages]
                pump_any([self._channel, *self._job_channels()], min([TICK_S, *left]))
                self._collect()
        except (ChannelClosed, NotAFrame):
            pass
        finally:
            self._cancel()

    def _take_messages(self) -> None:
        while (payload := self._channel.take()) is not None:
            message: Any = decode(payload)
            if isinstance(message, BuildRequest):
                self._waiting.append(message)
            elif isinstance(message, CancelBuilds):
                self._cancel()

    def _start_jobs(self) -> None:
        while self._waiting and len(self._running) < self._setup.num_jobs:
            request = self._waiting.popleft()
            try:
                self._running[request.ticket] = self._start(request.payload)
            except (OSError, ChildError) as error:
                self._report(request.ticket, encode(describe_error(error)), 0.0)

    def _start(self, payload: bytes) -> BuildJob:
        if self._function is None:
            return SpawnedJob(self._setup.function, payload, self._info.is_bare)
        return ForkedJob(self._function, payload, [self._channel, *self._job_channels()])

    def _job_channels(self) -> list[Channel]:
        return [job.channel for job in self._running.values()]

    def _collect(self) -> None:
        for ticket, job in list(self._running.items()):
            outcome = self._outcome(job)
            if outcome is not None:
                seconds = monotonic() - job.started
                job.end()
                del self._running[ticket]
                self._report(ticket, outcome, seconds)

    def _outcome(self, job: BuildJob) -> bytes | ChildError | None:
        try:
            reply = job.take_reply()
        except ChannelClosed:
            return job.failure(None)
        except NotAFrame as error:
            failure = job.failure(None)
            if not isinstance(failure, ChildDied):
                return failure
            note = f"something else writes to its channel: {error}"
            return ChildDied(failure.exit_code, failure.log_tail, failure.stage, note)
        if reply is None and monotonic() - job.started >= self._setup.timeout_s:
            return job.failure(self._setup.timeout_s)
        return reply

    def _report(self, ticket: int, outcome: bytes | ChildError, seconds: float) -> None:
        self._channel.post(encode(BuildResult(ticket, outcome, seconds, monotonic())))

    def _cancel(self) -> None:
        self._waiting.clear()
        for job in self._running.values():
            job.end()
        self._running.clear()


def main() -> None:
    """Serve the parent that started this process."""
    if sys.argv[2:] == [ONE_BUILD]:
        serve(build_one)
    info = start.read_start_info()
    channel = Channel(start.inherited_socket(info))
    with suppress(ChannelClosed):
        server = BuildServer(channel, decode(channel.receive()), info)
        server.load()
        server.run()
    leave(0)


if __name__ == "__main__":
    main()
