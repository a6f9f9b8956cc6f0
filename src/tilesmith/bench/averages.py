"""Averages of speedups: geometric means over rows that have one, always with their count.

A failure is never a number here, nor what the scheduler of a busy machine made of a speedup: both
lower the count, not the mean.
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
    num_disturbed: int = 0
    """How many of those that are missing had a value, but a disturbed one."""

    def __str__(self) -> str:
        value = "-" if self.value is None else f"{self.value:.2f}x"
        return f"{value} ({self.count_text})"

    @property
    def count_text(self) -> str:
        """Over how many, and how many were left out for being disturbed."""
        left_out = f", {self.num_disturbed} disturbed" if self.num_disturbed else ""
        return f"{self.count} of {self.total}{left_out}"


def geomean(values: Sequence[float]) -> float | None:
    """The geometric mean; None of nothing.

    Example:
        >>> geomean([1.0, 4.0])
        2.0
    """
    return exp(sum(map(log, values)) / len(values)) if values else None


def speedup_of(row: Row) -> float | None:
    """The speedup of a row that ended well and was not disturbed."""
    if row.status is not Status.OK or row.speedup is None or is_speedup_disturbed(row):
        return None
    return row.speedup if 0.0 < row.speedup < inf else None


def is_speedup_disturbed(row: Row) -> bool:
    """Whether there is a speedup of which one side is the scheduler's."""
    return row.speedup is not None and (row.is_disturbed or row.is_speedup_disturbed)


def disturbed_rows(rows: Iterable[Row]) -> list[Row]:
    """Rows that have a time or a speedup that is not to be relied on."""
    return [row for row in rows if row.is_disturbed or row.is_speedup_disturbed]


def average_speedup(rows: Iterable[Row]) -> Average:
    """Over rows of one implementation; what was not available does not count at all."""
    tried = [row for row in rows if row.status is not Status.UNAVAILABLE]
    found = [speedup for speedup in map(speedup_of, tried) if speedup is not None]
    num_disturbed = sum(map(is_speedup_disturbed, tried))
    return Average(geomean(found), len(found), len(tried), num_disturbed)


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
