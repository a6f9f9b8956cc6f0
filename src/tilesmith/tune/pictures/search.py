"""Pictures of a search: how times fell, and how well they were predicted."""

from __future__ import annotations

from math import inf, log10

from tilesmith.diagnostics.wording import number_text
from tilesmith.lab.drawing.chart import Chart, Dots
from tilesmith.lab.drawing.scale import Scale
from tilesmith.measure.ranks.correlation import rank_correlation
from tilesmith.store.config_text import config_text
from tilesmith.tune.listener import History, Trial
from tilesmith.tune.result import roofline_text

SQUARE = (560, 520)
MAX_TIPS = 400
"""Trials that say which config they are; in long searches a tip has the time alone."""


def draw_search(history: History) -> str | None:
    """Time against configs tried, with the best so far; None when nothing was tried."""
    if not history.trials:
        return None
    times = Scale(*_time_range(history), is_log=True)
    tried = Scale(0, len(history.trials) * 1.02 + 0.5)
    labels = ("configs tried", "time, ms (log scale)")
    chart = Chart(search_title(history), tried, times, labels)
    _draw_references(chart, history)
    _draw_times(chart, history)
    places = [(float(trial.number), times.high) for trial in history.failed]
    tips = [f"{trial.number}: {trial.outcome.verdict.value}" for trial in history.failed]
    label = f"rejected ({len(places)})"
    chart.dots(Dots(places, "failure", label, tips, shape="cross"))
    return chart.text()


def draw_predictions(history: History) -> str | None:
    """Measured against predicted times; None with fewer than three pairs."""
    pairs = predicted_pairs(history)
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


def best_so_far(history: History) -> tuple[list[int], list[float]]:
    """Where the best time changed, and what it was; the last point is the end of the search."""
    places: list[int] = []
    bests: list[float] = []
    for trial in history.timed:
        if not bests or trial.outcome.time_ms < bests[-1]:
            places.append(trial.number)
            bests.append(trial.outcome.time_ms)
    return [*places, len(history.trials)], [*bests, *bests[-1:]]


def predicted_pairs(history: History) -> list[tuple[float, float]]:
    """(predicted, measured) of every trial that has both."""
    pairs = [(t.outcome.candidate.predicted_ms, t.outcome.time_ms) for t in history.timed]
    return [(predicted, measured) for predicted, measured in pairs if predicted and predicted < inf]


def _time_range(history: History) -> tuple[float, float]:
    """Room for all times and lines, and for the marks of failures above them."""
    lines = [t for t in (history.default_ms, history.roofline_ms) if t]
    times = [trial.outcome.time_ms for trial in history.timed] + lines or [1.0]
    margin = max(0.06 * log10(max(times) / min(times)), 0.02)
    return min(times) / 10**margin, max(times) * 10 ** (2.5 * margin)


def _draw_times(chart: Chart, history: History) -> None:
    timed = history.timed
    if not timed:
        return
    points = [(float(trial.number), trial.outcome.time_ms) for trial in timed]
    radius = 4.0 if len(points) < 50 else 3.0 if len(points) < 500 else 2.0
    tips = [_tip(trial, len(timed)) for trial in timed]
    chart.dots(Dots(points, "trial", "one config", tips, radius))
    places, bests = best_so_far(history)
    corners: list[tuple[float, float]] = []
    for place, best in zip(places, bests):
        corners += [(float(place), corners[-1][1])] if corners else []
        corners.append((float(place), best))
    chart.line(corners, "best", "best so far")


def _tip(trial: Trial, count: int) -> str:
    time = f"{trial.number}: {number_text(trial.outcome.time_ms)} ms"
    return f"{time}, {config_text(trial.outcome.config)}" if count <= MAX_TIPS else time


def _draw_references(chart: Chart, history: History) -> None:
    """Lines at times to compare with."""
    lines = (("default config", history.default_ms, "default"),
             ("roofline", history.roofline_ms, "roof"))  # fmt: skip
    for name, ms, style in lines:
        if ms:
            chart.level(ms, style, f"{name}, {number_text(ms)} ms")


def search_title(history: History) -> str:
    """What was searched where, and what came of it."""
    start, result, roofline_ms = history.start, history.result, history.roofline_ms
    name = f"{start.kernel} on {start.device}" if start else "search"
    if result is None or not result.is_measured:
        return name
    is_told = roofline_ms and not result.is_unsteady
    share = f", {roofline_text(roofline_ms, result.ms)}" if roofline_ms and is_told else ""
    return f"{name}: {number_text(result.ms)} ms{share}"
