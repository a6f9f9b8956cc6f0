"""One build in a process of its own: a fork of the build server, or a fresh process without fork.

Both have ``channel``, on which the payload of the reply arrives, and ``death``, ``hang`` and
``end``, after which nothing of the process is left.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import traceback
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from time import monotonic, sleep
from typing import Any, Protocol

from tilesmith.tune.processes.child import EXIT_GRACE_S, KILL_GRACE_S, STACK_DUMP_S, ChildProcess
from tilesmith.tune.processes.failures import ChildDied, ChildError, ChildTimeout
from tilesmith.tune.processes.frames import Channel, decode, encode
from tilesmith.tune.processes.output_log import OutputLog
from tilesmith.tune.processes.serve import Handler, answer, leave
from tilesmith.tune.processes.start import die_with_parent, watch_parent

REAP_INTERVAL_S = 0.005
ONE_BUILD = "tilesmith.tune.processes.build_once"


class BuildJob(Protocol):
    """A build that runs."""

    started: float

    @property
    def channel(self) -> Channel:
        """Where its reply arrives."""
        ...

    def take_reply(self) -> bytes | None:
        """The payload of the reply, if it is there; as ``Channel.take``."""
        ...

    def failure(self, timeout_s: float | None) -> ChildError:
        """End it and say how it failed: without a timeout it has died."""
        ...

    def end(self) -> None:
        """Kill it and all it has started."""
        ...

    def trim(self) -> None:
        """Keep its log short."""
        ...


def import_function(name: str) -> Handler:
    """The function of ``module:name``."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


def build_one(request: tuple[str, bytes]) -> Any:
    """The reply to the payload of a job, by a function imported for it."""
    name, payload = request
    return import_function(name)(decode(payload))


class ForkedJob:
    """A fork of this process, which must have a single thread."""

    def __init__(self, function: Handler, payload: bytes, others: Iterable[Channel]) -> None:
        ours, theirs = socket.socketpair()
        self.channel = Channel(ours)
        self.log = OutputLog()
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
            _run_fork(server, self.log, Channel(theirs), (function, payload))
        theirs.close()
        with suppress(OSError):
            os.setpgid(self._pid, self._pid)
        self._exit_code: int | None = None

    def take_reply(self) -> bytes | None:
        """The payload of the reply, if it is there."""
        return self.channel.take()

    def failure(self, timeout_s: float | None) -> ChildError:
        """End it and say how it failed."""
        if timeout_s is None:
            self._reap(EXIT_GRACE_S)
        else:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGUSR1)
            sleep(STACK_DUMP_S)
        tail = self.log.tail()
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

    def trim(self) -> None:
        """Keep its log short."""
        self.log.trim()

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
        self.log.close()


def _run_fork(server: int, log: OutputLog, channel: Channel, task: tuple[Handler, bytes]) -> None:
    """Do a build in the fork; never returns to the server's code."""
    exit_code = 1
    try:
        os.setpgid(0, 0)
        if not die_with_parent(server):
            watch_parent(server)
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
    """A fresh process, which imports all it needs itself."""

    def __init__(self, function: str, payload: bytes, is_bare: bool) -> None:
        self.started = monotonic()
        self._child = ChildProcess(ONE_BUILD, is_bare=is_bare)
        self._child.start()
        self._child.channel.post(encode((function, payload)))
        self._is_up = False

    @property
    def channel(self) -> Channel:
        """Where its reply arrives."""
        return self._child.channel

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

    def trim(self) -> None:
        """Its log is trimmed with its death."""
