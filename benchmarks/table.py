"""Print rows of text as a table: with rich where it is installed, aligned plain text elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

try:
    from rich.console import Console
    from rich.table import Table
except ImportError:  # a device machine may have torch and triton only
    Console = None
    Table = None

PLAIN_WIDTH = 170


def print_table(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print one table; columns whose cells all look like numbers are aligned to the right."""
    right = [_is_numeric([row[column] for row in rows]) for column in range(len(headers))]
    if Console is None or Table is None:
        print(plain_table(title, headers, rows))
        return
    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH)
    table = Table(title=title)
    for header, is_right in zip(headers, right):
        table.add_column(header, justify="right" if is_right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell.replace("[", r"\[") for cell in row))
    console.print(table)


def plain_table(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The same as aligned text."""
    columns = list(zip(headers, *rows))
    widths = [max(len(cell) for cell in column) for column in columns]
    right = [_is_numeric(column[1:]) for column in columns]
    lines = [_line(headers, widths, right), "  ".join("-" * width for width in widths)]
    lines += [_line(row, widths, right) for row in rows]
    return "\n".join([title, *lines])


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = [
        cell.rjust(width) if is_right else cell.ljust(width)
        for cell, width, is_right in zip(cells, widths, right)
    ]
    return "  ".join(padded).rstrip()


def _is_numeric(cells: Sequence[str]) -> bool:
    return all(cell == "-" or cell[:1].isdigit() for cell in cells)
