"""A page for each example: what it computes, pictures, times, source, and the code it becomes."""

from __future__ import annotations

import ast
import json
import multiprocessing
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch

from benchmarks.suites import suite
from tilesmith.bench.case import Operator
from tilesmith.diagnostics.catalogue import BaseError
from tilesmith.explore.collect import tiles_of
from tilesmith.explore.still import Moment, tiles_svg
from tilesmith.puzzles.touches import small_config
from tools.site.board import gpu_rows
from tools.site.cases import FOLDER, Call, calls_of, example_files, module_of
from tools.site.measure import OUTPUT as CPU_TIMES
from tools.site.measure import operators_by_module
from tools.site.pages import DOCS, ROOT, rewritten

TARGET = "cuda:90"
CPU_TARGET = "cpu:avx2"
PICTURED_BLOCK = 16
MAX_LINES = 400
MAX_KERNELS = 4
"""Of a page: more say nothing new."""
PROBLEMS = (BaseError, RuntimeError, TypeError, ValueError)
COLOURS = (
    "One program of each kernel at two of its steps, at a small size with tiles of 16, as the "
    "[explorer]({explorer}) draws it: orange is what the step touches, blue what the program has "
    "touched before, green every program's part of a result, the later the darker."
)


def gallery_pages() -> dict[str, str]:
    """All pages, and the list of them."""
    index = rewritten((DOCS / "gallery.md").read_text(encoding="utf-8"), "docs/gallery.md")
    paths = example_files()
    places = [path.relative_to(FOLDER).with_suffix(".md").as_posix() for path in paths]
    texts = _texts(paths)
    return {"gallery/index.md": index} | {f"gallery/{p}": text for p, text in zip(places, texts)}


def _texts(paths: list[Path]) -> list[str]:
    """The text of each page: kernels are compiled on all cores."""
    # Forks inherit what is imported. Torch may have no threads by then, which they would wait for.
    torch.set_num_threads(1)
    forks = multiprocessing.get_context("fork")
    with forks.Pool(os.cpu_count()) as pool:
        return pool.map(_text, paths, chunksize=1)


def _text(path: Path) -> str:
    return "\n".join(_page(path))


