"""What pages of reports are made of: pictures in two themes, and HTML in which all text is escaped.

Pictures are drawn with matplotlib's Agg, which is loaded when one is asked for; without it a
``PictureError`` says how to get it.
"""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import log10
from pathlib import Path
from typing import Any

from tilesmith.diagnostics.wording import number_text

DPI = 150
"""Pictures are shown at two thirds of their size, so that they are sharp."""
STYLE = Path(__file__).with_suffix(".css")
LEGEND_INCHES, MARK_INCHES, LETTER_INCHES = 8.0, 0.5, 0.078
"""Of a whole line, and of what an entry takes: its mark with the gaps, and each letter."""


class PictureError(Exception):
    """A picture cannot be drawn here."""


@dataclass(frozen=True)
class Theme:
    """Colours that people with any colour vision can tell apart (after Okabe and Ito)."""

    paper: str
    ink: str
    grid: str
    trial: str
    best: str
    failure: str
    default: str
    roofline: str
    series: tuple[str, ...]
    """For things of one kind side by side."""


LIGHT = Theme(
    "#ffffff", "#1b1f24", "#d5dae0", "#56a0d8", "#00527d", "#d55e00", "#b8860b", "#007a5a",
    ("#0072b2", "#56b4e9", "#009e73", "#e69f00", "#d55e00", "#cc79a7", "#7a6fb8", "#8a8f98"),
)  # fmt: skip
DARK = Theme(
    "#14181d", "#dfe4ea", "#323a44", "#6ea8d8", "#b8e2ff", "#ff8c42", "#f0c808", "#35c99a",
    ("#4da3dc", "#9ad7ff", "#35c99a", "#f0b840", "#ff8c42", "#e39bc4", "#a79df0", "#a3abb5"),
)  # fmt: skip


def new_figure(size: tuple[float, float], theme: Theme) -> tuple[Any, Any]:
    """A figure with one pair of axes, both of matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PictureError("pictures need matplotlib (pip install tilesmith[report])") from error
    figure: Any = Figure(figsize=size, dpi=DPI, facecolor=theme.paper, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.14, h_pad=0.12)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot(facecolor=theme.paper)
    axes.grid(visible=True, which="major", color=theme.grid, lw=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", colors=theme.ink, labelsize=9)
    for name, spine in axes.spines.items():
        spine.set_visible(name in ("left", "bottom"))
        spine.set_color(theme.ink)
    for axis in (axes.xaxis, axes.yaxis):
        axis.label.set_color(theme.ink)
    return figure, axes


def format_log_axis(axis: Any, low: float, high: float) -> None:
    """Plain numbers as labels: few where the range is wide, many where it is narrow."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    decades = log10(high / low)
    if decades < 1:
        axis.set_major_locator(MaxNLocator(6))
        axis.set_minor_locator(LogLocator(subs=(1.0,)))
    else:
        subs = (1.0, 2.0, 5.0) if decades < 4 else (1.0,)
        axis.set_major_locator(LogLocator(subs=subs, numticks=20))
    axis.set_major_formatter(FuncFormatter(lambda value, _: number_text(value)))
    axis.set_minor_formatter(NullFormatter())


def legend(axes: Any, theme: Theme, num_columns: int) -> int:
    """Above the picture, where it hides nothing; how many lines it takes."""
    labels: list[str] = axes.get_legend_handles_labels()[1]
    shown = fitting_columns(labels, num_columns)
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=shown,
        frameon=False,
        fontsize=9,
        labelcolor=theme.ink,
        borderaxespad=0.2,
        handletextpad=0.5,
        columnspacing=1.4,
    )
    return -(-len(labels) // shown)


def fitting_columns(labels: Sequence[str], most: int) -> int:
    """How many columns of a legend stand beside each other, at most some number of them.

    Example:
        >>> fitting_columns(["eager", "triton"], 5), fitting_columns(["tilesmith_a_kernel"] * 9, 5)
        (2, 3)
    """
    for number in range(most, 1, -1):
        height = -(-len(labels) // number) or 1
        columns = [labels[first : first + height] for first in range(0, len(labels), height)]
        letters = sum(max(map(len, column)) for column in columns)
        if MARK_INCHES * len(columns) + LETTER_INCHES * letters <= LEGEND_INCHES:
            return max(1, len(columns))
    return 1


def finish(figure: Any, title: str, theme: Theme, *, gap: int = 14, num_columns: int = 5) -> bytes:
    """The content of a PNG file: the figure with a legend, and its title in points above that."""
    (axes,) = figure.axes
    pad = gap + 16 * legend(axes, theme, num_columns)
    axes.set_title(title, loc="left", color=theme.ink, fontsize=12, pad=pad)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", facecolor=figure.get_facecolor())
    return buffer.getvalue()


def document(title: str, sections: Iterable[str]) -> str:
    """The page; empty sections are left out."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{STYLE.read_text()}</style>\n</head>\n<body>\n"
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
    rows = [row([cell(name), cell(value)]) for name, value in values.items() if value]
    return table((), rows, style="facts") if rows else ""


def table(
    names: Sequence[str], rows: Iterable[str], numbers: Container[int] = (), style: str = ""
) -> str:
    """A table that scrolls where it is too wide; ``numbers`` are the columns that hold numbers."""
    heads = "".join(
        _element("th", escape(name), "number" if place in numbers else "")
        for place, name in enumerate(names)
    )
    content = "\n".join([f"<tr>{heads}</tr>" if heads else "", *rows, ""])
    return f'<div class="wide">{_element("table", content, style)}</div>'


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


def _data(png: bytes) -> str:
    return "data:image/png;base64," + b64encode(png).decode()
