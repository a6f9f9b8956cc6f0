"""What pages of reports are made of: HTML in which all text is escaped, pictures as SVG in it.

Pages follow the reader's theme. Their only script sorts and filters tables.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

from tilesmith.lab.drawing import chart

STYLE = Path(__file__).with_suffix(".css")
SCRIPT = chart.STYLE.with_name("tables.js")
FEW_ROWS = 8
"""Tables with more can be filtered."""


def document(title: str, sections: Iterable[str]) -> str:
    """The page; empty sections are left out."""
    style = STYLE.read_text() + chart.STYLE.read_text()
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        + "\n".join(filter(None, sections))
        + f"\n<script>\n{SCRIPT.read_text()}</script>\n</body>\n</html>\n"
    )


def section(title: str, content: str) -> str:
    """A heading and what follows; nothing where there is no content."""
    return f"<section>\n<h2>{escape(title)}</h2>\n{content}\n</section>" if content else ""


def figures(cards: Iterable[tuple[str, str]]) -> str:
    """Numbers to be seen first, each with its meaning."""
    shown = "".join(
        f'<div class="figure"><b>{escape(value)}</b><span>{escape(what)}</span></div>'
        for value, what in cards
    )
    return f'<div class="figures">{shown}</div>'


def note(text: str) -> str:
    """A sentence in a soft colour."""
    return f'<p class="soft">{escape(text)}</p>\n'


def unfold(summary: str, *parts: str) -> str:
    """A line of plain text, with HTML behind it that is shown when it is clicked."""
    return f"<details><summary>{escape(summary)}</summary>{''.join(parts)}</details>"


def pre(text: str) -> str:
    """Program text in lines of its own."""
    return f"<pre>{escape(text)}</pre>"


def pictures(*drawn: str | None) -> str:
    """Those pictures that there are, each of which scrolls where it would be too small to read."""
    return "\n".join(f'<div class="wide">{picture}</div>' for picture in drawn if picture)


def facts_table(values: Mapping[str, str]) -> str:
    """Names and values; those without a value are left out."""
    rows = [row([cell(name), cell(value)]) for name, value in values.items() if value]
    return table((), rows, style="facts") if rows else ""


def table(
    names: Sequence[str], rows: Iterable[str], numbers: Container[int] = (), style: str = ""
) -> str:
    """A table that scrolls where it is too wide; ``numbers`` are the columns that hold numbers.

    One with the style ``sortable`` is sorted by its headings and, with many rows, filtered.
    """
    heads = "".join(
        _element("th", escape(name), "number" if place in numbers else "")
        for place, name in enumerate(names)
    )
    listed = list(rows)
    head = f"<thead><tr>{heads}</tr></thead>\n" if heads else ""
    content = "\n".join([f"{head}<tbody>", *listed, "</tbody>"])
    is_long = "sortable" in style and len(listed) > FEW_ROWS
    field = '<input class="filter" type="search" placeholder="filter" aria-label="filter rows">'
    return f'{field if is_long else ""}<div class="wide">{_element("table", content, style)}</div>'


def row(cells: Iterable[str], style: str = "") -> str:
    """One row of cells."""
    return _element("tr", "".join(cells), style)


def cell(text: str, style: str = "") -> str:
    """A cell of words; ``number`` aligns it to the right."""
    return _element("td", escape(text), style)


def code_cell(text: str, style: str = "") -> str:
    """A cell of program text."""
    return _element("td", f"<code>{escape(text)}</code>", style)


def _element(tag: str, content: str, style: str) -> str:
    kind = f' class="{style}"' if style else ""
    return f"<{tag}{kind}>{content}</{tag}>"
