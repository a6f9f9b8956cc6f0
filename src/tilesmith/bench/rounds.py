"""From samples taken in turns to the times of a row: which rounds count, and how sure they are.

A round has one sample of the implementation, of its copy and of the baseline. Rounds in which
others had the cores do not count where enough others are left; where not, the row says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilesmith.measure.statistics import median, quantile
from tilesmith.measure.timer import Timing

WORK, AGAIN, BASELINE = "work", "again", "baseline"
MIN_ROUNDS = 5
"""So many undisturbed rounds are enough for a median, or half of them where there are few."""

Timings = Mapping[str, Timing]


@dataclass(frozen=True)
class Rounds:
    """The numbers of the rounds that count; if disturbed, they are the best there are."""

    numbers: Sequence[int]
    is_disturbed: bool

    def of(self, timing: Timing) -> list[float]:
        """The samples that count."""
        return [timing.samples_ms[number] for number in self.numbers]


def choose_rounds(timings: Timings, names: Sequence[str]) -> Rounds:
    """Rounds in which nothing disturbed any of these; all of them where there is no such round."""
    total = min(len(timings[name].samples_ms) for name in names)
    marks = [timings[name].disturbed for name in names if timings[name].disturbed]
    quiet = [number for number in range(total) if not any(mark[number] for mark in marks)]
    is_enough = len(quiet) >= min(MIN_ROUNDS, (total + 1) // 2)
    return Rounds(quiet or range(total), not is_enough)


def time_fields(timings: Timings) -> dict[str, Any]:
    """The fields of a row that are times, or say how sure they are."""
    common = choose_rounds(timings, list(timings))
    own = choose_rounds(timings, [WORK, AGAIN]) if common.is_disturbed else common
    found = _own_fields(timings, own)
    if any(timing.disturbed for timing in timings.values()):
        found["disturbed_samples"] = sum(sum(timing.disturbed) for timing in timings.values())
    if BASELINE in timings:
        others = choose_rounds(timings, [BASELINE]) if common.is_disturbed else common
        baseline = others.of(timings[BASELINE])
        found |= {
            "baseline_ms": median(baseline),
            "baseline_spread": half_spread(baseline),
            "speedup": median(baseline) / found["latency_ms"],
            "speedup_spread": half_spread(_ratios(timings, common)),
            "is_speedup_disturbed": common.is_disturbed,
        }
    return found


def half_spread(samples: Sequence[float]) -> float:
    """Half of the middle half of the samples, over the median.

    Example:
        >>> half_spread([1.0, 2.0, 3.0])
        0.25
    """
    return (quantile(samples, 0.75) - quantile(samples, 0.25)) / 2 / median(samples)


def _own_fields(timings: Timings, rounds: Rounds) -> dict[str, Any]:
    first, second = rounds.of(timings[WORK]), rounds.of(timings[AGAIN])
    both = first + second
    return {
        "latency_ms": median(both),
        "spread": half_spread(both),
        "noise_floor": abs(median(first) - median(second)) / median(both),
        "samples": len(both),
        "is_disturbed": rounds.is_disturbed,
    }


def _ratios(timings: Timings, rounds: Rounds) -> list[float]:
    """The baseline's time over the mean of the two copies', round by round."""
    copies = zip(rounds.of(timings[WORK]), rounds.of(timings[AGAIN]))
    means = [(first + second) / 2 for first, second in copies]
    return [slow / mean for slow, mean in zip(rounds.of(timings[BASELINE]), means)]
