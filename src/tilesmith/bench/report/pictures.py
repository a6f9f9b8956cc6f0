"""Pictures of a run, as SVG: speedups as bars, and its roofline.

The roofline shows work for each byte against TFLOP/s, or bytes against GB/s.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

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
from tilesmith.lab.drawing.chart import (
    SHAPES,
    Bar,
    Chart,
    Dots,
    Group,
    Point,
    draw_bars,
    standalone,
)
from tilesmith.lab.drawing.scale import Scale
from tilesmith.schedule.model.estimates import Device
from tilesmith.targets import parse_target

NUM_COLOURS = 8
LABEL = "speedup over eager (log scale)"


def draw_geomeans(rows: Sequence[Row]) -> str | None:
    """One group for each operator; None where no row has a speedup."""
    groups = [_means(name, found) for name, found in by_operator(rows).items()]
    if len(groups) > 1:
        groups.append(_means("all operators", rows))
    return draw_bars(groups, "Geometric means of speedups over eager", styles_of(rows), LABEL)


def draw_inputs(operator: str, rows: Sequence[Row]) -> str | None:
    """One group for each input of an operator, and one for their geometric means."""
    mine = by_operator(rows)[operator]
    inputs: dict[str, list[Bar]] = {}
    for row in mine:
        if row.implementation != EAGER and row.status is not Status.UNAVAILABLE:
            inputs.setdefault(_input_text(row, mine), []).append(_input_bar(row))
    groups = [Group(label, bars) for label, bars in inputs.items()]
    groups.append(_means("geometric mean", mine))
    return draw_bars(groups, f"{operator}: speedups over eager", styles_of(rows), LABEL)


def styles_of(rows: Sequence[Row]) -> dict[str, str]:
    """A colour for each implementation, by its name, the same in all pictures of a run."""
    names = [name for name in implementation_names(rows) if name != EAGER]
    styles = {name: f"series{place % NUM_COLOURS}" for place, name in enumerate(names)}
    return {**styles, EAGER: "plain"}


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


def draw_roofline(rows: Sequence[Row], limits: Limits | None) -> str | None:
    """Rows that count operations, below what the device can do; None if there are none."""
    found = [row for row in rows if intensity_of(row) is not None]
    if not found:
        return None
    points = [(intensity_of(row) or 0.0, row.tflops or 0.0) for row in found]
    across = Scale.around([x for x, _ in points], 2)
    heights = [y for _, y in points]
    if limits is not None and limits.tflops:
        corners = [peak * 1e3 / limits.dram_gbps for peak in limits.tflops.values()]
        low, high = min(across.low, *(c / 4 for c in corners)), max(across.high / 2, *corners) * 2
        across, heights = Scale(low, high, is_log=True), [*heights, *limits.tflops.values()]
    labels = ("work for each byte that has to move, FLOP/byte", "TFLOP/s")
    chart = Chart(_title("Roofline", limits), across, Scale.around(heights), labels)
    if limits is not None:
        _draw_roofs(chart, limits)
    _draw_rows(chart, found, points, styles_of(rows))
    return chart.text()


def draw_bandwidth(rows: Sequence[Row], limits: Limits | None) -> str | None:
    """Rows that only move bytes, below the rate of the memory; None if there are none."""
    found = [row for row in rows if _is_timed(row) and row.gbps and not row.tflops]
    if not found:
        return None
    # A rate times a time is what had to move.
    points = [((row.gbps or 0.0) * (row.latency_ms or 0.0), row.gbps or 0.0) for row in found]
    heights = [y for _, y in points] + ([limits.dram_gbps] if limits is not None else [])
    labels = ("bytes that have to move, MB", "GB/s")
    across = Scale.around([x for x, _ in points])
    chart = Chart(_title("Memory bandwidth", limits), across, Scale.around(heights), labels)
    if limits is not None:
        label = f"memory, {number_text(limits.dram_gbps)} GB/s"
        chart.level(limits.dram_gbps, "roof dashed", label)
    _draw_rows(chart, found, points, styles_of(rows))
    return chart.text()


def intensity_of(row: Row) -> float | None:
    """Operations for each byte; None where one of them is not counted."""
    if not _is_timed(row) or not row.tflops or not row.gbps:
        return None
    return row.tflops * 1e3 / row.gbps


def _is_timed(row: Row) -> bool:
    return row.status is Status.OK and bool(row.latency_ms) and not row.is_disturbed


def _draw_rows(
    chart: Chart, rows: Sequence[Row], points: Sequence[Point], styles: Mapping[str, str]
) -> None:
    """A mark for each row: colour and shape tell the implementation, also where colours repeat."""
    for number, (name, style) in enumerate(styles.items()):
        mine = [(row, point) for row, point in zip(rows, points) if row.implementation == name]
        tips = [
            f"{name}: {row.operator} {row.input_label} {row.dtype}, "
            f"{number_text(row.latency_ms or 0.0)} ms, {number_text(point[1])} {chart.labels[1]}"
            for row, point in mine
        ]
        shape = SHAPES[(number + number // len(SHAPES)) % len(SHAPES)]
        chart.dots(Dots([point for _, point in mine], style, name, tips, 4.0, shape))


def _draw_roofs(chart: Chart, limits: Limits) -> None:
    """The slope of the memory and the level of each kind of arithmetic."""
    slope, x = limits.dram_gbps / 1e3, chart.x
    top = max(limits.tflops.values(), default=slope * x.high)
    first = max(x.low, chart.y.low / slope)
    label = f"memory, {number_text(limits.dram_gbps)} GB/s"
    chart.line([(first, first * slope), (top / slope, top)], "roof dashed", label)
    for name, peak in limits.tflops.items():
        chart.line([(peak / slope, peak), (x.high, peak)], "roof")
        chart.note((x.high, peak), f"{name}: {number_text(peak)} TFLOP/s", "roof")


def _title(what: str, limits: Limits | None) -> str:
    return what if limits is None else f"{what} of {limits.device}"


def write_pictures(results: Results, folder: Path) -> list[Path]:
    """Write those pictures that the rows are enough for; the paths of what was written."""
    rows = results.rows
    limits = find_limits(results.environment, rows)
    draws: dict[str, Callable[[], str | None]] = {
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
            path = folder / (re.sub(r"[^-.+\w]", "_", name) + ".svg")
            path.write_bytes(standalone(content))
            written.append(path)
    return written
