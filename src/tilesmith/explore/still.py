"""The picture of the tiles as SVG: for pages without scripts, such as those of the tutorial.

A row shows one moment: a program, and one of its steps. Orange is what the step touches, blue what
the program has touched before, green the parts of results, the darker the later their program
starts. The geometry is that of ``static/tiles.js``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

SIDE, GAP, TOP, LINE = 150.0, 26.0, 20.0, 15.0
MAX_SHAPE, FLAT, THIN = 5.0, 22.0, 3.0
"""How far a picture may be from a square; the height of a vector; the least size of a mark."""
MAX_CELLS = 24
"""Elements of tensors with so few along each axis are told apart by lines."""
CHARACTER, WIDEST = 6.1, 720.0
NOW, OWN, ORDER = "#d55e00", "#2b8cc4", "#009e73"
STYLE = (
    # Inside a page a style counts everywhere: names are those of no other.
    ".tile-still text{font:11px system-ui,sans-serif;fill:currentColor}"
    ".tile-still .told{font-weight:600}.tile-still .name{opacity:.75}"
    ".tile-still .frame{fill:none;stroke:currentColor;stroke-opacity:.45}"
    ".tile-still .cell{stroke:currentColor;stroke-opacity:.15}"
    # Alone, not inside a page: nobody else says a colour.
    "svg:root{color:#333}@media (prefers-color-scheme:dark){svg:root{color:#ccc}}"
)
Tiles = Mapping[str, Any]


class Moment(NamedTuple):
    """A program, by its place among those recorded, and one of its steps; -1 is the last."""

    program: int = 0
    step: int = 0


def tiles_svg(views: Sequence[tuple[Tiles, str]], moments: Sequence[Moment]) -> str:
    """Of each view, below its title, a row of tensors for each moment; "" without a program."""
    drawing = _Drawing()
    for tiles, title in views:
        if not tiles.get("programs"):
            continue
        if title:
            drawing.say(title)
        tensors = [_Tensor(tiles, tensor) for tensor in tiles["tensors"]]
        for moment in moments:
            program = tiles["programs"][moment.program]
            place = range(len(program["steps"]))[moment.step]
            drawing.say(_told(tiles, program, place))
            drawing.add(tensors, program, place)
    return drawing.text() if drawing.parts else ""


class _Drawing:
    """What has been drawn so far, from the top down."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self._width = self._bottom = 0.0

    def say(self, words: str) -> None:
        """A line of text."""
        self.parts.append(_text(0, self._bottom + 12, words, "told"))
        self._width = max(self._width, CHARACTER * len(words))
        self._bottom += TOP

    def add(self, tensors: Sequence[_Tensor], program: Mapping[str, Any], step: int) -> None:
        """Tensors side by side, in several rows where they do not fit."""
        left = deepest = 0.0
        for tensor in tensors:
            taken = max(tensor.width, tensor.label_width)
            if left and left + taken > WIDEST:
                self._bottom += deepest + 2 * LINE
                left = deepest = 0.0
            self.parts += tensor.draw((left, self._bottom), program, step)
            left += taken + GAP
            deepest = max(deepest, tensor.height)
            self._width = max(self._width, left - GAP)
        self._bottom += deepest + 2 * LINE + GAP / 2

    def text(self) -> str:
        """The SVG."""
        width, height = f"{self._width + 2:.0f}", f"{self._bottom:.0f}"
        return (
            '<svg xmlns="http://www.w3.org/2000/svg" class="tile-still" '
            f'viewBox="-1 0 {width} {height}" width="{width}" height="{height}" role="img" '
            f'aria-label="which program touches what"><style>{STYLE}</style>'
            f"{''.join(self.parts)}</svg>"
        )


def _told(tiles: Tiles, program: Mapping[str, Any], step: int) -> str:
    """Which moment it is, in the words of the page."""
    grid = tiles["grids"][program["grid"]]
    starts = ", ".join(f"{n}={s}" for n, s in zip(grid["names"], program["starts"]))
    at, _, boxes = program["steps"][step]
    accesses = [tiles["accesses"][box[0]] for box in boxes]
    verbs = ", ".join(dict.fromkeys(f"{item['kind']} {item['tensor']}" for item in accesses))
    which = f"program {program['number']} of {grid['total']}" + (f" ({starts})" if starts else "")
    loop = f", loop at {', '.join(map(str, at))}" if at else ""
    return f"{which}{loop}: {verbs}"


