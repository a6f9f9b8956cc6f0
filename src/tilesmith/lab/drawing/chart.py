"""Charts as SVG text: points, lines and bars with axes and a legend of what is drawn.

Colours are those of ``chart.css``, by the names of classes. A chart is part of a page, which has
the style; ``standalone`` makes a file of it. All text is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from tilesmith.diagnostics.wording import number_text
from tilesmith.lab.drawing.scale import MAX_MARKS, Scale

STYLE = Path(__file__).with_suffix(".css")
Point = tuple[float, float]
LETTER, LINE, MARK = 7.5, 18, 26
"""Pixels: of a letter, of a line of the legend, of its marks."""
WIDTH, BAR, GAP = 900, 17, 12
WORDS = 190
"""Pixels behind the longest bar, for its words."""
MAX_LABEL = 300
SHAPES = ("circle", "square", "diamond", "triangle")


@dataclass(frozen=True)
class Dots:
    """Marks of one kind; ``tips`` are shown when one is pointed at."""

    points: Sequence[Point]
    style: str
    label: str
    tips: Sequence[str] = ()
    radius: float = 3.5
    shape: str = SHAPES[0]


@dataclass
class Chart:
    """A picture with two axes that grows by what is added to it."""

    title: str
    x: Scale
    y: Scale
    labels: tuple[str, str]
    size: tuple[int, int] = (900, 420)
    left: int = 64
    names: Mapping[float, str] = field(default_factory=dict[float, str])
    """What stands at marks of the first axis, where they are no numbers."""
    _marks: list[str] = field(default_factory=list[str])
    _legend: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])

    def __post_init__(self) -> None:
        self._bottom = self.size[1] - 44
        self._right = self.size[0] - 14

    def place(self, point: Point) -> Point:
        """In pixels below the legend."""
        width, height = self._right - self.left, self._bottom - 10
        across, up = self.x.share(point[0]), self.y.share(point[1])
        return self.left + width * across, self._bottom - height * up

    def dots(self, dots: Dots) -> None:
        """Add marks."""
        if not dots.points:
            return
        self._legend.append((dots.style, dots.label, dots.shape))
        made: list[str] = []
        for number, point in enumerate(dots.points):
            tip = f"<title>{escape(dots.tips[number])}</title>" if dots.tips else ""
            made.append(_mark(dots.shape, self.place(point), dots.radius, tip))
        self._marks.append(f'<g class="dots {dots.style}">{"".join(made)}</g>')

    def line(self, points: Sequence[Point], style: str, label: str = "") -> None:
        """Add a line through points."""
        if label:
            self._legend.append((style, label, "line"))
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(self.place, points))
        tip = f"<title>{escape(label)}</title>" if label else ""
        self._marks.append(f'<polyline class="curve {style}" points="{places}">{tip}</polyline>')

    def level(self, value: float, style: str, label: str) -> None:
        """Add a line from side to side."""
        self.line([(self.x.low, value), (self.x.high, value)], style, label)

    def note(self, point: Point, text: str, style: str, anchor: str = "end") -> None:
        """Words at a place."""
        x, y = self.place(point)
        self._marks.append(
            f'<text class="{style}" x="{x:.1f}" y="{y - 5:.1f}" text-anchor="{anchor}">'
            f"{escape(text)}</text>"
        )

    def text(self) -> str:
        """The element."""
        return framed(self.title, self.size, self._legend, [*self._axes(), *self._marks])

    def _axes(self) -> Iterable[str]:
        for value in self.names or self.x.marks():
            x, _ = self.place((value, self.y.low))
            yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="10" y2="{self._bottom}"/>'
            name = self.names.get(value) or number_text(value)
            yield _text(x, self._bottom + 16, name, "middle")
        for value in self.y.marks():
            _, y = self.place((self.x.low, value))
            yield (
                f'<line class="grid" x1="{self.left}" x2="{self._right}" y1="{y:.1f}" '
                f'y2="{y:.1f}"/>'
            )
            yield _text(self.left - 7, y + 4, number_text(value), "end")
        yield _text((self.left + self._right) / 2, self.size[1] - 8, self.labels[0], "middle")
        middle = self._bottom / 2
        yield (
            f'<text x="14" y="{middle:.0f}" text-anchor="middle" '
            f'transform="rotate(-90 14 {middle:.0f})">{escape(self.labels[1])}</text>'
        )


def framed(
    title: str,
    size: tuple[int, int],
    legend: Sequence[tuple[str, str, str]],
    content: Iterable[str],
) -> str:
    """A picture with its title and, above the content, what colours mean."""
    shown, top = _legend_text(list(dict.fromkeys(legend)), size[0])
    width, height = size[0], size[1] + top
    return (
        f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(title)}">'
        f'<text class="title" x="0" y="16">{escape(title)}</text>{shown}'
        f'<g transform="translate(0 {top})">{"".join(content)}</g></svg>'
    )


def _legend_text(entries: Sequence[tuple[str, str, str]], width: int) -> tuple[str, int]:
    """Entries beside each other as far as there is room, and the height of title and legend."""
    made: list[str] = []
    x, y = 0.0, 38
    for style, label, shape in entries:
        needed = MARK + LETTER * len(label)
        if x and x + needed > width:
            x, y = 0.0, y + LINE
        if shape == "line":
            drawn = f'<polyline class="curve {style}" points="{x},{y - 4} {x + 16},{y - 4}"/>'
        else:
            drawn = f'<g class="dots {style}">{_mark(shape, (x + 8, y - 4), 4.5)}</g>'
        made.append(drawn + _text(x + 21, y, label))
        x += needed
    return "".join(made), (y + 8 if made else 28)


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _mark(shape: str, place: Point, radius: float, tip: str = "") -> str:
    x, y = place
    if shape == "cross":
        d = radius * 0.8
        return (
            f'<path class="cross" d="M{x - d:.1f} {y - d:.1f}l{2 * d:.1f} {2 * d:.1f}'
            f'm0 {-2 * d:.1f}l{-2 * d:.1f} {2 * d:.1f}">{tip}</path>'
        )
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}">{tip}</circle>'
    corners = {
        "square": ((-1, -1), (1, -1), (1, 1), (-1, 1)),
        "diamond": ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
        "triangle": ((0, -1.2), (1.1, 0.9), (-1.1, 0.9)),
    }[shape]
    points = " ".join(f"{x + radius * dx:.1f},{y + radius * dy:.1f}" for dx, dy in corners)
    return f'<polygon points="{points}">{tip}</polygon>'


def standalone(chart: str) -> bytes:
    """A file of its own: the chart with its style."""
    box = chart.partition('viewBox="0 0 ')[2].partition('"')[0].split()
    opened = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{box[0]}" height="{box[1]}" '
        f'class="chart file"'
    )
    head, _, rest = chart.replace('<svg class="chart"', opened, 1).partition(">")
    return f"{head}><style>{STYLE.read_text()}</style>{rest}\n".encode()


@dataclass(frozen=True)
class Bar:
    """One thing in a group: a factor, or what is said instead."""

    name: str
    factor: float | None
    text: str


@dataclass(frozen=True)
class Group:
    """Bars that stand together under one label."""

    label: str
    bars: Sequence[Bar]


def draw_bars(
    groups: Sequence[Group], title: str, styles: Mapping[str, str], label: str
) -> str | None:
    """The picture; None where nothing has a factor. The legend has what has a bar."""
    bars = [bar for group in groups for bar in group.bars]
    factors = [bar.factor for bar in bars if bar.factor is not None]
    if not factors:
        return None
    longest = max(len(group.label) for group in groups if group.bars)
    left = min(MAX_LABEL, LETTER * longest + 14)
    scale = Scale(min(0.97, *factors), max(1.03, *factors), is_log=True)
    content: list[str] = []
    y = 6.0
    for group in (group for group in groups if group.bars):
        middle = y + BAR * len(group.bars) / 2 + 4
        shown = group.label if LETTER * len(group.label) <= MAX_LABEL else _shortened(group.label)
        content.append(
            f'<text x="{left - 10:.0f}" y="{middle:.1f}" text-anchor="end">{escape(shown)}'
            f"<title>{escape(group.label)}</title></text>"
        )
        for bar in group.bars:
            content.append(_bar(bar, y, left, scale, styles))
            y += BAR
        y += GAP
    height = round(y) + 38
    axis = _axis(scale, left, y, label)
    drawn = {bar.name for bar in bars if bar.factor is not None}
    legend = [(style, name, "square") for name, style in styles.items() if name in drawn]
    return framed(title, (WIDTH, height), legend, [*axis, *content])


def _shortened(text: str) -> str:
    return text[: int(MAX_LABEL / LETTER) - 1] + "…"


def _across(scale: Scale, left: float, value: float) -> float:
    return left + (WIDTH - left - WORDS) * scale.share(value)


def _bar(bar: Bar, y: float, left: float, scale: Scale, styles: Mapping[str, str]) -> str:
    value = bar.factor or 1.0
    start, end = sorted((_across(scale, left, 1.0), _across(scale, left, value)))
    style = styles[bar.name] if bar.factor is not None else "failure"
    told = escape(f"{bar.name}: {bar.text}")
    drawn = (
        f'<g class="bars {style}"><title>{told}</title>'
        f'<rect x="{start:.1f}" y="{y + 1.5:.1f}" width="{max(1.0, end - start):.1f}" '
        f'height="{BAR - 3}"/>'
    )
    # What has no bar has no colour of the legend: its words say whose they are.
    words, text = ("words", escape(bar.text)) if bar.factor else ("words failure", told)
    place = f'x="{end + 6:.1f}" y="{y + BAR - 4.5:.1f}"'
    return f'{drawn}<text class="{words}" {place}>{text}</text></g>'


def _axis(scale: Scale, left: float, bottom: float, label: str) -> list[str]:
    made: list[str] = []
    for mark in marks_between(scale.low, scale.high):
        x = _across(scale, left, mark)
        style = "grid one" if mark == 1.0 else "grid"
        made.append(f'<line class="{style}" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{bottom:.0f}"/>')
        made.append(
            f'<text x="{x:.1f}" y="{bottom + 14:.0f}" text-anchor="middle">{mark:g}x</text>'
        )
    middle = (left + WIDTH - WORDS) / 2
    return [
        *made,
        f'<text x="{middle:.0f}" y="{bottom + 32:.0f}" text-anchor="middle">{escape(label)}</text>',
    ]


def marks_between(low: float, high: float) -> list[float]:
    """Round factors between two, few enough to be read; 1 is among them.

    Example:
        >>> marks_between(0.9, 1.35)
        [0.9, 1.0, 1.1, 1.2, 1.3]
    """
    decades = [10.0**power for power in range(-6, 7)]
    firsts = ((1, 2, 5), (1, 1.5, 2, 3, 5, 7))
    choices = [decades, *(sorted(a * b for a in first for b in decades) for first in firsts)]
    if high / low < 4:
        steps = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
        choices += [[round(n * step, 3) for n in range(1, int(high / step) + 1)] for step in steps]
    shown = [[mark for mark in marks if low <= mark <= high] for marks in choices]
    return max((marks for marks in shown if len(marks) <= MAX_MARKS), key=len)
