"""One HTML page about a finished benchmark: self-contained, with its pictures and all failures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from tilesmith.bench import row
from tilesmith.bench.implementations import EAGER
from tilesmith.bench.journal import Results
from tilesmith.bench.report import pictures
from tilesmith.bench.summary import disturbance_text, ending_text
from tilesmith.bench.tables import Column, columns_for, speedup_text
from tilesmith.diagnostics.wording import counted, first_line
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
            pages.section("Configs", _configs(rows)),
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
    opened = f"<summary>{escape(first)}</summary><pre>{escape(reason.strip())}</pre>"
    return f'<td class="config"><details>{opened}</details></td>'


def _speedups(rows: Sequence[row.Row], operators: Mapping[str, Sequence[row.Row]]) -> str:
    words = "Means are over inputs on which both the implementation and eager ran undisturbed."
    shown = [pages.picture(partial(pictures.draw_geomeans, rows), "geometric means of speedups")]
    detailed = operators if len(operators) <= MAX_DETAILED else ()
    shown += [
        pages.picture(partial(pictures.draw_inputs, n, rows), f"speedups of {n}") for n in detailed
    ]
    found = "\n".join(filter(None, shown))
    return pages.note(words) + found if found else ""


def _rooflines(results: Results) -> str:
    rows = results.rows
    limits = pictures.find_limits(results.environment, rows)
    shown = [
        pages.picture(partial(pictures.draw_roofline, rows, limits), "roofline"),
        pages.picture(partial(pictures.draw_bandwidth, rows, limits), "memory bandwidth"),
    ]
    found = "\n".join(filter(None, shown))
    words = (
        "Lines are what the device model takes for its limits: rates that good kernels reach, "
        "below the vendor's peaks. Bytes are those that have to move at least; what stays in a "
        "cache can lie above the line."
    )
    return pages.note(words) + found if found else ""


def _operator(rows: Sequence[row.Row]) -> str:
    """All rows of an operator, grouped by input."""
    columns = columns_for(rows)
    most = max((row.speedup_of(item) or 0.0 for item in rows), default=0.0)
    heads = ["input", "implementation", *(column.heading for column in columns), ""]
    groups: dict[tuple[str, str], list[row.Row]] = {}
    for item in rows:
        groups.setdefault((item.input_label, item.dtype), []).append(item)
    made: list[str] = []
    for (label, dtype), group in groups.items():
        lines = [line for item in group for line in _lines(item, columns, most)]
        kind = f'<br><span class="soft">{escape(dtype)}</span>' if dtype else ""
        first = f'<td rowspan="{len(lines)}">{escape(label)}{kind}</td>'
        made.append(pages.row([first, lines[0]], "first"))
        made += [pages.row([line]) for line in lines[1:]]
    averages = [
        f"{name} {average}" for name, average in row.average_speedups(rows).items() if average.count
    ]
    words = f"Geometric means: {', '.join(averages)}." if averages else ""
    shown = pages.table(heads, made, range(2, 2 + len(columns)), "groups")
    return (pages.note(words) if words else "") + shown


def _lines(item: row.Row, columns: Sequence[Column], most: float) -> list[str]:
    """The cells of a row, and of a second one where there is something to say of its numbers."""
    if item.status is not row.Status.OK:
        style = "failed" if item.blame else "soft"
        name = f'<td class="{style}">{escape(item.implementation)}</td>'
        return [name + _spanning(ending_text(item), len(columns) + 1, style)]
    numbers = "".join(pages.cell(column.text(item), "number") for column in columns)
    made = [f"{pages.cell(item.implementation)}{numbers}<td>{_bar(item, most)}</td>"]
    remark = "; ".join(filter(None, (item.fallback, first_line(item.reason))))
    return made + ([_spanning(remark, len(columns) + 2, "soft")] if remark else [])


def _spanning(text: str, num_columns: int, style: str) -> str:
    return f'<td class="{style}" colspan="{num_columns}">{escape(text)}</td>'


def _bar(item: row.Row, most: float) -> str:
    speedup = row.speedup_of(item)
    if speedup is None:
        return ""
    kind = "bar good" if item.owner is row.Owner.OURS else "bar other"
    return f'<div class="{kind}" style="width:{BAR_PIXELS * speedup / most:.0f}px"></div>'


def _configs(rows: Sequence[row.Row]) -> str:
    made: list[str] = []
    for item in rows:
        if item.config:
            where = f"{item.operator} {item.input_label} {item.dtype}".strip()
            config = pages.code_cell(paste_text(item.config), "config")
            made.append(pages.row([pages.cell(where), pages.cell(item.implementation), config]))
    words = f"{counted(len(made), 'config')}, as they can be pasted into a decorator."
    shown = pages.note(words) + pages.table(["input", "implementation", "config"], made)
    return shown if made else ""


def paste_text(config: str) -> str:
    """A config under the name that it has for users.

    Example:
        >>> paste_text("Config(num_warps=4)")
        'tilesmith.Config(num_warps=4)'
    """
    return re.sub(r"(?<![.\w])Config\(", "tilesmith.Config(", config)


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
