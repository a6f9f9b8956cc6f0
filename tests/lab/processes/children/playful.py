"""A child that does what its job says, however bad."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from tilesmith.lab.processes.channel import LastReply
from tilesmith.lab.processes.serve import serve
from tilesmith.lab.processes.start import read_start_info


class UnpicklableError(Exception):
    """An exception that holds what cannot be pickled, and has no message either."""

    def __init__(self) -> None:
        super().__init__(lambda: None)
        self.file = Path(__file__).open()  # noqa: SIM115

    def __str__(self) -> str:
        raise ValueError("no message")


class OnlyHere:
    """A class of ``__main__``, which the other side does not have."""


def echo(value: Any) -> Any:
    """The same again."""
    return value


def pid(_: Any) -> int:
    """Who it is."""
    return os.getpid()


def sleep(seconds: float) -> str:
    """Take long."""
    time.sleep(seconds)
    return "slept"


def hang_deaf(_: Any) -> None:
    """Hang in a call that holds the interpreter's lock, with signals ignored."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    ctypes.PyDLL(None).pause()


def segfault(_: Any) -> None:
    """Read at address zero."""
    print("about to fall", file=sys.stderr)  # noqa: T201
    ctypes.string_at(0)


def abort(_: Any) -> None:
    """Die as a failed assertion of a compiler does."""
    os.abort()


def leave(code: Any) -> None:
    """Exit."""
    sys.exit(code)


def fail(message: str) -> None:
    """Raise."""
    raise ValueError(message)


def fail_unpicklable(_: Any) -> None:
    """Raise what cannot be sent."""
    raise UnpicklableError


def out_of_memory(_: Any) -> bytes:
    """Ask for more than there is."""
    return b"x" * (1 << 62)


def reply_of(kind: str) -> Any:
    """Replies that cannot be sent, or cannot be read by the other side."""
    return {"lambda": lambda: None, "local class": OnlyHere()}[kind]


def big(size: int) -> bytes:
    """A long reply."""
    return b"\x5a" * size


def chatter(_: Any) -> str:
    """Write to stdout and stderr in every way there is."""
    print("to stdout")  # noqa: T201
    print("to stderr", file=sys.stderr)  # noqa: T201
    os.write(1, b"to descriptor 1\n")
    os.system("echo from a shell")
    return sys.stdin.read()


def flood(size: int) -> str:
    """Write a lot, slowly enough for a parent to look at it."""
    for _ in range(size >> 20):
        os.write(1, b"." * (1 << 20))
        time.sleep(0.01)
    os.write(1, b"the end\n")
    time.sleep(0.5)
    return "done"


def garbage(_: Any) -> None:
    """Write to the socket that belongs to the frames."""
    os.write(read_start_info().channel, b"this is not a frame at all")
    time.sleep(60)


def half_a_frame(_: Any) -> None:
    """Die in the middle of a reply."""
    os.write(read_start_info().channel, b"TSF1" + (100).to_bytes(8, "little") + b"half")
    os._exit(0)


def close_channel(_: Any) -> None:
    """Close the socket and live on."""
    os.close(read_start_info().channel)
    time.sleep(60)


def start_helper(_: Any) -> int:
    """Start a process that outlives its job."""
    return os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "60")


def last(value: Any) -> LastReply:
    """An answer after which the process must not be used."""
    return LastReply(value)


def facts(_: Any) -> dict[str, Any]:
    """What it finds around itself."""
    return {
        "session": os.getsid(0),
        "pid": os.getpid(),
        "modules": sorted(sys.modules),
        "path": sys.path,
        "environment": dict(os.environ),
        "ignores_interrupt": signal.getsignal(signal.SIGINT) == signal.SIG_IGN,
        "num_fds": len(os.listdir("/proc/self/fd")),
    }


def handle(job: tuple[str, Any]) -> Any:
    """Do the named thing."""
    name, argument = job
    return globals()[name](argument)


if __name__ == "__main__":
    serve(handle)
