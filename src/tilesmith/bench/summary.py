"""A finished run in the terminal: one table for each operator, averages, failures with reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tilesmith.bench.row import (
    INTERPRETED,
    Owner,
    Row,
    Status,
    average_speedups,
    by_operator,
    disturbed_rows,
    failures,
    is_speedup_disturbed,
)
from tilesmith.bench.tables import Column, columns_for
from tilesmith.diagnostics.wording import counted, first_line

PIPED_WIDTH, GAP = 160, 3
"""Of all columns, and between two of them."""
MEANS = "geometric means of speedups"
MEANS_NOTE = "over inputs on which both it and eager ran undisturbed; counts in brackets"
_BLAME_STYLES = {"ours failed": "bold red", "harness failed": "bold magenta"}


def print_summary(rows: Sequence[Row], metrics: Sequence[str], console: Console) -> None:
    """Everything, on a console; piped text is as wide as it needs to be."""
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    for part in summary(rows, metrics, console.width):
        console.print(part, soft_wrap=isinstance(part, Text))


def summary(
    rows: Sequence[Row], metrics: Sequence[str], width: int = PIPED_WIDTH
) -> Iterator[RenderableType]:
    """What is printed, part by part."""
    operators = by_operator(rows)
    for name, found in operators.items():
        wanted = columns_for(found, metrics)
        columns = fitting_columns(found, wanted, width)
        if wanted and not columns:  # a terminal without room for a single one
            yield from (Text(row_line(row), style=_row_style(row)) for row in found)
            yield Text()
        else:
            yield Group(_rows_table(name, found, columns), Text())
    if "speedup" in metrics:
        yield from _average_parts(operators, rows, width)
    failed = failures(rows)
    for row in failed:
        yield Text(row_line(row), style="red" if row.owner is Owner.OURS else "yellow")
    if failed:
        yield Text()
    yield from map(Text, (*fallback_texts(rows), *note_texts(rows), *absence_texts(rows)))
    yield Text(counts_text(rows))
    warning = disturbance_text(rows)
    if warning:
        yield Text(warning, style="yellow")


def absence_texts(rows: Sequence[Row]) -> list[str]:
    """What could not run here and why, one line for each implementation and reason."""
    absent = [row for row in rows if row.status is Status.UNAVAILABLE]
    return _tallied(f"{r.implementation} was not available: {first_line(r.reason)}" for r in absent)


def _tallied(texts: Iterable[str]) -> list[str]:
    """Each text once, with the number of rows that it is said of."""
    return [f"{text} ({counted(count, 'row')})" for text, count in Counter(texts).items()]


def fallback_texts(rows: Sequence[Row]) -> list[str]:
    """Which times are not those of a first choice, and why: a line for each reason."""
    return _tallied(
        f"{row.operator} {row.implementation} fell back: {first_line(row.fallback)}"
        for row in rows
        if row.fallback
    )


def note_texts(rows: Sequence[Row]) -> list[str]:
    """What is missing from rows that have a time, such as a check of their results."""
    noted = [row for row in rows if row.status is Status.OK and row.reason]
    return _tallied(f"{r.operator} {r.implementation}: {first_line(r.reason)}" for r in noted)


def disturbance_text(rows: Sequence[Row]) -> str:
    """A warning where other work on the machine had the cores; nothing where none had."""
    disturbed = disturbed_rows(rows)
    if not disturbed:
        return ""
    left_out = sum(map(is_speedup_disturbed, disturbed))
    means = f", {counted(left_out, 'speedup')} left out of means" if left_out else ""
    return (
        f"the machine was busy: {counted(len(disturbed), 'row')} disturbed{means}; "
        "--resume --retry-disturbed runs them again"
    )


def counts_text(rows: Sequence[Row]) -> str:
    """How many rows there are, and how they ended."""
    blamed = [row.blame for row in failures(rows)]
    parts = [f"{sum(row.status is Status.OK for row in rows)} ok"]
    parts += [f"{blamed.count(blame)} {blame}" for blame in dict.fromkeys(blamed)]
    absent = sum(row.status is Status.UNAVAILABLE for row in rows)
    parts += [f"{absent} not available"] if absent else []
    return f"{counted(len(rows), 'row')}: {', '.join(parts)}"


def row_line(row: Row) -> str:
    """One row in one line: its time, or why it has none."""
    name = f"{row.operator} {row.input_label} {row.implementation}"
    if row.status is not Status.OK or row.latency_ms is None:
        return f"{name}: {ending_text(row)}"
    shown = [column.text(row) for column in columns_for([row], ("latency", "speedup"))]
    remarks = "; ".join(filter(None, (_remark(row), first_line(row.reason))))
    end = f"({remarks})" if remarks else ""
    return f"{name}: {shown[0]} ms {' '.join([*shown[1:], end])}".rstrip()


def ending_text(row: Row) -> str:
    """How a row without a time ended, and why."""
    return ": ".join(filter(None, (short_ending(row), first_line(row.reason))))


def short_ending(row: Row) -> str:
    """Who failed, and how."""
    return ": ".join(filter(None, (row.blame or row.status.value, row.cause.value)))


def fitting_columns(rows: Sequence[Row], columns: Sequence[Column], width: int) -> list[Column]:
    """Those that fit beside the names of the rows, and beside what is said of failures."""
    names = [f"{_input_text(row)}{row.implementation}" for row in rows]
    endings = list(map(_remark, rows))
    used = _longest(names) + 2 * GAP + _longest(endings) + GAP
    fitting: list[Column] = []
    for column in columns:
        used += _longest([column.heading, *map(column.text, rows)]) + GAP
        if used > width:
            break
        fitting.append(column)
    return fitting


def _longest(texts: Iterable[str]) -> int:
    return max(map(len, texts), default=0)


def _input_text(row: Row) -> str:
    return " ".join(filter(None, (row.input_label, row.dtype)))


def _rows_table(name: str, rows: Sequence[Row], columns: Sequence[Column]) -> Table:
    table = _new_table(name)
    table.add_column("input", no_wrap=True)
    table.add_column("implementation", no_wrap=True)
    for column in columns:
        table.add_column(column.heading, justify="right", no_wrap=True)
    table.add_column("")
    before = ""
    for row in rows:
        label = _input_text(row)
        if before and label != before:
            table.add_section()
        shown = label if label != before else ""
        texts = [shown, row.implementation, *(column.text(row) for column in columns), _remark(row)]
        table.add_row(*map(Text, texts), style=_row_style(row))
        before = label
    return table


def _new_table(title: str) -> Table:
    # Names come from outside: as Text their brackets are no markup.
    return Table(title=Text(title, style="bold"), box=SIMPLE_HEAD, title_justify="left")


def _remark(row: Row) -> str:
    """What stands behind the numbers of a row."""
    if row.status is not Status.OK:
        return short_ending(row)
    if row.fallback == INTERPRETED:
        return "interpreted"
    return "fallback config" if row.fallback else ""


def _row_style(row: Row) -> str:
    if row.status is Status.UNAVAILABLE:
        return "dim"
    return _BLAME_STYLES.get(row.blame, "yellow" if row.blame else "")


def _average_parts(
    operators: dict[str, list[Row]], rows: Sequence[Row], width: int
) -> Iterator[RenderableType]:
    """Geometric means by operator, and over all where there are several."""
    everything = average_speedups(rows)
    names = [name for name, item in everything.items() if item.count or item.num_disturbed]
    if not names:
        return
    lines = {operator: average_speedups(found) for operator, found in operators.items()}
    if len(operators) > 1:
        lines["all"] = everything
    cells = {
        label: [str(found[name]) if name in found else "" for name in names]
        for label, found in lines.items()
    }
    columns = [lines, *([name, *texts] for name, *texts in zip(names, *cells.values()))]
    if sum(_longest(column) + GAP for column in columns) <= width:
        yield _averages_table(names, cells)
    else:  # as where each of many operators has kernels of its own
        yield Text(MEANS, style="bold")
        for label, texts in cells.items():
            known = (f"{name} {text}" for name, text in zip(names, texts) if text)
            yield Text(f"  {label}: {', '.join(known)}")
    yield Group(Text(MEANS_NOTE), "")


def _averages_table(names: Sequence[str], cells: dict[str, list[str]]) -> Table:
    table = _new_table(MEANS)
    table.add_column("")
    for name in names:
        table.add_column(Text(name), justify="right")
    for label, texts in cells.items():
        is_all = label == "all" and len(cells) > 1
        if is_all:
            table.add_section()
        table.add_row(Text(label), *texts, style="bold" if is_all else "")
    return table
