"""A child process that is asked one thing at a time and may die or hang at any of them.

It runs a module of its own, never the user's ``__main__``, in a session of its own; nothing of it
is left when it is closed, when its parent ends, or when the parent is killed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NamedTuple

from typing_extensions import Self

from tilesmith.settings import child_environment
from tilesmith.tune.processes.failures import ChildDied, ChildError, ChildTimeout
from tilesmith.tune.processes.frames import Channel, ChannelClosed, NotAFrame, encode
from tilesmith.tune.processes.messages import LastReply, Ready, read_reply
from tilesmith.tune.processes.output_log import OutputLog
from tilesmith.tune.processes.start import Birth

START = Path(__file__).with_name("start.py")
START_TIMEOUT_S = 120.0
TICK_S = 0.2
"""How often a wait looks at the log's length and for a death that no closed socket shows."""
EXIT_GRACE_S = 1.0
KILL_GRACE_S = 10.0
STACK_DUMP_S = 0.1


class ChildProcess:
    """Runs ``module``, which ends in ``serve(handler)``, and asks it.

    ``environment`` is added to this process's; the child's own temporary folder is made in its
    ``TMPDIR``. ``is_bare`` leaves out the package's ``__init__``: it starts sooner without torch.
    ``arguments`` stand in its ``sys.argv`` from position 2.
    """

    def __init__(
        self,
        module: str,
        *,
        environment: Mapping[str, str] | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
        is_bare: bool = False,
        arguments: Sequence[str] = (),
    ) -> None:
        self.module = module
        self.start_timeout_s = start_timeout_s
        self.num_starts = 0
        self._environment = dict(environment or {})
        self._is_bare = is_bare
        self._arguments = tuple(arguments)
        self._life: _Life | None = None
        self._is_ready = False
        self.ready_at = 0.0
        """When it came up, by ``time.monotonic``."""
        self._sent_ahead: tuple[object, int] | None = None
        """A job whose reply was not yet asked for, and the number of the process that has it."""
        self._ready_by = 0.0
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start it if it does not run. Returns at once; the first request waits until it is up."""
        if self._life is not None and self._life.is_running:
            return
        self.kill()
        command = _Command(self.module, self._arguments, self._is_bare)
        self._life = _Life(command, self._environment)
        self._is_ready = False
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
        self.channel.post(encode(job))
        self._sent_ahead = (job, self.num_starts)

    def request(self, job: object, timeout_s: float) -> Any:
        """The reply to a job; an ErrorReply where the handler raised, what is in a LastReply.

        Raises ChildDied or ChildTimeout. Whatever is raised, Ctrl-C included, the child is gone
        then, and the next request starts a new one. Starting does not count against the time.
        """
        payload = encode(job)
        with self._lock:
            self.await_ready()
            try:
                if not self._is_sent_ahead(job):
                    self.channel.post(payload)
                reply = self.poll(timeout_s)
                if reply is None:
                    raise self.failure(timeout_s)
                return self._unwrap(read_reply(reply))
            except BaseException:
                self.kill()
                raise

    def poll(self, timeout_s: float) -> bytes | None:
        """The next frame it sends once it is up; None after the timeout, which does not kill it."""
        deadline = monotonic() + timeout_s
        while (payload := self._step(min(TICK_S, deadline - monotonic()))) is None:
            if monotonic() >= deadline:
                return None
        return payload

    @property
    def channel(self) -> Channel:
        """For frames that are not a request; posting to a child that has ended does nothing."""
        return self._running().channel

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._life is not None and self._life.is_running

    @property
    def is_ready(self) -> bool:
        """Whether it runs and has said that it is up."""
        return self._is_ready and self.is_alive

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return self._life.process.pid if self._life is not None and self.is_alive else None

    @property
    def log_tail(self) -> str:
        """The end of what it has written to stdout and stderr."""
        return self._life.log.tail() if self._life is not None else ""

    def kill(self) -> None:
        """End it and its group now; may be called at any time, also from another thread."""
        if self._life is not None:
            self._life.end()
        self._is_ready = False

    def restart(self) -> None:
        """Kill it and start anew."""
        self.kill()
        self.start()

    def close(self, grace_s: float = 0.0) -> None:
        """End it; with a grace, let it end by itself first. A later request starts it again."""
        if self._life is not None and self._life.end.alive and grace_s > 0:
            with suppress(ChildError, subprocess.TimeoutExpired):
                self._step(0.0)  # it may have come up without anyone having asked
                self._life.channel.close()
                self._life.process.wait(grace_s if self._is_ready else 0.0)
        self.kill()
        self._life = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _step(self, timeout_s: float) -> bytes | None:
        """Wait a little for a frame. Raises when it has ended, or is not up when it should be."""
        life = self._running()
        try:
            payload = life.channel.receive(timeout_s)
        except TimeoutError:
            life.log.trim()
            if life.process.poll() is not None:
                raise self.failure(None) from None
            if not self._is_ready and monotonic() >= self._ready_by:
                raise self.failure(self.start_timeout_s) from None
            return None
        except ChannelClosed:
            raise self.failure(None, "closed its channel") from None
        except NotAFrame as error:
            raise self.failure(None, f"something else writes to its channel: {error}") from None
        if self._is_ready:
            return payload
        first = read_reply(payload)
        if isinstance(first, Ready):
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

    def _unwrap(self, reply: Any) -> Any:
        if not isinstance(reply, LastReply):
            return reply
        self.kill()
        return reply.reply

    def _running(self) -> _Life:
        if self._life is None:
            raise ChildError(f"{self.module} is closed")
        return self._life

    def failure(self, timeout_s: float | None, note: str = "") -> ChildDied | ChildTimeout:
        """End it and say how it failed: it was waited for so long, or (None) it has died.

        ``note`` says why it must be taken for dead although it may still run.
        """
        life, stage = self._running(), "job" if self._is_ready else "start"
        if timeout_s is None:
            with suppress(subprocess.TimeoutExpired):
                life.process.wait(EXIT_GRACE_S)  # it is ending: see how, before it is killed
        else:
            life.dump_stack()
        has_ended = life.process.returncode is not None
        tail = life.log.tail()
        self.kill()
        if timeout_s is not None:
            return ChildTimeout(timeout_s, tail, stage)
        return ChildDied(_exit_code(life.process), tail, stage, "" if has_ended else note)


class _Command(NamedTuple):
    """What a process runs."""

    module: str
    arguments: tuple[str, ...]
    is_bare: bool


class _Life:
    """One process, from its start to its end, with all that belongs to it."""

    def __init__(self, command: _Command, environment: Mapping[str, str]) -> None:
        if not sys.executable:
            raise ChildError("no child process can be started: sys.executable is not known")
        self.log = OutputLog()
        scratch = _make_scratch(environment.get("TMPDIR"))
        ours, theirs = socket.socketpair()
        self.channel = Channel(ours)
        changes = {**environment, **_scratch_variables(scratch), "PYTHONPATH": _python_path()}
        try:
            self.process = _spawn(command, theirs, self.log, changes)
        except OSError as error:
            _release(self.channel, self.log, scratch)
            raise ChildError(f"no child process can be started: {error}") from error
        finally:
            theirs.close()
        # Runs at the latest when this interpreter ends, and only once.
        self.end = weakref.finalize(
            self, _end_life, os.getpid(), self.process, self.channel, self.log, scratch
        )

    @property
    def is_running(self) -> bool:
        """Whether it was not ended and has not ended by itself."""
        return self.end.alive and self.process.poll() is None

    def dump_stack(self) -> None:
        """Have it write where it is to its log."""
        if sys.platform != "win32":
            with suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGUSR1)
                sleep(STACK_DUMP_S)


def _spawn(
    command: _Command, theirs: socket.socket, log: OutputLog, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    is_main = threading.current_thread() is threading.main_thread()
    birth = Birth(theirs.fileno(), os.getpid(), is_main, command.is_bare)
    is_windows = sys.platform == "win32"
    process = subprocess.Popen(
        [sys.executable, "-u", str(START), command.module, json.dumps(birth), *command.arguments],
        stdin=subprocess.PIPE if is_windows else subprocess.DEVNULL,
        stdout=log.fileno(),
        stderr=log.fileno(),
        pass_fds=() if is_windows else (theirs.fileno(),),
        start_new_session=not is_windows,
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        env=child_environment(environment),
    )
    if sys.platform == "win32" and process.stdin is not None:
        with process.stdin as pipe:
            pipe.write(theirs.share(process.pid))
    return process


def _end_life(
    owner: int,
    process: subprocess.Popen[bytes],
    channel: Channel,
    log: OutputLog,
    scratch: str,
) -> None:
    if owner != os.getpid():
        return  # in a fork of the parent: the child is not its own
    _kill_group(process)
    with suppress(subprocess.TimeoutExpired):
        # A process stuck in a driver cannot be killed; it must not hold up its parent.
        process.wait(KILL_GRACE_S)
    _release(channel, log, scratch)


def _release(channel: Channel, log: OutputLog, scratch: str) -> None:
    channel.close()
    log.close()
    if scratch:
        shutil.rmtree(scratch, ignore_errors=True)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and those it has started, even when it has just ended itself."""
    if sys.platform == "win32":
        process.kill()
        return
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _exit_code(process: subprocess.Popen[bytes]) -> int:
    return -signal.SIGTERM if process.returncode is None else process.returncode


def _python_path() -> str:
    """This process's import path, so that the child finds what was found here."""
    folders: list[str] = []
    for entry in sys.path:
        with suppress(OSError, TypeError):
            folders.append(os.fspath(entry) or str(Path.cwd()))
    return os.pathsep.join(folders)


def _make_scratch(parent: str | None) -> str:
    try:
        return tempfile.mkdtemp(prefix="tilesmith_", dir=parent)
    except OSError:
        return ""


def _scratch_variables(scratch: str) -> dict[str, str]:
    """Temporary files of a killed process go with its folder."""
    return dict.fromkeys(("TMPDIR", "TEMP", "TMP"), scratch) if scratch else {}
