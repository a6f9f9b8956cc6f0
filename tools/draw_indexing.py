"""Draws what subscripts of a matrix touch, for docs/indexing.md: ``python -m tools.draw_indexing``.

Each picture is made by running the subscript as a kernel that marks what it stores to.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

import tilesmith as ts
import tilesmith.language as hl

OUTPUT = Path(__file__).parents[1] / "docs" / "indexing.svg"
CELL, GAP, TOP = 22, 34, 44


@ts.kernel(config=ts.Config(block_sizes=[4, 2]))
def tiles(out: torch.Tensor) -> torch.Tensor:
    """Two tiles."""
    for t, u in hl.tile([4, 2]):
        out[t, u] = 1.0
    return out


@ts.kernel(config=ts.Config(block_sizes=[2]))
def whole_rows(out: torch.Tensor) -> torch.Tensor:
    """A tile and a slice."""
    for t in hl.tile(2):
        out[t, :] = 1.0
    return out


@ts.kernel(config=ts.Config(block_sizes=[4]))
def column_of_each(out: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """A tile and index tensor of another axis."""
    for t in hl.tile(columns.size(0)):
        out[1, columns[t]] = 1.0
    return out


@ts.kernel(config=ts.Config(block_sizes=[4]), ignore_warnings=[ts.exc.IndicesFormProduct])
def product(out: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """Two index tensors of one tile."""
    for t in hl.tile(columns.size(0)):
        out[t.index, columns[t]] = 1.0
    return out


@ts.kernel(config=ts.Config(block_sizes=[4]))
def pairs(out: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """The same, paired."""
    for t in hl.tile(columns.size(0)):
        out[hl.paired(t.index, columns[t])] = 1.0
    return out


def _pictures() -> list[tuple[str, torch.Tensor]]:
    columns = torch.tensor([1, 4, 2, 4])

    def run(kernel: Callable[..., torch.Tensor], *args: torch.Tensor) -> torch.Tensor:
        return kernel(torch.zeros(4, 6), *args)

    return [
        ("x[t, u]", run(tiles)),
        ("x[t, :]", run(whole_rows)),
        ("x[1, c[t]]", run(column_of_each, columns)),
        ("x[t.index, c[t]]", run(product, columns)),
        ("x[hl.paired(t.index, c[t])]", run(pairs, columns)),
    ]


def render() -> str:
    """The drawing as SVG text."""
    parts: list[str] = []
    left = 10
    for title, marks in _pictures():
        rows, columns = marks.shape
        middle = left + columns * CELL // 2
        parts.append(f'<text x="{middle}" y="26" text-anchor="middle">{title}</text>')
        for row in range(rows):
            for column in range(columns):
                kind = "on" if marks[row, column] else "off"
                x, y = left + column * CELL, TOP + row * CELL
                parts.append(
                    f'<rect class="{kind}" x="{x}" y="{y}" width="{CELL - 2}" '
                    f'height="{CELL - 2}" rx="3"/>'
                )
        left += columns * CELL + GAP
    style = (
        "text{font:13px monospace;fill:#57606a}.on{fill:#2f81f7}.off{fill:#8b949e;fill-opacity:.25}"
    )
    height = TOP + 4 * CELL + 10
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left} {height}">'
    return "\n".join([head, f"<style>{style}</style>", *parts, "</svg>", ""])


def main() -> None:
    """Write the file."""
    OUTPUT.write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
