"""What processes and descriptors there are, from /proc."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

SOURCE = Path(__file__).parents[3] / "src"
ROOT = Path(__file__).parents[3]
START = SOURCE / "tilesmith/lab/processes/start.py"
PLAYFUL = "tests.lab.processes.children.playful"
BUILD = "tests.lab.processes.children.builds:build"


def holdings() -> set[tuple[str, str]]:
    """The open descriptors and the children of this process.

    What a test leaked is what it holds more than before. Counts would not tell: a process that
    an earlier test left may end at any time, and its descriptors with it.
    """
    found = {("child", str(pid)) for pid in children(os.getpid())}
    for entry in Path("/proc/self/fd").iterdir():
        # The descriptor by which the folder was listed is gone again.
        with suppress(FileNotFoundError):
            found.add((f"descriptor {entry.name}", str(entry.readlink())))
    return found


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


def children(pid: int) -> list[int]:
    """The children of a process, zombies included."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[1]) == pid:
                found.append(int(entry.name))
    return found


def eventually(claim: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Whether something comes true soon, or at all on a machine that is busy otherwise."""
    deadline = time.monotonic() + seconds
    while not claim():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def script(body: str) -> str:
    """A program of a user, without the import of torch."""
    bare = f"import runpy; runpy.run_path({str(START)!r})['make_bare_package']()"
    return f"import sys\nsys.path[:0] = [{str(SOURCE)!r}, {str(ROOT)!r}]\n{bare}\n{body}"
