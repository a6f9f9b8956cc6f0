"""Pictures of the tutorial: the explorer's, of the kernels that the pages themselves define.

``python -m tools.site.drawings`` writes them to docs/pictures, where pages of docs/ show them; the
site also has the whole page of the explorer behind each.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

import tilesmith
from tilesmith.explore.explorer import Explorer, explore
from tools.site.notebooks import blocks_of
from tools.site.pages import DOCS

FOLDER = DOCS / "pictures"
TARGET = "cpu:avx2"
PICTURE = re.compile(r"^!\[([^\]]*)\]\(\.\./pictures/tutorial_(\w+)\.svg\)$", re.MULTILINE)
OFFSETS = (0, 3, 4, 44, 51)


@dataclass(frozen=True)
class Drawing:
    """A kernel of a page with arguments and config, and the moments to show."""

    name: str
    page: str
    kernel: str
    args: tuple[Any, ...]
    blocks: list[int]
    moments: tuple[tuple[int, int], ...]
    beside: list[int] | None = None
    is_backward: bool = False
    """Whether it is of the derived backward, whose first argument is a gradient."""

    def explorer(self) -> Explorer:
        """The explorer's page about it."""
        module = page_module(self.page)
        if self.is_backward:
            forward = getattr(module, self.kernel)
            leaves = tuple(arg.clone().requires_grad_() for arg in self.args[1:])
            module = _module(f"{self.kernel}_backward", forward.backward_source(leaves))
        kernel = getattr(module, self.kernel + "_backward" * self.is_backward)
        bound = kernel.bind(self.args, target=TARGET)
        config = tilesmith.Config(block_sizes=self.blocks)
        beside = tilesmith.Config(block_sizes=self.beside) if self.beside else None
        return explore(bound, config, beside)


def drawings() -> Iterator[Drawing]:
    """All of them, in the order of the tutorial."""
    ones = torch.ones
    yield Drawing("add", "01_add", "add", (ones(10), ones(10)), [4], ((0, 0), (2, 0)))
    yield Drawing("outer", "01_add", "outer_sum", (ones(4), ones(6)), [2, 2], ((3, 0),))
    yield Drawing("softmax", "02_softmax", "softmax", (ones(6, 8),), [2], ((1, 0),))
    product = ones(64, 96), ones(96, 80)
    steps = (6, 0), (6, 3), (6, -1)
    yield Drawing("matmul", "03_matmul", "matmul", product, [16, 16, 16], steps)
    yield Drawing("tuning", "04_tuning", "row_norm", (ones(64, 96),), [2], ((1, 0),), [16])
    queries, keys = ones(2, 64, 32), ones(2, 80, 32)
    steps = (1, 0), (1, 2), (1, -1)
    yield Drawing("attention", "05_attention", "attention", (queries, keys, keys), [16, 16], steps)
    ragged = ones(OFFSETS[-1]), torch.tensor(OFFSETS)
    steps = (0, 1), (2, 1), (2, 3)
    yield Drawing("ragged", "06_ragged", "ragged_means", ragged, [16], steps)
    packed = torch.full([32, 48], 0x88, dtype=torch.uint8)
    quantised = ones(20, 64), packed, ones(48)
    yield Drawing("quantised", "07_quantised", "int4_matmul", quantised, [16, 16, 8], ((3, 1),))
    yield Drawing("numerics", "08_numerics", "row_norm", (ones(16, 24),), [4], ((2, 0),))
    backward = ones(16, 24), ones(16, 24), ones(24)
    page, steps = "09_gradients_and_compile", ((2, 1), (2, -1))
    yield Drawing("gradients", page, "row_norm", backward, [4, 2], steps, is_backward=True)
    yield Drawing("shipping", "10_shipping", "scaled", (ones(20), 2.0), [8], ((1, 0),))


@cache
def page_module(page: str) -> Any:
    """What a page of the tutorial imports and defines; nothing that it calls."""
    text = (DOCS / "tutorial" / f"{page}.md").read_text(encoding="utf-8")
    source = "\n".join(block.text for block in blocks_of(text) if block.is_run)
    kept = [
        ast.unparse(node) if not isinstance(node, ast.FunctionDef) else _lines_of(node, source)
        for node in ast.parse(source).body
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.FunctionDef))
    ]
    return _module(f"step_{page}", "\n".join(kept) + "\n")


def _module(name: str, text: str) -> Any:
    # A kernel is read from its file, as long as it is looked at.
    path = Path(tempfile.mkdtemp(prefix="tilesmith_")) / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _lines_of(node: ast.FunctionDef, source: str) -> str:
    first = min([node, *node.decorator_list], key=lambda item: item.lineno).lineno
    return "\n" + "\n".join(source.splitlines()[first - 1 : node.end_lineno])


def pictures() -> dict[str, str]:
    """SVG texts by file name."""
    return {f"tutorial_{d.name}.svg": d.explorer().picture(*d.moments) + "\n" for d in drawings()}


def explorer_pages() -> dict[str, str]:
    """The explorer's page behind each picture, by its place in the site."""
    return {f"explorer/{d.name}.html": d.explorer().html for d in drawings()}


def with_pictures(text: str) -> str:
    """A page of the site with its pictures inside, which take the colours of the page."""

    def inside(match: re.Match[str]) -> str:
        picture = (FOLDER / f"tutorial_{match[2]}.svg").read_text(encoding="utf-8").strip()
        link = f"[The whole page of the explorer](../explorer/{match[2]}.html){{ target=_blank }}"
        return f'<div class="tiles" title="{match[1]}">{picture}</div>\n\n{link}'

    return PICTURE.sub(inside, text)


def main() -> None:
    """Write the pictures."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in pictures().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
