"""The parts that pages of reports are made of: self-contained HTML, everything is escaped."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape

from tilesmith.lab.report.canvas import DARK, LIGHT, PictureError, Theme

STYLE = """
:root { color-scheme: light dark;
  --paper: #ffffff; --card: #f6f8fa; --ink: #1b1f24; --soft: #59636e; --line: #d5dae0;
  --good: #00527d; --bad: #b04a00; --mark: #fff3cd; --marked: #5c4700; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #14181d; --card: #1b2128; --ink: #dfe4ea; --soft: #98a4b0; --line: #323a44;
  --good: #8fd0ff; --bad: #ff8c42; --mark: #3d3413; --marked: #f5dd8a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1080px; padding: 28px 24px 60px; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 26px; margin: 0 0 2px; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 38px 0 10px; padding-bottom: 5px; border-bottom: 1px solid
  var(--line); }
p { margin: 6px 0; } .soft { color: var(--soft); }
code, pre { font: 12.5px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 6px;
  padding: 11px 13px; margin: 8px 0; white-space: pre-wrap; overflow-wrap: anywhere; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(165px, 1fr));
  gap: 10px; margin: 20px 0 14px; }
.figure { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: 11px 14px; overflow-wrap: anywhere; }
.figure b { display: block; font-size: 22px; line-height: 1.25; color: var(--good);
  font-variant-numeric: tabular-nums; }
.figure span { color: var(--soft); font-size: 13px; }
.problem { border-left: 4px solid var(--bad); background: var(--card); padding: 9px 14px;
  white-space: pre-wrap; overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; }
th { text-align: left; color: var(--soft); font-weight: 600; white-space: nowrap; }
th, td { padding: 5px 12px 5px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number, th.number { text-align: right; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
td.config { min-width: 320px; width: 60%; overflow-wrap: anywhere; }
tr.winner td { color: var(--good); font-weight: 600; } tr.winner code { font-weight: 400; }
tr.changed td { background: var(--mark); color: var(--marked); }
tr.changed td:first-child, tr.changed td:last-child { border-radius: 0; }
td:first-child, th:first-child { padding-left: 8px; }
.bar { height: 9px; min-width: 3px; margin-top: 6px; background: var(--bad);
  border-radius: 2px; }
.bar.good { background: var(--good); } .bar.other { background: var(--soft); }
tr.first td { border-top: 2px solid var(--line); }
table.groups tr:not(.first) td:first-child { padding-left: 0; }
tr.ours td:first-child {
  font-weight: 600; } .failed, tr.ours td:first-child { color: var(--bad); }
picture + picture img { margin-top: 12px; }
summary { cursor: pointer; }
table.facts { width: auto; } table.facts td { padding-right: 36px; }
img { display: block; width: 100%; height: auto; border: 1px solid var(--line);
  border-radius: 8px; }
.narrow { max-width: 560px; }
"""


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
