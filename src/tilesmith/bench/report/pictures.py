"""Pictures of a run, as PNG: speedups as bars, and its roofline.

The roofline shows work for each byte against TFLOP/s, or bytes against GB/s.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tilesmith.backends.table import BACKENDS
from tilesmith.bench.implementations import EAGER
from tilesmith.bench.journal import Results
from tilesmith.bench.row import (
    RATE_CLASSES,
    Row,
    Status,
    average_speedups,
    by_operator,
    implementation_names,
    is_speedup_disturbed,
    speedup_of,
)
from tilesmith.bench.tables import COLUMNS, DISTURBED, speedup_text
from tilesmith.diagnostics.wording import number_text
from tilesmith.lab.pages import LIGHT, Theme, finish, format_log_axis, new_figure
from tilesmith.schedule.model.estimates import Device
from tilesmith.targets import parse_target

WIDTH = 9.6
BAR_INCHES = 0.21
MAX_MARKS = 9
GAP_BARS = 0.8
"""Between groups, in bars."""
HEIGHT = 5.4
MARKERS = "osD^vPX*"
Point = tuple[float, float]


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
        words = COLUMNS["speedup"][0].text(row)
    elif row.blame:
        words = row.cause.value or "failed"
    else:
        words = DISTURBED if is_speedup_disturbed(row) else "no baseline"
    return Bar(row.implementation, speedup, words)


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
    return finish(figure, title, theme)


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


@dataclass(frozen=True)
class Limits:
    """Of one device, as far as they matter to the rows of a run."""

    device: str
    dram_gbps: float
    tflops: Mapping[str, float]
    """Of matrix products, by what their elements are called."""


def find_limits(environment: Mapping[str, str], rows: Sequence[Row]) -> Limits | None:
    """The limits of the device named in an environment; None where it names none."""
    try:
        target = parse_target(environment.get("target", ""))
    except ValueError:
        return None
    cores = environment.get("cores", "")
    if cores.isdecimal():
        target = replace(target, num_sms=int(cores))
    if "matrix tiles" in environment:
        target = replace(target, features=f"+{environment['matrix tiles']}")
    device = BACKENDS.rules(replace(target, model=environment.get("device", ""))).device()
    name = environment.get("device") or device.name
    return Limits(name, device.dram_rate, _peaks(device, rows))


def _peaks(device: Device, rows: Sequence[Row]) -> dict[str, float]:
    """Of the types that occur; types with the same rate share a line."""
    classes = {
        name: rate_class
        for row in rows
        for name, rate_class in RATE_CLASSES.get(row.dtype, {}).items()
    }
    peaks: dict[float, list[str]] = {}
    for name, rate_class in classes.items():
        peaks.setdefault(device.matrix_rate(rate_class) / 1e3, []).append(name)
    return {", ".join(names): peak for peak, names in peaks.items()}


def draw_roofline(rows: Sequence[Row], limits: Limits | None, theme: Theme = LIGHT) -> bytes | None:
    """Rows that count operations, below what the device can do; None if there are none."""
    found = [row for row in rows if intensity_of(row) is not None]
    if not found:
        return None
    figure, axes = new_figure((WIDTH, HEIGHT), theme)
    places = [(intensity_of(row) or 0.0, row.tflops or 0.0) for row in found]
    points = _scatter(axes, found, places, colours_of(rows, theme))
    low, high = min(x for x, _ in points) / 2, max(x for x, _ in points) * 2
    heights = [y for _, y in points]
    if limits is not None:
        low, high = _draw_roofs(axes, limits, (low, high), theme)
        heights += limits.tflops.values()
    _scale_both(axes, (low, high), _around(heights))
    axes.set(xlabel="work for each byte that has to move, FLOP/byte", ylabel="TFLOP/s")
    return finish(figure, _title("Roofline", limits), theme)


def draw_bandwidth(
    rows: Sequence[Row], limits: Limits | None, theme: Theme = LIGHT
) -> bytes | None:
    """Rows that only move bytes, below the rate of the memory; None if there are none."""
    found = [row for row in rows if _is_timed(row) and row.gbps and not row.tflops]
    if not found:
        return None
    figure, axes = new_figure((WIDTH, HEIGHT), theme)
    # A rate times a time is what had to move.
    moved = [((row.gbps or 0.0) * (row.latency_ms or 0.0), row.gbps or 0.0) for row in found]
    points = _scatter(axes, found, moved, colours_of(rows, theme))
    heights = [y for _, y in points]
    if limits is not None:
        label = f"memory, {number_text(limits.dram_gbps)} GB/s"
        axes.axhline(limits.dram_gbps, c=theme.roofline, lw=1.6, ls="--", label=label, zorder=1)
        heights.append(limits.dram_gbps)
    _scale_both(axes, _around([x for x, _ in points]), _around(heights))
    axes.set(xlabel="bytes that have to move, MB", ylabel="GB/s")
    return finish(figure, _title("Memory bandwidth", limits), theme)


def intensity_of(row: Row) -> float | None:
    """Operations for each byte; None where one of them is not counted."""
    if not _is_timed(row) or not row.tflops or not row.gbps:
        return None
    return row.tflops * 1e3 / row.gbps


def _is_timed(row: Row) -> bool:
    return row.status is Status.OK and bool(row.latency_ms) and not row.is_disturbed


def _scatter(
    axes: Any, rows: Sequence[Row], places: Sequence[Point], colours: Mapping[str, str]
) -> list[Point]:
    """A mark for each row: colour and shape tell the implementation, also where colours repeat."""
    points: list[Point] = []
    for number, (name, colour) in enumerate(colours.items()):
        mine = [place for row, place in zip(rows, places) if row.implementation == name]
        points += mine
        marker = MARKERS[(number + number // len(MARKERS)) % len(MARKERS)]
        look: dict[str, Any] = {"s": 30, "c": colour, "lw": 0, "alpha": 0.85, "zorder": 3}
        if mine:
            axes.scatter(*zip(*mine), marker=marker, label=name, **look)
    return points


def _draw_roofs(
    axes: Any, limits: Limits, places: tuple[float, float], theme: Theme
) -> tuple[float, float]:
    """The slope of the memory and the level of each kind of arithmetic; where they are drawn."""
    slope = limits.dram_gbps / 1e3
    corners = [peak / slope for peak in limits.tflops.values()]
    low = min([places[0], *(corner / 4 for corner in corners)])
    high = max([places[1], *corners]) * 2
    top = max(limits.tflops.values(), default=slope * high)
    label = f"memory, {number_text(limits.dram_gbps)} GB/s"
    look: dict[str, Any] = {"c": theme.roofline, "lw": 1.6, "zorder": 1}
    axes.plot([low, top / slope], [low * slope, top], ls="--", label=label, **look)
    for name, peak in limits.tflops.items():
        axes.plot([peak / slope, high], [peak, peak], **look)
        axes.annotate(
            f"{name}: {number_text(peak)} TFLOP/s",
            (high, peak),
            xytext=(-4, 4),
            textcoords="offset points",
            ha="right",
            fontsize=8.5,
            color=theme.roofline,
        )
    return low, high


def _scale_both(axes: Any, places: tuple[float, float], heights: tuple[float, float]) -> None:
    axes.set(xscale="log", yscale="log", xlim=places, ylim=heights)
    format_log_axis(axes.xaxis, *places)
    format_log_axis(axes.yaxis, *heights)


def _around(values: Sequence[float]) -> tuple[float, float]:
    return min(values) / 1.6, max(values) * 1.6


def _title(what: str, limits: Limits | None) -> str:
    return what if limits is None else f"{what} of {limits.device}"


def write_pictures(results: Results, folder: Path) -> list[Path]:
    """Write those pictures that the rows are enough for; the paths of what was written."""
    rows = results.rows
    limits = find_limits(results.environment, rows)
    draws: dict[str, Callable[[], bytes | None]] = {
        "speedups": lambda: draw_geomeans(rows),
        "roofline": lambda: draw_roofline(rows, limits),
        "bandwidth": lambda: draw_bandwidth(rows, limits),
        **{f"speedups-{name}": partial(draw_inputs, name, rows) for name in by_operator(rows)},
    }
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for name, draw in draws.items():
        content = draw()
        if content is not None:
            # Operators may be called anything.
            path = folder / (re.sub(r"[^-.+\w]", "_", name) + ".png")
            path.write_bytes(content)
            written.append(path)
    return written
