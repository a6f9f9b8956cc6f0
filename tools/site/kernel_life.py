"""The life of one kernel, from source to machine code, with what each stage really gives."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import torch

from examples.softmax import softmax
from tilesmith.cli.explain import explain_lines, stage_lines
from tilesmith.explore.explorer import explore
from tools.site.pages import ROOT

TARGET = "cpu:avx2"
GPU = "cuda:90"
WIDEST = 160
ASSEMBLY_LINES = 60


def life_page() -> str:
    """The page."""
    return "\n".join(_lines()).replace(f"{ROOT}/", "")


def explorer_page() -> str:
    """The explorer's page about the same kernel, on the GPU."""
    return explore(softmax.bind((torch.randn(64, 200),), target=GPU)).html


def _fence(text: str, language: str = "text") -> list[str]:
    return [
        f"```{language}",
        *(line[:WIDEST].rstrip() for line in text.rstrip().splitlines()),
        "```",
        "",
    ]


def _lines() -> Iterator[str]:
    args = (torch.randn(64, 200),)
    bound = softmax.bind(args, target=TARGET)
    config = bound.default_config()
    yield "# The life of one kernel"
    yield ""
    yield "Everything below is what the compiler gave when this page was built:"
    yield "`tilesmith explain examples.softmax:softmax --args 'randn(64, 200)' --stages`, for"
    yield f"`{TARGET}` and `{GPU}`. [Architecture](architecture.md) says which file does what."
    yield "The same as one page, with lines that light up together:"
    yield "[softmax in the explorer](../explorer/life.html){ target=_blank }."
    yield from ("", "## 1. The source", "", *_fence(inspect.getsource(softmax.fn), "python"))
    yield "Host code stays Python. The loop over `hl.tile` is traced once, on proxies, for"
    yield "arguments of these types and sizes."
    yield ""
    stages = "\n".join(stage_lines(bound, config)).split("\n== ")[1:]
    for number, stage in enumerate(stages, 2):
        head, _, body = stage.partition("\n")
        name, _, reason = head.partition(": ")
        yield from (f"## {number}. {name}", "", reason, "")
        notes, code = _split(body)
        yield from (f"- {note.strip()}" for note in notes)
        yield ""
        if code:
            yield from _fence(code)
    yield from ("## Which program touches what", "")
    yield "Two programs of this config, as the explorer draws them:"
    yield from ("", f'<div class="tiles">{explore(bound).picture((0, 0), (1, -1))}</div>', "")
    yield from ("## What is known of it", "", *_fence(str(bound.facts)))
    yield from ("## Why this config", "", *_fence("\n".join(explain_lines(bound, 3))))
    assembly = bound.to_code(form="assembly").splitlines()
    shown = [line for line in assembly if not line.strip().startswith((".cfi", ".p2align"))]
    yield from (f"## Machine code, the first {ASSEMBLY_LINES} lines", "")
    yield from _fence("\n".join(shown[:ASSEMBLY_LINES]), "asm")
    yield from (f"## The same for {GPU}", "")
    yield from _fence(softmax.bind(args, target=GPU).to_triton_code(), "python")


def _split(body: str) -> tuple[list[str], str]:
    """Lines about passes, then the text."""
    lines = body.splitlines()
    notes = [line for line in lines if re.match(r"  (\w+: |nothing changed)", line)]
    first = len(notes)
    return notes[:first], "\n".join(lines[first:])
