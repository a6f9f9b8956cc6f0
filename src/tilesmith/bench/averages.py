"""Averages of speedups: geometric means over rows that have one, always with their count.

A failure is never a number here: it lowers the count, not the mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, inf, log

from tilesmith.bench.row import Owner, Row, Status


@dataclass(frozen=True)
class Average:
    """A geometric mean, over how many rows, out of how many that could have been there."""

    value: float | None
    count: int
    total: int

    def __str__(self) -> str:
        if self.value is None:
            return f"- (0 of {self.total})"
        return f"{self.value:.2f}x ({self.count} of {self.total})"


def geomean(values: Sequence[float]) -> float | None:
    """The geometric mean; None of nothing.

    Example:
        >>> geomean([1.0, 4.0])
        2.0
    """
    return exp(sum(map(log, values)) / len(values)) if values else None


def speedup_of(row: Row) -> float | None:
    """The speedup of a row that ended well."""
    if row.status is not Status.OK or row.speedup is None:
        return None
    return row.speedup if 0.0 < row.speedup < inf else None


def average_speedup(rows: Iterable[Row]) -> Average:
    """Over rows of one implementation; what was not available does not count at all."""
    tried = [row for row in rows if row.status is not Status.UNAVAILABLE]
    found = [speedup for speedup in map(speedup_of, tried) if speedup is not None]
    return Average(geomean(found), len(found), len(tried))


def average_speedups(rows: Iterable[Row]) -> dict[str, Average]:
    """By implementation, ours first."""
    rows = list(rows)
    return {
        name: average_speedup(row for row in rows if row.implementation == name)
        for name in implementation_names(rows)
    }


def implementation_names(rows: Iterable[Row]) -> list[str]:
    """Ours first, otherwise as they come."""
    rows = list(rows)
    ours = [row.implementation for row in rows if row.owner is Owner.OURS]
    return list(dict.fromkeys([*ours, *(row.implementation for row in rows)]))


def by_operator(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows of each operator, as they come."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.operator, []).append(row)
    return found


def failures(rows: Iterable[Row]) -> list[Row]:
    """Rows that somebody is to blame for, ours first."""
    order = {"ours failed": 0, "harness failed": 1}
    return sorted((row for row in rows if row.blame), key=lambda row: order.get(row.blame, 2))
