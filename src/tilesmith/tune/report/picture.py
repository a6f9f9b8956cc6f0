"""Pictures of a search, as PNG: how times fell, and how well they were predicted."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from math import inf, log10
from typing import Any

from tilesmith.diagnostics.wording import number_text
from tilesmith.lab.pages import LIGHT, Theme, format_log_axis, legend, new_figure, png
from tilesmith.tune.listener import History
from tilesmith.tune.report.log import roofline_text

SIZE = (9.0, 5.0)
SQUARE = (6.2, 6.0)


def draw_search(history: History, theme: Theme = LIGHT) -> bytes | None:
    """Time against configs tried, with the best so far; None when nothing was tried."""
    if not history.trials:
        return None
    figure, axes = new_figure(SIZE, theme)
    axes.set(yscale="log", xlabel="configs tried", ylabel="time, ms (log scale)")
    _draw_times(axes, history, theme)
    _draw_references(axes, history, theme)
    _set_ranges(axes, history)
    pad = 18 + 16 * legend(axes, theme)
    axes.set_title(_search_title(history), loc="left", color=theme.ink, fontsize=12, pad=pad)
    return png(figure)


def draw_predictions(history: History, theme: Theme = LIGHT) -> bytes | None:
    """Measured against predicted times; None with fewer than three pairs."""
    pairs = predicted_pairs(history)
    if len(pairs) < 3:
        return None
    figure, axes = new_figure(SQUARE, theme)
    predicted, measured = [p for p, _ in pairs], [m for _, m in pairs]
    low, high = min(predicted + measured) / 1.3, max(predicted + measured) * 1.3
    axes.set(xscale="log", yscale="log")
    axes.set(xlabel="predicted time, ms", ylabel="measured time, ms")
    axes.plot([low, high], [low, high], c=theme.roofline, lw=1.3, ls="--", label="as predicted")
    axes.scatter(predicted, measured, s=20, c=theme.trial, alpha=0.8, lw=0, label="one config")
    axes.set(xlim=(low, high), ylim=(low, high), aspect="equal")
    format_log_axis(axes.xaxis, low, high)
    format_log_axis(axes.yaxis, low, high)
    rank = spearman(predicted, measured)
    title = f"Predicted and measured, {len(pairs)} configs\nrank correlation (Spearman) {rank:.2f}"
    axes.set_title(title, loc="left", color=theme.ink, fontsize=12, pad=30)
    legend(axes, theme)
    return png(figure)


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


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Rank correlation; 0 where one of the two does not vary.

    Example:
        >>> spearman([1.0, 2.0, 3.0], [10.0, 100.0, 1000.0])
        1.0
    """
    a, b = _ranks(first), _ranks(second)
    mean = (len(a) - 1) / 2
    covariance = sum((x - mean) * (y - mean) for x, y in zip(a, b))
    scale = sum((x - mean) ** 2 for x in a) * sum((y - mean) ** 2 for y in b)
    return covariance / scale**0.5 if scale else 0.0


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 0; equal values share the mean of theirs."""
    ordered = sorted(values)
    return [(bisect_left(ordered, x) + bisect_right(ordered, x) - 1) / 2 for x in values]


def _draw_times(axes: Any, history: History, theme: Theme) -> None:
    timed = history.timed
    if not timed:
        return
    places = [trial.number for trial in timed]
    times = [trial.outcome.time_ms for trial in timed]
    look = {"c": theme.trial, "alpha": 0.8, "lw": 0, "label": "one config", "zorder": 4.5}
    size = 34 if len(times) < 50 else 18 if len(times) < 500 else 9
    axes.scatter(places, times, s=size, **look)
    places, bests = best_so_far(history)
    axes.step(places, bests, where="post", c=theme.best, lw=2.2, label="best so far", zorder=4)
    axes.scatter(places[-2], bests[-1], s=46, c=theme.best, lw=0, zorder=5)


def _set_ranges(axes: Any, history: History) -> None:
    """Room for all times and lines, and for the marks of failures above them."""
    from matplotlib.ticker import MaxNLocator

    axes.set_xlim(0, len(history.trials) * 1.02 + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    lines = [t for t in (history.default_ms, history.roofline_ms) if t]
    times = [trial.outcome.time_ms for trial in history.timed] + lines or [1.0]
    low, high = min(times), max(times)
    margin = max(0.06 * log10(high / low), 0.02)
    bottom, top = low / 10**margin, high * 10 ** (2.5 * margin)
    axes.set_ylim(bottom, top)
    format_log_axis(axes.yaxis, bottom, top)


def _draw_references(axes: Any, history: History, theme: Theme) -> None:
    """Lines at times to compare with; failures, which have none, are marked at the upper edge."""
    lines = (
        ("default config", history.default_ms, theme.default, "--"),
        ("roofline", history.roofline_ms, theme.roofline, ":"),
    )
    for name, ms, color, style in lines:
        if ms:
            label = f"{name}, {number_text(ms)} ms"
            axes.axhline(ms, c=color, lw=1.5, ls=style, label=label, zorder=3)
    places = [trial.number for trial in history.failed]
    if places:
        edge = {"transform": axes.get_xaxis_transform(), "clip_on": False, "marker": "x"}
        look = {"s": 22, "c": theme.failure, "lw": 1.2, "zorder": 3}
        label = f"rejected ({len(places)})"
        axes.scatter(places, [0.975] * len(places), label=label, **edge, **look)


def _search_title(history: History) -> str:
    start, result, roofline_ms = history.start, history.result, history.roofline_ms
    name = f"{start.kernel} on {start.device}" if start else "search"
    if result is None or not result.is_measured:
        return name
    share = f", {roofline_text(roofline_ms, result.ms)}" if roofline_ms else ""
    return f"{name}: {number_text(result.ms)} ms{share}"
