"""Whether others had the cores while something was timed on the host.

A thread that is ready but has no core waits, and the wall clock runs on: the time of the call is
then that of the scheduler. Linux counts these waits of each thread. Elsewhere a process that used
far less processor time than wall time, on a machine with more work than cores, is taken for one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

MAX_WAITED = 0.1
"""Share of the wall time that a thread may wait for a core."""
MIN_USED = 0.8
"""Processor time over wall time; what computes without a pause uses all of it, or more."""
TASKS = Path("/proc/self/task")


@dataclass(frozen=True)
class Reading:
    """What the clocks say: wall time, processor time used, time waited for a core."""

    wall_s: float
    used_s: float
    """Of processors, by all threads of this process."""
    waited_s: Mapping[str, float] = field(default_factory=dict[str, float])
    """For a core, by thread; empty where the system does not tell."""
    is_crowded: bool = False
    """Whether the machine has more work than cores."""


Meter = Callable[[], Reading]


def read_meter() -> Reading:
    """The readings of now."""
    waited = _waits()
    is_crowded = not waited and _load() > (os.cpu_count() or 1)
    return Reading(time.perf_counter(), time.process_time(), waited, is_crowded)


def is_disturbed(before: Reading, after: Reading) -> bool:
    """Whether what ran between two readings was kept from running.

    The thread that waited longest counts: the others of a parallel region wait for it.
    """
    wall = after.wall_s - before.wall_s
    if after.waited_s:
        waits = (now - before.waited_s.get(name, 0.0) for name, now in after.waited_s.items())
        return max(waits) > MAX_WAITED * wall
    return after.is_crowded and after.used_s - before.used_s < MIN_USED * wall


def _waits() -> dict[str, float]:
    try:
        names = os.listdir(TASKS)
    except OSError:
        return {}
    found = {name: _wait(TASKS / name / "schedstat") for name in names}
    waits = {name: wait for name, wait in found.items() if wait is not None}
    # Every process has waited once; a system that says otherwise does not count.
    return waits if any(waits.values()) else {}


def _wait(path: Path) -> float | None:
    """The second number: nanoseconds ready without a core. None of a thread that has ended."""
    try:
        return int(path.read_bytes().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None


def _load() -> float:
    """Work of the last minute, in cores; nothing where the system does not tell."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
