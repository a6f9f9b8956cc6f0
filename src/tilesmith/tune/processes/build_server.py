"""A process that has imported the compiler once and forks for every build.

It reads jobs as they come, runs a few at a time, kills those that take too long, and sends each
outcome when it is there. It never unpickles a job or a reply itself, so no build can harm it.
"""

from __future__ import annotations

import gc
import warnings
from collections import deque
from contextlib import suppress
from importlib import import_module
from time import monotonic
from typing import Any

from tilesmith.tune.processes.build_jobs import BuildJob, ForkedJob, SpawnedJob, import_function
from tilesmith.tune.processes.failures import ChildDied, ChildError
from tilesmith.tune.processes.frames import (
    Channel,
    ChannelClosed,
    NotAFrame,
    decode,
    encode,
    pump_any,
)
from tilesmith.tune.processes.messages import (
    BuildRequest,
    BuildResult,
    BuildSetup,
    CancelBuilds,
    Ready,
    describe_error,
)
from tilesmith.tune.processes.serve import Handler, leave
from tilesmith.tune.processes.start import Birth, inherited_socket, is_orphan, read_birth

TICK_S = 0.5
"""How often logs are trimmed and the parent is looked for."""


class BuildServer:
    """The jobs that wait and run, and the channel to the parent."""

    def __init__(self, channel: Channel, setup: BuildSetup, birth: Birth) -> None:
        self._channel = channel
        self._setup = setup
        self._birth = birth
        self._function: Handler | None = None
        self._waiting: deque[BuildRequest] = deque()
        self._running: dict[int, BuildJob] = {}

    def load(self) -> None:
        """Import what builds need; without fork each build does that itself."""
        if not self._setup.can_fork:
            return
        for name in self._setup.preload:
            with suppress(Exception):  # the build that needs it will say so
                _preload(name)
        self._function = import_function(self._setup.function)
        # Python warns of threads, which may hold locks at a fork; those of libraries here idle.
        warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork")
        gc.freeze()

    def run(self) -> None:
        """Work until the parent has gone."""
        try:
            self._channel.post(encode(Ready(monotonic())))
            while not is_orphan(self._birth.parent):
                self._take_messages()
                self._start_jobs()
                pump_any([self._channel, *self._job_channels()], self._patience())
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
            return SpawnedJob(self._setup.function, payload, self._birth.is_bare)
        return ForkedJob(self._function, payload, [self._channel, *self._job_channels()])

    def _job_channels(self) -> list[Channel]:
        return [job.channel for job in self._running.values()]

    def _patience(self) -> float:
        ages = (monotonic() - job.started for job in self._running.values())
        return min([TICK_S, *(max(0.0, self._setup.timeout_s - age) for age in ages)])

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
            return _with_note(job.failure(None), f"something else writes to its channel: {error}")
        if reply is None and monotonic() - job.started >= self._setup.timeout_s:
            return job.failure(self._setup.timeout_s)
        job.trim()
        return reply

    def _report(self, ticket: int, outcome: bytes | ChildError, seconds: float) -> None:
        self._channel.post(encode(BuildResult(ticket, outcome, seconds, monotonic())))

    def _cancel(self) -> None:
        self._waiting.clear()
        for job in self._running.values():
            job.end()
        self._running.clear()


def _with_note(failure: ChildError, note: str) -> ChildError:
    """The death of a job that was ended for a reason of ours."""
    if not isinstance(failure, ChildDied):
        return failure
    return ChildDied(failure.exit_code, failure.log_tail, failure.stage, note)


def _preload(name: str) -> None:
    module, _, function = name.partition(":")
    found = import_module(module)
    if function:
        getattr(found, function)()


def main() -> None:
    """Serve the parent that started this process."""
    birth = read_birth()
    channel = Channel(inherited_socket(birth))
    with suppress(ChannelClosed):
        server = BuildServer(channel, decode(channel.receive()), birth)
        server.load()
        server.run()
    leave(0)


if __name__ == "__main__":
    main()