class _Tensor:
    """One tensor: its last two dimensions; of those before, the part that the program is in."""

    def __init__(self, tiles: Tiles, tensor: Mapping[str, Any]) -> None:
        self._tiles, self._name = tiles, tensor["name"]
        shape = tensor["shape"]
        self._rank = len(shape)
        self._rows, self._columns = [1, 1, *shape][-2:]
        listed = enumerate(tiles["accesses"])
        self._accesses = {i for i, item in listed if item["tensor"] == self._name}
        kinds = {tiles["accesses"][i]["kind"] for i in self._accesses}
        self._is_written = kinds != {"load"}
        self._label = f"{self._name}  {'×'.join(map(str, shape))} {tensor['dtype']}"
        ratio = self._columns / max(1, self._rows)
        ratio = max(1 / MAX_SHAPE, min(MAX_SHAPE, ratio))
        self.width = SIDE * min(1.0, max(ratio, 0.4))
        self.height = FLAT if self._rank < 2 else min(SIDE, SIDE / ratio)

    @property
    def label_width(self) -> float:
        """As wide as what stands below it."""
        return CHARACTER * (len(self._label) + 2 * max(0, self._rank - 2))

    def draw(self, at: tuple[float, float], program: Mapping[str, Any], step: int) -> Iterator[str]:
        """What it looks like in a step of a program."""
        x, y = at
        now = self._boxes(program, step, step + 1)
        own = self._boxes(program, 0, len(program["steps"]))
        lead = [box[2 + 2 * i] for box in (now or own)[:1] for i in range(self._rank - 2)]
        yield f'<g transform="translate({x:.4g} {y:.4g})">'
        yield from self._others(lead)
        for box in self._boxes(program, 0, step):
            yield self._rect(box, lead, f'fill="{OWN}" fill-opacity=".35"')
        if self._is_written:
            for box in own:
                yield self._rect(box, lead, f'fill="none" stroke="{NOW}"')
        for box in now:
            yield self._rect(box, lead, f'fill="{NOW}"')
        yield from self._lines()
        yield f'<rect class="frame" width="{self.width:.4g}" height="{self.height:.4g}"/></g>'
        part = f"[{', '.join(map(str, lead))}]" if lead else ""
        yield _text(x, y + self.height + LINE, self._label.replace("  ", f"{part}  ", 1), "name")

    def _others(self, lead: list[int]) -> Iterator[str]:
        """Of what is written every program's part, of what is read a veil."""
        programs = self._tiles["programs"]
        colour = ORDER if self._is_written else OWN
        seen: set[tuple[int, ...]] = set()
        for place, program in enumerate(programs):
            shade = 0.12 + 0.6 * place / len(programs) if self._is_written else 0.14
            for box in self._boxes(program, 0, len(program["steps"])):
                if tuple(box[2:]) not in seen:
                    yield self._rect(box, lead, f'fill="{colour}" fill-opacity="{shade:.2g}"')
                seen.add(tuple(box[2:]))

    def _boxes(self, program: Mapping[str, Any], first: int, last: int) -> list[list[int]]:
        steps = program["steps"][first:last]
        return [box for _, _, boxes in steps for box in boxes if box[0] in self._accesses]

    def _rect(self, box: list[int], lead: list[int], look: str) -> str:
        """The part of a box that is in the part of the tensor shown."""
        ranges = list(zip(box[2::2], box[3::2]))
        for index, (first, count) in zip(lead, ranges):
            if not first <= index < first + count:
                return ""
        (row, rows), (column, columns) = [(0, 1), (0, 1), *ranges][-2:]
        x, width = _span(column, columns, self._columns, self.width)
        y, height = _span(row, rows, self._rows, self.height)
        return f'<rect x="{x:.4g}" y="{y:.4g}" width="{width:.4g}" height="{height:.4g}" {look}/>'

    def _lines(self) -> Iterator[str]:
        if max(self._rows, self._columns) > MAX_CELLS:
            return
        for place in range(1, self._columns):
            x = f"{self.width * place / self._columns:.4g}"
            yield f'<path class="cell" d="M{x} 0V{self.height:.4g}"/>'
        for place in range(1, self._rows):
            y = f"{self.height * place / self._rows:.4g}"
            yield f'<path class="cell" d="M0 {y}H{self.width:.4g}"/>'


def _span(first: int, count: int, size: int, pixels: float) -> tuple[float, float]:
    length = max(THIN, pixels * count / max(1, size))
    return min(pixels - length, pixels * first / max(1, size)), length


def _text(x: float, y: float, words: str, kind: str) -> str:
    return f'<text x="{x:.4g}" y="{y:.4g}" class="{kind}">{escape(words)}</text>'
