"""Writes the page of a run, and its pictures beside it."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tilesmith.bench.averages import by_operator
from tilesmith.bench.report.bars import draw_geomeans, draw_inputs
from tilesmith.bench.report.html import Results, make_page
from tilesmith.bench.report.roofline import draw_bandwidth, draw_roofline


def write_page(results: Results, path: Path) -> None:
    """Write one self-contained HTML file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(make_page(results), encoding="utf-8")


def write_pictures(results: Results, folder: Path) -> list[Path]:
    """Write those pictures that the rows are enough for; the paths of what was written."""
    rows, limits = results.rows, results.limits
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
            path = folder / f"{_file_name(name)}.png"
            path.write_bytes(content)
            written.append(path)
    return written


def _file_name(text: str) -> str:
    """Operators may be called anything."""
    return re.sub(r"[^-.+\w]", "_", text)
