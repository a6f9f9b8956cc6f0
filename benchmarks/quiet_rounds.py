"""Interleaved rounds on a machine that others use too: disturbed rounds are thrown away and redone.

A round runs every implementation once, every other round in reverse. How busy the others were comes
from /proc/stat, host steal included; where there is no such file every round counts as quiet.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tilesmith.measure.statistics import Interval, median, quantile
from tilesmith.measure.timer import Work, time_on_cpu

NOISY_SHARE = 0.25
"""Of the wall time; others that took more than this on any core disturbed the round."""
MAX_TRIES_PER_ROUND = 3
JIFFIES_PER_SECOND = 100
STAT = Path("/proc/stat")


@dataclass(frozen=True)
class Load:
    """Seconds so far: on the wall clock, of all cores at work, of this process."""

    wall: float
    busy: float
    own: float


@dataclass(frozen=True)
class Rounds:
    """Milliseconds per call by implementation, one sample a round; and how noisy it was."""

    samples_ms: Mapping[str, list[float]]
    num_noisy: int
    """Rounds thrown away."""
    num_noisy_kept: int
    """Rounds kept although noisy, since quiet ones did not come."""

    def median_ms(self, name: str) -> float:
        """Median over the rounds."""
        return median(self.samples_ms[name])

    def ratio(self, baseline: str, candidate: str) -> Interval:
        """How many times faster the candidate is: median and quintiles of the rounds' ratios.

        Drift between rounds hits both alike, so it does not show here.
        """
        pairs = zip(self.samples_ms[baseline], self.samples_ms[candidate])
        ratios = [slow / fast for slow, fast in pairs]
        return Interval(median(ratios), quantile(ratios, 0.2), quantile(ratios, 0.8))


def read_load() -> Load | None:
    """The load so far; None where the system does not tell."""
    try:
        fields = [int(text) for text in STAT.read_text().split("\n", 1)[0].split()[1:9]]
    except (OSError, ValueError):
        return None
    user, nice, system, _idle, _waiting, irq, softirq, steal = fields
    busy = (user + nice + system + irq + softirq + steal) / JIFFIES_PER_SECOND
    return Load(time.perf_counter(), busy, time.process_time())


def share_of_others(before: Load | None, after: Load | None) -> float:
    """Core time that others took between two readings, as a share of the wall time."""
    if before is None or after is None or after.wall <= before.wall:
        return 0.0
    others = (after.busy - before.busy) - (after.own - before.own)
    return max(0.0, others) / (after.wall - before.wall)


def run_rounds(works: Mapping[str, Work], *, rounds: int, min_sample_ms: float) -> Rounds:
    """Time all works in quiet rounds; when those do not come, the least disturbed fill up."""
    names = list(works)
    quiet: list[dict[str, float]] = []
    noisy: list[tuple[float, dict[str, float]]] = []
    while len(quiet) < rounds and len(quiet) + len(noisy) < rounds * MAX_TRIES_PER_ROUND:
        order = names if len(quiet) % 2 == 0 else names[::-1]
        before = read_load()
        timings = time_on_cpu(
            {name: works[name] for name in order}, repeats=1, warmup=0, min_sample_ms=min_sample_ms
        )
        share = share_of_others(before, read_load())
        sample = {name: timing.median_ms for name, timing in timings.items()}
        if share <= NOISY_SHARE:
            quiet.append(sample)
        else:
            noisy.append((share, sample))
    noisy.sort(key=lambda item: item[0])
    kept = [sample for _, sample in noisy[: rounds - len(quiet)]]
    samples = {name: [sample[name] for sample in quiet + kept] for name in names}
    return Rounds(samples, len(noisy) - len(kept), len(kept))
