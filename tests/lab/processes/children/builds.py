"""Builds that go well or badly."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

print("imported")  # noqa: T201


def build(job: tuple[str, Any]) -> Any:
    """Do the named thing."""
    name, argument = job
    return BUILDS[name](argument)


def load_wave() -> None:
    """Something for a server to call once."""
    import_module("wave")


def double(value: int) -> tuple[int, int]:
    """A good build, and the process that did it."""
    return 2 * value, os.getpid()


def slow(seconds: float) -> str:
    """Take a while."""
    time.sleep(seconds)
    return "slow"


def hang_with_compiler(seconds: Any) -> None:
    """Wait for a program that never ends, as a compiler waits for its assembler."""
    subprocess.run(["sleep", str(seconds) if isinstance(seconds, float) else "61.5"], check=True)


def fail(message: str) -> None:
    """Raise."""
    raise ValueError(message)


def segfault(_: Any) -> None:
    """Crash."""
    print("in the compiler", file=sys.stderr)  # noqa: T201
    ctypes.string_at(0)


def kill_server(_: Any) -> None:
    """Take the server down."""
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)


def kill_server_once(flag: str) -> str:
    """Take the server down the first time."""
    try:
        os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return "second time"
    return str(kill_server(None))


def touch(path: str) -> None:
    """Leave a trace."""
    Path(path).touch()


def loaded_modules(names: list[str]) -> list[str]:
    """Those of the modules that are imported."""
    return [name for name in names if name in sys.modules]


BUILDS: dict[str, Any] = {
    "double": double,
    "slow": slow,
    "hang": hang_with_compiler,
    "fail": fail,
    "segfault": segfault,
    "abort": lambda _: os.abort(),
    "exit": sys.exit,
    "memory": lambda _: b"x" * (1 << 62),
    "big": lambda size: b"\x5a" * size,
    "unpicklable": lambda _: lambda: None,
    "kill server": kill_server,
    "kill server once": kill_server_once,
    "touch": touch,
    "loaded": loaded_modules,
}
