"""One HTML page about a finished benchmark: self-contained, with its pictures and all failures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from tilesmith.bench import row
from tilesmith.bench.implementations import EAGER
from tilesmith.bench.journal import Results
from tilesmith.bench.report import pictures
from tilesmith.bench.summary import disturbance_text, ending_text
from tilesmith.bench.tables import Column, columns_for, paste_text, speedup_text
from tilesmith.diagnostics.wording import first_line
from tilesmith.lab import pages

MAX_DETAILED = 4
"""Up to so many operators, pictures show their inputs; tables always do."""
BAR_PIXELS = 90


def make_page(results: Results) -> str:
    """The page, from the rows of a run."""
    rows = results.rows
    operators = row.by_operator(rows)
    warning = disturbance_text(rows)
    return pages.document(
        "Benchmark",
        (
            _heading(results),
            f'<p class="failed">{escape(warning)}</p>\n' if warning else "",
            pages.figures(_figures(rows)),
            pages.section("Failures", _failures(row.failures(rows))),
            pages.section("Speedups", _speedups(rows, operators)),
            pages.section("Roofline", _rooflines(results)),
            *(pages.section(name, _operator(found)) for name, found in operators.items()),
            pages.section("Environment", pages.facts_table(results.environment)),
            pages.section("Options", _options(results)),
        ),
    )


def _heading(results: Results) -> str:
    device = results.environment.get("device", "")
    where = f" on {device}" if device else ""
    names = ", ".join(row.by_operator(results.rows))
    timers = ", ".join(dict.fromkeys(item.timer for item in results.rows if item.timer))
    how = f"timed by {timers}; " if timers else ""
    return (
        f"<header><h1>Benchmark{escape(where)}</h1>\n"
        + pages.note(names)
        + pages.note(f"{how}speedups are over eager, timed in turns in the same process")
        + "</header>"
    )


def _figures(rows: Sequence[row.Row]) -> Iterable[tuple[str, str]]:
    """The numbers at the top: value and meaning."""
    for name, average in row.average_speedups(rows).items():
        if name != EAGER and average.value is not None:
            words = f"{name}, geomean of {average.count_text}"
            yield speedup_text(average.value), words
    blamed = [item.blame for item in row.failures(rows)]
    yield str(blamed.count("ours failed")), "failures of ours"
    yield str(blamed.count("theirs failed")), "failures of others"
    if "harness failed" in blamed:
        yield str(blamed.count("harness failed")), "failures of the harness"
    seconds = sum(item.seconds or 0.0 for item in rows)
    yield str(len(rows)), f"rows in {seconds / 60:.1f} minutes" if seconds else "rows"


def _failures(failed: Sequence[row.Row]) -> str:
    rows: list[str] = []
    for item in failed:
        where = f"{item.operator} {item.input_label}"
        words = (item.blame, item.implementation, where, item.cause.value)
        style = "ours" if item.owner is row.Owner.OURS else ""
        rows.append(pages.row([*map(pages.cell, words), _reason_cell(item.reason)], style))
    heads = ["who", "implementation", "input", "what", "reason"]
    return pages.table(heads, rows) if rows else pages.note("None.")


def _reason_cell(reason: str) -> str:
    """The first line; all of it when opened."""
    first = first_line(reason, 200)
    if first == reason.strip():
        return f'<td class="config">{escape(first)}</td>'
    opened = pages.unfold(first, pages.pre(reason.strip()))
    return f'<td class="config">{opened}</td>'


def _speedups(rows: Sequence[row.Row], operators: Mapping[str, Sequence[row.Row]]) -> str:
    words = "Means are over inputs on which both the implementation and eager ran undisturbed."
    shown = [pictures.draw_geomeans(rows)]
    detailed = operators if len(operators) <= MAX_DETAILED else ()
    shown += [pictures.draw_inputs(name, rows) for name in detailed]
    found = pages.pictures(*shown)
    return pages.note(words) + found if found else ""


def _rooflines(results: Results) -> str:
    rows = results.rows
    limits = pictures.find_limits(results.environment, rows)
    shown = [pictures.draw_roofline(rows, limits), pictures.draw_bandwidth(rows, limits)]
    found = pages.pictures(*shown)
    words = (
        "Lines are what the device model takes for its limits: rates that good kernels reach, "
        "below the vendor's peaks. Bytes are those that have to move at least; what stays in a "
        "cache can lie above the line."
    )
    return pages.note(words) + found if found else ""


def _operator(rows: Sequence[row.Row]) -> str:
    """All rows of an operator; one with a config shows it when it is opened."""
    columns = columns_for(rows)
    most = max((row.speedup_of(item) or 0.0 for item in rows), default=0.0)
    kinds = list(dict.fromkeys(item.dtype for item in rows if item.dtype))
    dtypes = ["type"] if len(kinds) > 1 else []
    heads = ["input", *dtypes, "implementation", *(column.heading for column in columns), ""]
    made: list[str] = []
    before: list[str] = []
    for item in rows:
        where = [item.input_label, *([item.dtype] if dtypes else [])]
        cells = [*map(pages.cell, where), *_cells(item, columns, most)]
        made.append(pages.row(cells, "first" if where != before else ""))
        before = where
    averages = [
        f"{name} {average}" for name, average in row.average_speedups(rows).items() if average.count
    ]
    words = f"Geometric means: {', '.join(averages)}. " if averages else ""
    words += f"All in {kinds[0]}." if len(kinds) == 1 else ""
    first = len(dtypes) + 2
    shown = pages.table(heads, made, range(first, first + len(columns)), "sortable")
    return (pages.note(words) if words else "") + shown


def _cells(item: row.Row, columns: Sequence[Column], most: float) -> list[str]:
    """The implementation, with its config behind it, and its numbers, or how it ended."""
    name = escape(item.implementation)
    if item.config:
        parts = [pages.pre(text) for text in (paste_text(item.config), item.code) if text]
        name = pages.unfold(item.implementation, *parts)
    if item.status is not row.Status.OK:
        style = "failed" if item.blame else "soft"
        span = f'<td class="{style}" colspan="{len(columns) + 1}">'
        return [f'<td class="{style}">{name}</td>', f"{span}{escape(ending_text(item))}</td>"]
    remark = "; ".join(filter(None, (item.fallback, first_line(item.reason))))
    told = f'<br><span class="soft">{escape(remark)}</span>' if remark else ""
    numbers = [pages.cell(column.text(item), "number") for column in columns]
    return [f"<td>{name}{told}</td>", *numbers, f"<td>{_bar(item, most)}</td>"]


def _bar(item: row.Row, most: float) -> str:
    speedup = row.speedup_of(item)
    if speedup is None:
        return ""
    kind = "bar good" if item.owner is row.Owner.OURS else "bar other"
    return f'<div class="{kind}" style="width:{BAR_PIXELS * speedup / most:.0f}px"></div>'


def _options(results: Results) -> str:
    """What was asked for, other than nothing."""
    chosen: Mapping[str, Any] = results.run.get("options", {})
    texts: dict[str, str] = {}
    for name, value in chosen.items():
        listed = value if isinstance(value, (list, tuple)) else [value] if value else []
        texts[name] = "yes" if value is True else ", ".join(map(str, listed))
    return pages.facts_table(texts)


def write_page(results: Results, path: Path) -> None:
    """Write one self-contained HTML file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(make_page(results), encoding="utf-8")
