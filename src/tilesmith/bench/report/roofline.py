"""The roofline of a run, as PNG: work for each byte against TFLOP/s; bytes against GB/s."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilesmith.backends.table import BACKENDS
from tilesmith.bench.report.bars import WIDTH, colours_of
from tilesmith.bench.row import Row, Status
from tilesmith.diagnostics.wording import number_text
from tilesmith.lab.report.canvas import LIGHT, Theme, format_log_axis, legend, new_figure, png
from tilesmith.schedule.model.device import Device
from tilesmith.targets import parse_target

_RATE_CLASSES = {
    "float64": {"fp64": "f64"},
    "float32": {"fp32": "f32", "tf32": "tf32"},
    "bfloat16": {"16-bit": "f16"},
    "float16": {"16-bit": "f16"},
    "float8_e4m3fn": {"fp8": "f8"},
    "float8_e5m2": {"fp8": "f8"},
    "int8": {"int8": "i8"},
}
HEIGHT = 5.4
MARKERS = "osD^vPX*"
Point = tuple[float, float]


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
        for name, rate_class in _RATE_CLASSES.get(row.dtype, {}).items()
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
    points = _scatter(axes, found, _on_the_roofline, colours_of(rows, theme))
    low, high = min(x for x, _ in points) / 2, max(x for x, _ in points) * 2
    heights = [y for _, y in points]
    if limits is not None:
        low, high = _draw_roofs(axes, limits, (low, high), theme)
        heights += limits.tflops.values()
    _finish(axes, (low, high), (min(heights) / 1.6, max(heights) * 1.6))
    axes.set_xlabel("work for each byte that has to move, FLOP/byte")
    axes.set_ylabel("TFLOP/s")
    _title(axes, "Roofline", limits, theme)
    return png(figure)


def draw_bandwidth(
    rows: Sequence[Row], limits: Limits | None, theme: Theme = LIGHT
) -> bytes | None:
    """Rows that only move bytes, below the rate of the memory; None if there are none."""
    found = [row for row in rows if _is_timed(row) and row.gbps and not row.tflops]
    if not found:
        return None
    figure, axes = new_figure((WIDTH, HEIGHT), theme)
    points = _scatter(axes, found, _on_the_memory, colours_of(rows, theme))
    heights = [y for _, y in points]
    if limits is not None:
        label = f"memory, {number_text(limits.dram_gbps)} GB/s"
        axes.axhline(limits.dram_gbps, c=theme.roofline, lw=1.6, ls="--", label=label, zorder=1)
        heights.append(limits.dram_gbps)
    places = [x for x, _ in points]
    _finish(axes, (min(places) / 1.6, max(places) * 1.6), (min(heights) / 1.6, max(heights) * 1.6))
    axes.set_xlabel("bytes that have to move, MB")
    axes.set_ylabel("GB/s")
    _title(axes, "Memory bandwidth", limits, theme)
    return png(figure)


def intensity_of(row: Row) -> float | None:
    """Operations for each byte; None where one of them is not counted."""
    if not _is_timed(row) or not row.tflops or not row.gbps:
        return None
    return row.tflops * 1e3 / row.gbps


def _on_the_roofline(row: Row) -> Point:
    return intensity_of(row) or 0.0, row.tflops or 0.0


def _on_the_memory(row: Row) -> Point:
    """A rate times a time is what had to move."""
    return (row.gbps or 0.0) * (row.latency_ms or 0.0), row.gbps or 0.0


def _is_timed(row: Row) -> bool:
    return row.status is Status.OK and bool(row.latency_ms) and not row.is_disturbed


def _scatter(
    axes: Any, rows: Sequence[Row], place: Callable[[Row], Point], colours: Mapping[str, str]
) -> list[Point]:
    """A mark for each row: colour and shape tell the implementation, also where colours repeat."""
    points: list[Point] = []
    for number, (name, colour) in enumerate(colours.items()):
        mine = [place(row) for row in rows if row.implementation == name]
        points += mine
        if mine:
            axes.scatter(
                [x for x, _ in mine],
                [y for _, y in mine],
                s=30,
                c=colour,
                marker=MARKERS[(number + number // len(MARKERS)) % len(MARKERS)],
                lw=0,
                alpha=0.85,
                label=name,
                zorder=3,
            )
    return points


def _draw_roofs(
    axes: Any, limits: Limits, places: tuple[float, float], theme: Theme
) -> tuple[float, float]:
    """The slope of the memory and the level of each kind of arithmetic; where they are drawn."""
    slope = limits.dram_gbps / 1e3
    corners = [peak / slope for peak in limits.tflops.values()]
    low, high = (
        min([places[0], *(corner / 4 for corner in corners)]),
        max([places[1], *corners]) * 2,
    )
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


def _finish(axes: Any, places: tuple[float, float], heights: tuple[float, float]) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(*places)
    axes.set_ylim(*heights)
    format_log_axis(axes.xaxis, *places)
    format_log_axis(axes.yaxis, *heights)


def _title(axes: Any, what: str, limits: Limits | None, theme: Theme) -> None:
    where = f" of {limits.device}" if limits is not None else ""
    pad = 14 + 16 * legend(axes, theme)
    axes.set_title(f"{what}{where}", loc="left", color=theme.ink, fontsize=12, pad=pad)
