"""A few configs that serve many shapes: what each costs against a shape's own best."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp, inf, log

from tilesmith.schedule.config import Config

WORST = log(100.0)
"""What a config counts that does not run on a shape: more than any that does, and finite."""
ENOUGH = 1e-9
"""Gains below are rounding."""


@dataclass(frozen=True)
class Timings:
    """Times of configs on shapes."""

    shapes: tuple[str, ...]
    """In words."""
    configs: tuple[Config, ...]
    ms: tuple[tuple[float, ...], ...]
    """For each shape the time of each config; infinite where it does not run."""
    own_ms: tuple[float, ...] = ()
    """What a search for each shape alone has found."""

    @property
    def best_ms(self) -> list[float]:
        """The least time of each shape, by whatever config."""
        return [min(row) for row in zip(*zip(*self.ms), *([self.own_ms] if self.own_ms else []))]

    @cached_property
    def logs(self) -> list[list[float]]:
        """For each shape and config the logarithm of its time over the shape's best."""
        return [
            [min(WORST, log(ms / best)) if ms < inf else WORST for ms in row]
            for row, best in zip(self.ms, self.best_ms)
        ]


def geomean_loss(logs: Iterable[float]) -> float:
    """How much slower than their own best shapes are, as a share: 0.03 is 3 %."""
    listed = list(logs)
    return exp(sum(listed) / len(listed)) - 1.0 if listed else 0.0


def cover_logs(timings: Timings, chosen: Sequence[int]) -> list[float]:
    """What each shape loses if it gets the best of the chosen configs."""
    return [min(row[config] for config in chosen) for row in timings.logs]


def choose_configs(timings: Timings, count: int) -> list[int]:
    """The configs that together lose least: the best one more each time, then exchanges."""
    chosen: list[int] = []
    for _ in range(min(count, len(timings.configs))):
        left = [config for config in range(len(timings.configs)) if config not in chosen]
        chosen.append(min(left, key=lambda config: sum(cover_logs(timings, [*chosen, config]))))
        chosen = _exchanged(timings, chosen)
    return chosen


def _exchanged(timings: Timings, chosen: list[int]) -> list[int]:
    """The same number, after exchanges of one for another while one helps."""
    total = sum(cover_logs(timings, chosen))
    while True:
        others = [
            [*chosen[:place], config, *chosen[place + 1 :]]
            for place in range(len(chosen))
            for config in range(len(timings.configs))
            if config not in chosen
        ]
        best = min(others, key=lambda other: sum(cover_logs(timings, other)), default=chosen)
        lost = sum(cover_logs(timings, best))
        if lost >= total - ENOUGH:
            return chosen
        chosen, total = best, lost
