"""Charts as SVG text: points, lines and bars with axes and a legend of what is drawn.

Colours are those of ``chart.css``, by the names of classes. A chart is part of a page, which has the
style; ``standalone`` makes a file of it. All text is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from tilesmith.diagnostics.wording import number_text
from tilesmith.lab.drawing.scale import Scale

STYLE = Path(__file__).with_suffix(".css")
Point = tuple[float, float]
LETTER, LINE, MARK = 7.5, 18, 26
"""Pixels: of a letter, of a line of the legend, of its marks."""
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
