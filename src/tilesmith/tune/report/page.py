"""The parts that pages of reports are made of: self-contained HTML, everything is escaped."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape

from tilesmith.tune.report.canvas import DARK, LIGHT, PictureError, Theme
from tilesmith.tune.report.page_style import STYLE


def document(title: str, sections: Iterable[str]) -> str:
    """The page; empty sections are left out."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(filter(None, sections))
        + "\n</body>\n</html>\n"
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


def picture(draw: Callable[[Theme], bytes | None], meaning: str, style: str = "") -> str:
    """The picture in both themes, inside the page."""
    try:
        light, dark = draw(LIGHT), draw(DARK)
    except PictureError as error:
        return f'<p class="soft">No picture: {escape(str(error))}.</p>'
    if light is None or dark is None:
        return ""
    source = f'<source srcset="{_data(dark)}" media="(prefers-color-scheme: dark)">'
    image = f'<img class="{style}" src="{_data(light)}" alt="{escape(meaning)}">'
    return f"<picture>{source}{image}</picture>"


def facts_table(values: Mapping[str, str]) -> str:
    """Names and values; those without a value are left out."""
    rows = [
        row([f"<td>{escape(name)}</td>", f"<td>{escape(value)}</td>"])
        for name, value in values.items()
        if value
    ]
    return table("", rows, "facts") if rows else ""


def table(head: str, rows: Sequence[str], style: str = "") -> str:
    """A table that scrolls where it is too wide."""
    tag = f'<table class="{style}">' if style else "<table>"
    return f'<div class="wide">{tag}{head}\n' + "\n".join(rows) + "\n</table></div>"


def head(names: Sequence[str], numbers: range = range(0)) -> str:
    """The header row, and which of the columns hold numbers."""
    cells = [
        f'<th class="number">{escape(name)}</th>'
        if place in numbers
        else f"<th>{escape(name)}</th>"
        for place, name in enumerate(names)
    ]
    return f"<tr>{''.join(cells)}</tr>"


def row(cells: Iterable[str], style: str = "") -> str:
    """One row of cells."""
    return f'<tr class="{style}">{"".join(cells)}</tr>' if style else f"<tr>{''.join(cells)}</tr>"


def text_cell(text: str) -> str:
    """A cell of words."""
    return f"<td>{escape(text)}</td>"


def number_cell(text: str) -> str:
    """A cell aligned to the right."""
    return f'<td class="number">{escape(text)}</td>'


def code_cell(text: str, style: str = "") -> str:
    """A cell of program text."""
    tag = f'<td class="{style}">' if style else "<td>"
    return f"{tag}<code>{escape(text)}</code></td>"


def _data(png: bytes) -> str:
    return "data:image/png;base64," + b64encode(png).decode()
