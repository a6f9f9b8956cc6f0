"""Speedups as bars, as PNG: geometric means of all operators, and the inputs of one operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilesmith.bench.averages import (
    average_speedups,
    by_operator,
    implementation_names,
    is_speedup_disturbed,
    speedup_of,
)
from tilesmith.bench.implementations import EAGER
from tilesmith.bench.row import Row, Status
from tilesmith.bench.tables import COLUMNS, DISTURBED, speedup_text
from tilesmith.lab.report.canvas import LIGHT, Theme, legend, new_figure, png

WIDTH = 9.6
BAR_INCHES = 0.21
MAX_MARKS = 9
GAP_BARS = 0.8
"""Between groups, in bars."""


@dataclass(frozen=True)
class Bar:
    """One implementation in a group: a speedup, or what is said instead."""

    implementation: str
    speedup: float | None
    text: str


@dataclass(frozen=True)
class Group:
    """Bars that stand together under one label."""

    label: str
    bars: Sequence[Bar]


def draw_geomeans(rows: Sequence[Row], theme: Theme = LIGHT) -> bytes | None:
    """One group for each operator; None where no row has a speedup."""
    groups = [_means(name, found) for name, found in by_operator(rows).items()]
    if len(groups) > 1:
        groups.append(_means("all operators", rows))
    title = "Geometric means of speedups over eager"
    return _draw(groups, title, colours_of(rows, theme), theme)


def draw_inputs(operator: str, rows: Sequence[Row], theme: Theme = LIGHT) -> bytes | None:
    """One group for each input of an operator, and one for their geometric means."""
    mine = by_operator(rows)[operator]
    inputs: dict[str, list[Bar]] = {}
    for row in mine:
        if row.implementation != EAGER and row.status is not Status.UNAVAILABLE:
            inputs.setdefault(_input_text(row, mine), []).append(_input_bar(row))
    groups = [Group(label, bars) for label, bars in inputs.items()]
    groups.append(_means("geometric mean", mine))
    return _draw(groups, f"{operator}: speedups over eager", colours_of(rows, theme), theme)


def colours_of(rows: Sequence[Row], theme: Theme) -> dict[str, str]:
    """A colour for each implementation, the same in all pictures of a run."""
    names = [name for name in implementation_names(rows) if name != EAGER]
    colours = {name: theme.series[place % len(theme.series)] for place, name in enumerate(names)}
    return {**colours, EAGER: theme.ink}


def _means(label: str, rows: Sequence[Row]) -> Group:
    averages = average_speedups(rows)
    bars = [
        Bar(
            name,
            average.value,
            f"{speedup_text(average.value)} ({average.count_text})"
            if average.value
            else average.count_text.replace("0 of", "none of", 1),
        )
        for name, average in averages.items()
        if name != EAGER and average.total
    ]
    return Group(label, bars)


def _input_text(row: Row, rows: Sequence[Row]) -> str:
    several = len({other.dtype for other in rows}) > 1
    return f"{row.input_label} {row.dtype}" if several else row.input_label


def _input_bar(row: Row) -> Bar:
    speedup = speedup_of(row)
    if speedup is not None:
        return Bar(row.implementation, speedup, COLUMNS["speedup"][0].text(row))
    return Bar(row.implementation, None, _words_for_none(row))


def _words_for_none(row: Row) -> str:
    if row.blame:
        return row.cause.value or "failed"
    return DISTURBED if is_speedup_disturbed(row) else "no baseline"


def _draw(
    groups: Sequence[Group], title: str, colours: Mapping[str, str], theme: Theme
) -> bytes | None:
    bars = [bar for group in groups for bar in group.bars]
    speedups = [bar.speedup for bar in bars if bar.speedup is not None]
    if not speedups:
        return None
    height = 1.6 + BAR_INCHES * (len(bars) + GAP_BARS * len(groups))
    figure, axes = new_figure((WIDTH, height), theme)
    axes.grid(visible=False, axis="y")
    _draw_groups(axes, groups, colours, theme)
    axes.axvline(1.0, c=theme.ink, lw=1.1, zorder=3)
    _scale(axes, min(0.97, *speedups), max(1.03, *speedups))
    axes.set_xlabel("speedup over eager (log scale)")
    pad = 14 + 16 * legend(axes, theme)
    axes.set_title(title, loc="left", color=theme.ink, fontsize=12, pad=pad)
    return png(figure)


def _scale(axes: Any, low: float, high: float) -> None:
    """A logarithmic axis with room for the words behind bars, and marks that include 1."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axes.set_xscale("log")
    reach = high / low
    axes.set_xlim(low / reach**0.04, high * reach**0.3)
    axes.xaxis.set_major_locator(FixedLocator(marks_between(low / reach**0.04, high * reach**0.3)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))


def marks_between(low: float, high: float) -> list[float]:
    """Round speedups between two, few enough to be read; 1 is among them.

    Example:
        >>> marks_between(0.9, 1.35)
        [0.9, 1.0, 1.1, 1.2, 1.3]
    """
    decades = [10.0**power for power in range(-6, 7)]
    firsts = ((1, 2, 5), (1, 1.5, 2, 3, 5, 7))
    choices = [decades, *(sorted(a * b for a in first for b in decades) for first in firsts)]
    if high / low < 4:
        steps = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
        choices += [[round(n * step, 3) for n in range(1, int(high / step) + 1)] for step in steps]
    shown = [[mark for mark in marks if low <= mark <= high] for marks in choices]
    return max((marks for marks in shown if len(marks) <= MAX_MARKS), key=len)


def _draw_groups(
    axes: Any, groups: Sequence[Group], colours: Mapping[str, str], theme: Theme
) -> None:
    place, ticks, named = 0.0, list[float](), set[str]()
    for group in groups:
        ticks.append(place + (len(group.bars) - 1) / 2)
        for bar in group.bars:
            is_first = bar.implementation not in named
            named.add(bar.implementation)
            label = bar.implementation if is_first else None
            _draw_bar(axes, place, bar, (colours[bar.implementation], theme), label)
            place += 1
        place += GAP_BARS
    axes.set_yticks(ticks, [group.label for group in groups])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(place - GAP_BARS - 0.2, -0.8)


def _draw_bar(
    axes: Any, place: float, bar: Bar, look: tuple[str, Theme], label: str | None
) -> None:
    colour, theme = look
    speedup = bar.speedup or 1.0
    axes.barh(place, speedup - 1.0, left=1.0, height=0.82, color=colour, label=label, zorder=2)
    axes.annotate(
        bar.text,
        (max(speedup, 1.0), place),
        xytext=(5, 0),
        textcoords="offset points",
        va="center",
        fontsize=8,
        color=theme.ink if bar.speedup else theme.failure,
    )
