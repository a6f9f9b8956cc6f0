"""A page for each example: what it computes, a picture, times, source, and the code it becomes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch

from tests.examples.case import Case
from tests.examples.cases import EXAMPLES
from tilesmith.diagnostics.catalogue import BaseError
from tilesmith.puzzles.touches import Touches, panels, run_recorded, svg_picture
from tools.site.pages import DOCS, ROOT, rewritten

FOLDER = ROOT / "examples"
TARGET = "cuda:90"
CPU_TARGET = "cpu:avx2"
PICTURED_BLOCK = 16
MAX_LINES = 400


def example_files() -> list[Path]:
    """All examples."""
    return [path for path in sorted(FOLDER.rglob("*.py")) if path.stem != "__init__"]


def gallery_pages() -> dict[str, str]:
    """All pages, and the list of them."""
    index = rewritten((DOCS / "gallery.md").read_text(encoding="utf-8"), "docs/gallery.md")
    pages = {"gallery/index.md": index}
    for path in example_files():
        place = path.relative_to(FOLDER).with_suffix(".md").as_posix()
        pages[f"gallery/{place}"] = "\n".join(_page(path))
    return pages


def _page(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    cases = [case for case in EXAMPLES if case.kernel.fn.__module__ == module]
    cases = list({case.kernel.name: case for case in cases}.values())
    yield from (f"# {path.stem}", "", ast.get_docstring(ast.parse(text)) or "", "")
    yield from (f"Run it: `python -m {module}`", "")
    rows = measured_rows(path.stem)
    if rows:
        yield from ("## Measured on an H200", "", *rows, "")
    drawing = next(filter(None, map(_picture, cases)), "")
    if drawing:
        yield "## What programs touch"
        yield ""
        yield "A colour for each program, at a small size with tiles of 16; grey: several programs."
        yield "Of large tensors the first 40 rows and columns."
        yield from ("", f'<div class="tiles">{drawing}</div>', "")
    yield from ("## Source", "", "```python", text.rstrip(), "```", "")
    for case in cases[:3]:
        yield from _code(case)


@cache
def _tables() -> list[tuple[str, str, list[str]]]:
    """Tables of docs/measured.md: the header, the line below it, and the rows."""
    text = (DOCS / "measured.md").read_text(encoding="utf-8")
    tables = re.findall(r"^(\|.*)\n(\|[-| :]+)\n((?:\|.*\n)+)", text, re.MULTILINE)
    return [(head, line, rows.splitlines()) for head, line, rows in tables]


def measured_rows(name: str) -> list[str]:
    """The rows of docs/measured.md whose first cell is an example."""
    found: list[str] = []
    for head, line, rows in _tables():
        own = [row for row in rows if re.match(rf"\|\s*`?{re.escape(name)}`?\s*\|", row)]
        found += [head, line, *own, ""] if own else []
    return found


def _arguments(case: Case) -> tuple[Any, ...]:
    dtype = torch.float32 if torch.float32 in case.dtypes else case.dtypes[0]
    return case.make_inputs(case.sizes[-1], dtype, "cpu")


def _picture(case: Case) -> str:
    """What programs touch; "" where a run or its picture says little."""
    if case.kernel.staged is not None:
        return ""
    try:
        args = _arguments(case)
        _, touches = run_recorded(case.kernel.bind(args), args, PICTURED_BLOCK)
    except (BaseError, RuntimeError, TypeError, ValueError):
        return ""  # a kernel that needs more than an interpreter has none
    return svg_picture(_few(touches)) if panels(touches) else ""


def _few(touches: Touches) -> Touches:
    """The first tensors: more do not fit a page."""
    return Touches(dict(list(touches.planes.items())[:4]), touches.programs)


def _code(case: Case) -> Iterator[str]:
    for target, language, title in (
        (CPU_TARGET, "text", "as native code"),
        (TARGET, "python", f"as Triton for {TARGET}"),
    ):
        text = _emitted(case, target)
        if text:
            yield f'??? note "`{case.kernel.name}` {title}"'
            yield ""
            yield from (f"    {line}".rstrip() for line in [f"```{language}", *text, "```"])
            yield ""


def _emitted(case: Case, target: str) -> list[str]:
    try:
        bound = case.kernel.bind(_arguments(case), target=target)
        text = bound.to_triton_code() if target == TARGET else bound.to_code()
    except (BaseError, RuntimeError, TypeError, ValueError):
        return []  # the target lacks a type or an instruction of the kernel
    lines = text.replace(f"{ROOT}/", "").rstrip().splitlines()
    rest = len(lines) - MAX_LINES
    return lines if rest <= 0 else [*lines[:MAX_LINES], f"# ... {rest} more lines"]
