"""The process at one time, and what grew from some times to later ones."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from tools.soak.memory import UNKNOWN, Memory

MOST_GROWTH_MB_PER_HOUR = 24.0
"""Of resident memory. Allocators keep some of what threads of a search used."""
MOST_SLOWER = 1.5
"""Latency of the last third over that of the second, where both are ratios to eager's."""
MOST_WORSE = 1.5
"""Our p99 over eager's of the same time."""
COUNTED = ("descriptors", "threads", "children", "files")


@dataclass(frozen=True)
class Latency:
    """Of the calls between two samples; microseconds."""

    median: float
    p99: float

    @classmethod
    def of(cls, times: Sequence[float]) -> Latency:
        """Of seconds."""
        if len(times) < 2:
            return cls(0.0, 0.0)
        return cls(statistics.median(times) * 1e6, statistics.quantiles(times, n=100)[-1] * 1e6)

    def __str__(self) -> str:
        return f"{self.median:7.1f} / {self.p99:8.1f} us"


@dataclass(frozen=True)
class Sample:
    """What the process has at one time, and its calls since the last one."""

    seconds: float
    resident_mb: float
    descriptors: int
    threads: int
    children: int
    files: int
    """In the temporary folder."""
    calls: int
    ours: Latency
    eager: Latency
    memory: Memory = UNKNOWN
    is_quiet: bool = False
    """Whether no kernels are made any more and no searches run."""

    def line(self) -> str:
        """As it is printed."""
        return (
            f"{self.seconds:6.0f} s  {self.resident_mb:7.1f} MB  {self.descriptors:3} handles  "
            f"{self.threads:2} threads  {self.children} children  {self.files} files  "
            f"{self.calls:6} calls  ours {self.ours}  eager {self.eager} (median / p99)  "
            f"{self.memory.line()}{'  quiet' if self.is_quiet else ''}"
        )

    @property
    def ratio(self) -> float:
        """Our median over eager's."""
        return self.ours.median / self.eager.median if self.eager.median else 0.0

    @property
    def tail(self) -> float:
        """Our p99 over eager's."""
        return self.ours.p99 / self.eager.p99 if self.eager.p99 else 0.0


def take_sample(
    seconds: float,
    ours: Sequence[float],
    eager: Sequence[float],
    folder: str,
    memory: Memory = UNKNOWN,
    *,
    is_quiet: bool = False,
) -> Sample:
    """The process now, with the times of calls since the last sample and a temporary folder."""
    return Sample(
        seconds,
        _status("VmRSS") / 1024,
        len(os.listdir("/proc/self/fd")),
        _status("Threads"),
        _num_children(),
        # Not by ``rglob``, which raises for what is removed meanwhile.
        sum(len(folders) + len(files) for _, folders, files in os.walk(folder)),
        len(ours),
        Latency.of(ours),
        Latency.of(eager),
        memory,
        is_quiet,
    )


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def _num_children() -> int:
    """Zombies count, too."""
    count = 0
    for path in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended
            count += len(path.read_text().split())
    return count


def growth(samples: Sequence[Sample]) -> tuple[float, float]:
    """MB of resident memory and modules loaded, an hour: the median slope of all pairs of samples.

    One sample in the middle of a compilation, or a few, do not move it.
    """
    pairs = [
        (
            (b.resident_mb - a.resident_mb) * 3600 / (b.seconds - a.seconds),
            (b.memory.loaded - a.memory.loaded) * 3600 / (b.seconds - a.seconds),
        )
        for a, b in combinations(samples, 2)
    ]
    memory, modules = zip(*pairs, strict=True)
    return statistics.median(memory), statistics.median(modules)


def tell_growth(samples: Sequence[Sample]) -> list[str]:
    """The fit of resident memory while kernels come and go, and while there are only calls."""
    lines: list[str] = []
    busy, quiet = _parts(samples)
    for name, part in (("kernels come and go", busy), ("only calls", quiet)):
        if part:
            memory, modules = growth(part)
            most = f"limit {MOST_GROWTH_MB_PER_HOUR:.0f}"
            text = f"{name}: resident memory {memory:+.1f} MB an hour ({most})"
            each = f", {modules:.0f} modules loaded an hour" if modules else ""
            lines.append(f"{text}{each}, {len(part)} samples")
    return lines


def _parts(samples: Sequence[Sample]) -> tuple[list[Sample], list[Sample]]:
    """What is fitted: after a third to warm up, and a little after the last kernel was made."""
    busy = [sample for sample in samples if not sample.is_quiet]
    quiet = [sample for sample in samples if sample.is_quiet]
    fitted = [busy[len(busy) // 3 :], quiet[len(quiet) // 4 :]]
    several = [part if len(part) > 1 else [] for part in fitted]
    return several[0], several[1]


def judge(samples: Sequence[Sample], problems: Sequence[str]) -> list[str]:
    """What grew; the first third warms up."""
    third = len(samples) // 3
    before, after = samples[third : 2 * third], samples[2 * third :]
    if not before:
        return [*problems, "too few samples to tell: run longer"]

    def middle(part: Sequence[Sample], name: str) -> float:
        return statistics.median(getattr(sample, name) for sample in part)

    found = list(problems)
    for part in _parts(samples):
        if part:
            memory, _ = growth(part)
            if memory > MOST_GROWTH_MB_PER_HOUR:
                calls = " by calls alone" if part[0].is_quiet else ""
                found.append(f"memory grows by {memory:.0f} MB an hour{calls}")
    found += [
        f"{name} grow from {middle(before, name)} to {middle(after, name)}"
        for name in COUNTED
        if middle(after, name) > middle(before, name) + 2
    ]
    earlier, later = middle(before, "ratio"), middle(after, "ratio")
    if later > MOST_SLOWER * earlier:
        found.append(f"calls take {later:.2f} times as long as eager's, {earlier:.2f} before")
    tail = middle([*before, *after], "tail")
    if tail > MOST_WORSE:
        found.append(f"p99 of calls is {tail:.2f} times eager's")
    return found
