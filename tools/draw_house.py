"""Draws docs/house.svg: the layers of src, what imports what, and the path of one kernel.

Rows come from the layer contract of pyproject.toml, sentences from the docstrings of the packages,
arrows from the import graph, numbers from a softmax that is bound and called for the first time.
Run ``python -m tools.draw_house``; a test compares the file with what this would write.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable
from html import escape
from pathlib import Path

import torch

from tools.follow_kernel import follow
from tools.house import SOURCE, imports

ROOT = Path(__file__).parents[1]
OUTPUT = ROOT / "docs" / "house.svg"
PACKAGE = SOURCE / "tilesmith"

WIDTH, MARGIN, GAP = 1120, 110, 40
BOX_HEIGHT, ROW_STEP = 70, 100
TOP, WIDEST_BOX = 62, 520
NUM_FOUNDATION_ROWS = 3
"""Rows at the bottom that everything may import: arrows to them would only be noise."""
LETTERS_PER_PIXEL = 1 / 5.9
COLOURS = {True: "#fff4d6", False: "#eef3f8"}
"""Boxes that the kernel enters on its way, and others."""


def layers() -> list[list[str]]:
    """Rows of the layer contract from the top; names in a row do not know each other."""
    text = (ROOT / "pyproject.toml").read_text()
    block = re.search(r"^layers = \[(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    assert block is not None
    rows = [re.findall(r"\w+", row) for row in re.findall(r"\"([^\"]+)\"", block.group(1))]
    present = [[name for name in row if _path_of(name).exists()] for row in rows]
    return [row for row in present if row]


def _path_of(name: str) -> Path:
    folder = PACKAGE / name
    return folder / "__init__.py" if folder.is_dir() else PACKAGE / f"{name}.py"


def purpose(name: str) -> str:
    """The first sentence of the docstring."""
    text = ast.get_docstring(ast.parse(_path_of(name).read_text())) or ""
    return re.split(r"(?<=\w[.])\s", text.replace("``", ""), maxsplit=1)[0]


def subfolders(name: str) -> list[str]:
    """One line that names the folders inside of a room, if there are any."""
    folder = PACKAGE / name
    inner = sorted(path.parent.name for path in folder.glob("*/__init__.py"))
    return [f"{name}/: " + ", ".join(inner)] if inner else []


def room_imports() -> dict[str, set[str]]:
    """For each room the rooms that it imports."""
    found: dict[str, set[str]] = defaultdict(set)
    for module, targets in imports().items():
        room = _room(module)
        found[room] |= {_room(target) for target in targets} - {room, ""}
    found.pop("", None)
    return dict(found)


def _room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def without_detours(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """The graph less arrows that a longer way implies."""

    def reached(starts: Iterable[str]) -> set[str]:
        found: set[str] = set()
        left = list(starts)
        while left:
            name = left.pop()
            if name not in found:
                found.add(name)
                left += graph.get(name, set())
        return found

    return {
        name: {t for t in targets if t not in reached(u for s in targets for u in graph.get(s, ()))}
        for name, targets in graph.items()
    }


class Box:
    """A room and where it stands."""

    def __init__(self, name: str, left: float, top: float, width: float) -> None:
        self.name, self.left, self.top, self.width = name, left, top, width

    @property
    def middle(self) -> float:
        """The x coordinate of its centre."""
        return self.left + self.width / 2

    def draw(self, number: int | None) -> str:
        """Rectangle, name, sentence, and the number on the path of the kernel."""
        fits = int((self.width - 16) * LETTERS_PER_PIXEL)
        lines = [*_wrap(purpose(self.name), fits)[:2], *subfolders(self.name)]
        parts = [
            f'<rect x="{self.left:.0f}" y="{self.top:.0f}" width="{self.width:.0f}" '
            f'height="{BOX_HEIGHT}" rx="6" fill="{COLOURS[number is not None]}" stroke="#456"/>',
            _text(self.left + 8, self.top + 18, self.name, "name"),
        ]
        parts += [_text(self.left + 8, self.top + 34 + 14 * i, t) for i, t in enumerate(lines)]
        if number is not None:
            x, y = self.left + self.width - 14, self.top + 14
            parts.append(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="10" fill="#b04a00"/>')
            parts.append(_text(x, y + 4, str(number), "step"))
        return "\n".join(parts)


def _wrap(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        lines = [*lines[:-1], longer] if len(longer) <= width else [*lines, word]
    return lines


def _text(x: float, y: float, text: str, style: str = "") -> str:
    kind = f' class="{style}"' if style else ""
    return f'<text x="{x:.0f}" y="{y:.0f}"{kind}>{escape(text)}</text>'


def place_boxes() -> dict[str, Box]:
    """One row a layer; the boxes of a row share its width."""
    boxes: dict[str, Box] = {}
    for i, row in enumerate(layers()):
        width = min((WIDTH - 2 * MARGIN - GAP * (len(row) - 1)) / len(row), WIDEST_BOX)
        used = width * len(row) + GAP * (len(row) - 1)
        for j, name in enumerate(row):
            left = (WIDTH - used) / 2 + j * (width + GAP)
            boxes[name] = Box(name, left, TOP + i * ROW_STEP, width)
    return boxes


def _arrow(start: Box, end: Box) -> str:
    """Between neighbouring rows a curve; over several rows it keeps to the side."""
    top, bottom = start.top + BOX_HEIGHT, end.top
    if end.top - start.top <= ROW_STEP:
        between = (top + bottom) / 2
        curve = f"C {start.middle:.0f} {between:.0f} {end.middle:.0f} {between:.0f}"
        return f'<path d="M {start.middle:.0f} {top:.0f} {curve} {end.middle:.0f} {bottom:.0f}"/>'
    is_left = start.middle + end.middle < WIDTH
    x0, x1 = (start.left, end.left) if is_left else (_right(start), _right(end))
    depth = (end.top - start.top) / ROW_STEP
    bend = 10 + 18 * min(depth, 5)
    edge = min(x0, x1) - bend if is_left else max(x0, x1) + bend
    y0, y1 = start.top + BOX_HEIGHT / 2, end.top + BOX_HEIGHT / 2
    curve = f"C {edge:.0f} {y0:.0f} {edge:.0f} {y1:.0f}"
    return f'<path d="M {x0:.0f} {y0:.0f} {curve} {x1:.0f} {y1:.0f}"/>'


def _right(box: Box) -> float:
    return box.left + box.width


STYLE = """\
<style>
text { font: 11px sans-serif; fill: #234 } .name { font: bold 13px monospace }
.step { font: bold 11px sans-serif; fill: white; text-anchor: middle }
.title { font: 13px sans-serif }
path { fill: none; stroke: #789; stroke-width: 1.2; marker-end: url(#head) }
</style>
<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7"
orient="auto"><path d="M 0 0 L 8 4 L 0 8 z" style="fill: #789; stroke: none; marker-end: none"/>
</marker></defs>"""


def render() -> str:
    """The whole drawing."""
    boxes = place_boxes()
    numbers = {room: i for i, room in enumerate(follow(torch.randn(64, 128)).rooms, 1)}
    foundations = {name for row in layers()[-NUM_FOUNDATION_ROWS:] for name in row}
    arrows = [
        _arrow(boxes[name], boxes[target])
        for name, targets in sorted(without_detours(room_imports()).items())
        for target in sorted(targets)
        if name in boxes and target in boxes and target not in foundations
    ]
    height = TOP + ROW_STEP * len(layers())
    title = (
        "A room imports only rooms below it. Arrows: imports, less those that follow from others "
        "and those of the last rows,",
        "which everything may import. Numbers: the order in which the first call of a softmax on "
        "a CPU enters the rooms.",
    )
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}">',
        STYLE,
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        *(_text(40, 22 + 18 * i, line, "title") for i, line in enumerate(title)),
        *arrows,
        *(box.draw(numbers.get(name)) for name, box in boxes.items()),
        "</svg>",
    ]) + "\n"  # fmt: skip


def main() -> None:
    """Write the file."""
    OUTPUT.write_text(render(), encoding="utf-8")
    print(f"wrote {OUTPUT}")


if __name__ == "__main__":
    main()
