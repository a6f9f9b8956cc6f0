"""A picture of errors as PNG: how many elements are how many ulps off, by implementation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilesmith.lab.report.canvas import LIGHT, Theme, legend, new_figure, png
from tilesmith.numerics.doctor.findings import ErrorStatistics
from tilesmith.numerics.doctor.histogram import LOWEST, WRONG

SIZE = (9.0, 5.0)
HALF_AN_ULP = -1
COLUMNS = 4
GROUP_WIDTH = 0.84


def draw_errors(
    statistics: Sequence[ErrorStatistics], title: str, theme: Theme = LIGHT
) -> bytes | None:
    """Bars for each output and implementation; None without any."""
    drawn = sorted((s for s in statistics if s.histogram), key=lambda item: item.output)
    if not drawn:
        return None
    figure, axes = new_figure(SIZE, theme)
    for number in range(len(drawn)):
        _draw(axes, drawn, number, theme)
    last = max(bucket for item in drawn for bucket in item.histogram)
    axes.axvline(HALF_AN_ULP + 0.5, c=theme.roofline, lw=1.3, ls="--", label="rounding alone")
    axes.set_yscale("log")
    axes.set_xticks(range(LOWEST, last + 1), [_label(b) for b in range(LOWEST, last + 1)])
    axes.set_xlabel("error in ulp of the result's type, up to")
    axes.set_ylabel("share of elements (log scale)")
    pad = 4 + 16 * legend(axes, theme, COLUMNS)
    axes.set_title(f"{title}: errors against fp64", loc="left", color=theme.ink, pad=pad)
    return png(figure)


def _draw(axes: Any, drawn: Sequence[ErrorStatistics], number: int, theme: Theme) -> None:
    """Side by side with the others: equal errors must not hide each other."""
    item, width = drawn[number], GROUP_WIDTH / len(drawn)
    total = sum(item.histogram.values())
    places = [bucket + (number + 0.5) * width - GROUP_WIDTH / 2 for bucket in item.histogram]
    shares = [count / total for count in item.histogram.values()]
    color = theme.series[number % len(theme.series)]
    axes.bar(places, shares, width, color=color, label=f"{item.output}, {item.implementation}")


def _label(bucket: int) -> str:
    if bucket == WRONG:
        return "NaN"
    return str(1 << bucket) if bucket >= 0 else f"1/{1 << -bucket}"
