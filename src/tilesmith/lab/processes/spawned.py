"""One child process from its start to its end, and the log of what it writes.

The log is a nameless file that keeps only the end of the text.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from io import FileIO
from pathlib import Path
from time import sleep
from typing import BinaryIO, cast

from tilesmith.lab.folders import temporary_folder
from tilesmith.lab.processes.channel import Channel, ChildError
from tilesmith.lab.processes.start import StartInfo
from tilesmith.settings import child_environment

LIMIT_BYTES = 1 << 20
TAIL_BYTES = 1 << 14
SCRATCH_PREFIX = "tilesmith_child_"
START = Path(__file__).with_name("start.py")
KILL_GRACE_S = 10.0
STACK_DUMP_S = 0.1
"""For faulthandler to write the stack before the process is killed."""


class OutputLog:
    """A file to hand to a child; ``trim`` it now and then."""

    def __init__(self) -> None:
        self._file = _open_nameless()
        self._earlier = b""

    def fileno(self) -> int:
        """The descriptor to write to."""
        return self._file.fileno()

    def trim(self) -> None:
        """Drop all but the end of a long text."""
        if not self._file.closed and self._size() > LIMIT_BYTES:
            self._earlier = self._end()
            os.ftruncate(self._file.fileno(), 0)

    def tail(self) -> str:
        """The end of what was written."""
        if self._file.closed:
            return ""
        return (self._earlier + self._end())[-TAIL_BYTES:].decode(errors="replace")

    def close(self) -> None:
        """Free the memory of the text; its end cannot be asked for any more."""
        self._file.close()

    def _size(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    def _end(self) -> bytes:
        # The child shares the file position and writes at the end all the same.
        self._file.seek(max(0, self._size() - TAIL_BYTES))
        return self._file.read(TAIL_BYTES)


def _open_nameless() -> BinaryIO:
    file = None
    try:
        if sys.platform == "linux":
            with suppress(OSError):
                file = FileIO(os.memfd_create("tilesmith-log"), "r+")
        file = file or tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        # Writes go to the end, wherever truncation has put it.
        fcntl.fcntl(file.fileno(), fcntl.F_SETFL, os.O_APPEND)
    except OSError:
        # A full disk must not keep a search from starting; its messages are all that is lost.
        file = FileIO(os.devnull, "r+")
    return cast("BinaryIO", file)


class SpawnedProcess:
    """One process from its start to its end: it runs a module with arguments, ``command``."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], *, is_bare: bool
    ) -> None:
        if not sys.executable:
            raise ChildError("no child process can be started: sys.executable is not known")
        self.log = OutputLog()
        # What a killed process leaves goes with its folder, that of a killed parent with the next.
        scratch, folder = ExitStack(), ""
        with suppress(OSError):
            parent = Path(environment.get("TMPDIR") or tempfile.gettempdir())
            folder = str(scratch.enter_context(temporary_folder(SCRATCH_PREFIX, parent)))
        folders = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), folder) if folder else {}
        changes = {**environment, **folders, "PYTHONPATH": _python_path()}
        ours, theirs = socket.socketpair()
        self.channel = Channel(ours)
        is_main = threading.current_thread() is threading.main_thread()
        info = StartInfo(theirs.fileno(), os.getpid(), is_main, is_bare)
        words = [str(START), command[0], json.dumps(info), *command[1:]]
        try:
            self.popen = _spawn(words, theirs, self.log, changes)
        except OSError as error:
            _release(self.channel, self.log, scratch)
            raise ChildError(f"no child process can be started: {error}") from error
        finally:
            theirs.close()
        # Runs at the latest when this interpreter ends, and only once.
        self.end = weakref.finalize(
            self, _end, os.getpid(), self.popen, self.channel, self.log, scratch
        )

    @property
    def is_running(self) -> bool:
        """Whether it was not ended and has not ended by itself."""
        return self.end.alive and self.popen.poll() is None

    def dump_stack(self) -> None:
        """Have it write where it is to its log."""
        with suppress(ProcessLookupError):
            self.popen.send_signal(signal.SIGUSR1)
            sleep(STACK_DUMP_S)


def _spawn(
    words: Sequence[str], theirs: socket.socket, log: OutputLog, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-u", *words],
        stdin=subprocess.DEVNULL,
        stdout=log.fileno(),
        stderr=log.fileno(),
        pass_fds=(theirs.fileno(),),
        start_new_session=True,
        env=child_environment(environment),
    )


def _end(
    owner: int,
    process: subprocess.Popen[bytes],
    channel: Channel,
    log: OutputLog,
    scratch: ExitStack,
) -> None:
    if owner != os.getpid():
        return  # in a fork of the parent: the child is not its own
    # Also those it has started, even when it has just ended itself.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        # A process stuck in a driver cannot be killed; it must not hold up its parent.
        process.wait(KILL_GRACE_S)
    _release(channel, log, scratch)


def _release(channel: Channel, log: OutputLog, scratch: ExitStack) -> None:
    channel.close()
    log.close()
    scratch.close()


def _python_path() -> str:
    """This process's import path, so that the child finds what was found here."""
    folders: list[str] = []
    for entry in sys.path:
        with suppress(OSError, TypeError):
            folders.append(os.fspath(entry) or str(Path.cwd()))
    return os.pathsep.join(folders)
