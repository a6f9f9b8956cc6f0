"""Pictures of a search: how times fell, and how well they were predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log10

from tilesmith.diagnostics.wording import number_text
from tilesmith.lab.drawing.chart import Chart, Dots
from tilesmith.lab.drawing.scale import Scale
from tilesmith.measure.rank_correlation import rank_correlation

SQUARE = (560, 520)
MAX_TIPS = 400
"""Trials that say which config they are; in long searches a tip has the time alone."""


@dataclass(frozen=True)
class Tried:
    """One trial: its number, its time in milliseconds, and what is said of it."""

    number: int
    ms: float
    words: str


@dataclass(frozen=True)
class Course:
    """How a search went; trials that were rejected have no time that counts."""

    title: str
    timed: Sequence[Tried]
    rejected: Sequence[Tried]
    levels: Sequence[tuple[str, float, str]]
    """Times to compare with: their name and how they are drawn."""

    @property
    def num_tried(self) -> int:
        """All trials."""
        return len(self.timed) + len(self.rejected)


def draw_search(course: Course) -> str | None:
    """Time against configs tried, with the best so far; None when nothing was tried."""
    if not course.num_tried:
        return None
    times = Scale(*_time_range(course), is_log=True)
    tried = Scale(0, course.num_tried * 1.02 + 0.5)
    chart = Chart(course.title, tried, times, ("configs tried", "time, ms (log scale)"))
    for name, ms, style in course.levels:
        chart.level(ms, style, f"{name}, {number_text(ms)} ms")
    _draw_times(chart, course)
    places = [(float(trial.number), times.high) for trial in course.rejected]
    tips = [f"{trial.number}: {trial.words}" for trial in course.rejected]
    chart.dots(Dots(places, "failure", f"rejected ({len(places)})", tips, shape="cross"))
    return chart.text()


def draw_predictions(pairs: Sequence[tuple[float, float]]) -> str | None:
    """Measured against predicted times; None with fewer than three pairs."""
    if len(pairs) < 3:
        return None
    scale = Scale.around([time for pair in pairs for time in pair], 1.3)
    rank = rank_correlation([p for p, _ in pairs], [m for _, m in pairs])
    title = f"{len(pairs)} configs, rank correlation (Spearman) {rank:.2f}"
    labels = ("predicted time, ms", "measured time, ms")
    chart = Chart(title, scale, scale, labels, SQUARE)
    chart.line([(scale.low, scale.low), (scale.high, scale.high)], "roof dashed", "as predicted")
    tips = [f"predicted {number_text(p)} ms, measured {number_text(m)} ms" for p, m in pairs]
    chart.dots(Dots(pairs, "trial", "one config", tips))
    return chart.text()


def best_so_far(course: Course) -> tuple[list[int], list[float]]:
    """Where the best time changed, and what it was; the last point is the end of the search."""
    places: list[int] = []
    bests: list[float] = []
    for trial in course.timed:
        if not bests or trial.ms < bests[-1]:
            places.append(trial.number)
            bests.append(trial.ms)
    return [*places, course.num_tried], [*bests, *bests[-1:]]


def _time_range(course: Course) -> tuple[float, float]:
    """Room for all times and lines, and for the marks of failures above them."""
    levels = [ms for _, ms, _ in course.levels]
    times = [trial.ms for trial in course.timed] + levels or [1.0]
    margin = max(0.06 * log10(max(times) / min(times)), 0.02)
    return min(times) / 10**margin, max(times) * 10 ** (2.5 * margin)


def _draw_times(chart: Chart, course: Course) -> None:
    if not course.timed:
        return
    points = [(float(trial.number), trial.ms) for trial in course.timed]
    radius = 4.0 if len(points) < 50 else 3.0 if len(points) < 500 else 2.0
    tips = [f"{trial.number}: {number_text(trial.ms)} ms" for trial in course.timed]
    if len(tips) <= MAX_TIPS:
        tips = [f"{tip}, {trial.words}" for tip, trial in zip(tips, course.timed)]
    chart.dots(Dots(points, "trial", "one config", tips, radius))
    places, bests = best_so_far(course)
    corners: list[tuple[float, float]] = []
    for place, best in zip(places, bests):
        corners += [(float(place), corners[-1][1])] if corners else []
        corners.append((float(place), best))
    chart.line(corners, "best", "best so far")