def _page(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    module = module_of(path)
    calls = calls_of(module)[:MAX_KERNELS]
    up = "../" * len(path.relative_to(FOLDER).parts)
    yield from (f"# {path.stem}", "", f"[All examples]({up}gallery/index.md)", "")
    yield from (ast.get_docstring(ast.parse(text)) or "", "")
    if "def main(" in text:
        yield from (f"Run it: `python -m {module}`", "")
    yield from _measured(module)
    drawn = [(call.kernel.name, _picture(call)) for call in calls]
    if any(picture for _, picture in drawn):
        yield from ("## What programs touch", "")
        yield from (COLOURS.format(explorer=f"{up}guides/explorer.md"), "")
    for name, picture in drawn:
        if picture:
            yield from (f"`{name}`", "", f'<div class="tiles">{picture}</div>', "")
    yield from ("## Source", "", "```python", text.rstrip(), "```", "")
    for call in calls:
        yield from _code(call)


def _measured(module: str) -> Iterator[str]:
    """Rows of the H200, and those of a CPU."""
    yield from _measured_on_gpu(module)
    times = json.loads(CPU_TIMES.read_text(encoding="utf-8"))
    own = times["rows"].get(module, [])
    if not own:
        return
    yield "## Measured on a CPU"
    yield ""
    yield f"{times['device']}, torch {times['torch']}, {times['date']}; default configs, the least"
    yield "of many calls, in milliseconds. The machine was busy: small differences mean nothing."
    yield ""
    has_rival = any("eager_ms" in row for row in own)
    yield "| kernel | input | ours |" + " eager |" * has_rival
    yield "|---|---|---:|" + "---:|" * has_rival
    for row in own:
        eager = f" {row['eager_ms']:.3g} |" if "eager_ms" in row else " |" * has_rival
        yield f"| {row['kernel']} | {row['input']} | {row['ours_ms']:.3g} |{eager}"
    yield ""


def _measured_on_gpu(module: str) -> Iterator[str]:
    """Rows of the last scoreboard, or else those of docs/measured.md."""
    rows, times = board_rows(module), gpu_rows()
    if not rows:
        older = measured_rows(module)
        yield from ("## Measured on an H200", "", *older, "") if older else ()
        return
    versions = ", ".join(dict.fromkeys(f"torch {row['torch']}, {row['date']}" for row in rows))
    yield from (f"## Measured on an {times['device'].removeprefix('NVIDIA ')}", "")
    yield f"{times['device']}, {versions}; default configs, medians of device time with a cold L2"
    yield "cache. Others are eager, torch.compile, torch's attention kernels and Triton by hand."
    yield ""
    yield "| operator | input | ours, ms | fastest other | its ms | times as fast |"
    yield "|---|---|---:|---|---:|---:|"
    for row in rows:
        name = f"{row['operator']} ({row['kernel']})" if row["kernel"] else row["operator"]
        yield (
            f"| {name} | {row['input']} | {row['ours_ms']:.4g} | {row['rival']} | "
            f"{row['rival_ms']:.4g} | {row['ratio']:.2f} |"
        )
    yield ""


def board_rows(module: str) -> list[dict[str, Any]]:
    """The rows of the last scoreboard about kernels of an example, or called like it."""
    keys = {operator.name: _kernels_of(operator, module) for operator in suite().operators}
    stem = module.rpartition(".")[2]
    return [
        row
        for row in gpu_rows()["rows"]
        if row["operator"].removesuffix("-bwd") == stem
        or (keys.get(row["operator"]) and row["kernel"] in ("", *keys[row["operator"]]))
    ]


@cache
def _tables() -> list[tuple[str, str, list[str]]]:
    """Tables of docs/measured.md: the header, the line below it, and the rows."""
    text = (DOCS / "measured.md").read_text(encoding="utf-8")
    tables = re.findall(r"^(\|.*)\n(\|[-| :]+)\n((?:\|.*\n)+)", text, re.MULTILINE)
    return [(head, line, rows.splitlines()) for head, line, rows in tables]


def measured_rows(module: str) -> list[str]:
    """The rows of docs/measured.md about operators that run the kernels of an example."""
    operators = list(operators_by_module().get(module, {}).values())
    names = {operator.name for operator in operators}
    names |= {f"{one.name} ({key})" for one in operators for key in _kernels_of(one, module)}
    names |= {module.rpartition(".")[2]}
    found: list[str] = []
    for head, line, rows in _tables():
        own = [row for row in rows if row.strip("|").partition("|")[0].strip("` ") in names]
        found += [head, line, *own, ""] if own else []
    return found


def _kernels_of(operator: Operator, module: str) -> list[str]:
    """The short names of an operator's kernels that a module has."""
    return [key for key, place in operator.kernels.items() if place.startswith(f"{module}:")]


def _picture(call: Call) -> str:
    """What programs touch; "" where a run or its picture says little."""
    try:
        bound = call.kernel.bind(call.args, target=CPU_TARGET)
        tiles = tiles_of(bound, small_config(bound, PICTURED_BLOCK))
    except PROBLEMS:
        return ""  # a kernel that needs more than an interpreter has none
    if not tiles.get("programs"):
        return ""
    place = len(tiles["programs"]) // 3
    steps = len(tiles["programs"][place]["steps"]) or 1
    moments = dict.fromkeys([Moment(place, (steps - 1) // 2), Moment(place, steps - 1)])
    return tiles_svg([(tiles, "")], list(moments))


def _code(call: Call) -> Iterator[str]:
    for target, language, title in (
        (CPU_TARGET, "text", "as native code"),
        (TARGET, "python", f"as Triton for {TARGET}"),
    ):
        text = _emitted(call, target)
        if text:
            yield f'??? note "`{call.kernel.name}` {title}"'
            yield ""
            yield from (f"    {line}".rstrip() for line in [f"```{language}", *text, "```"])
            yield ""


def _emitted(call: Call, target: str) -> list[str]:
    try:
        bound: Any = call.kernel.bind(call.args, target=target)
        text = bound.to_triton_code() if target == TARGET else bound.to_code()
    except PROBLEMS:
        return []  # the target lacks a type or an instruction of the kernel
    lines = text.replace(f"{ROOT}/", "").rstrip().splitlines()
    rest = len(lines) - MAX_LINES
    return lines if rest <= 0 else [*lines[:MAX_LINES], f"# ... {rest} more lines"]
