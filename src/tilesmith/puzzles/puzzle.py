"""What a puzzle is: a task, a file to start from, a hint, and how a solution is judged."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from textwrap import dedent
from typing import Any

import torch

from tilesmith.puzzles.checking import PICTURED_BLOCK, Arguments, Outcome, check

HEAD = """\
import torch

import tilesmith
import tilesmith.language as hl


"""


@dataclass(frozen=True)
class Puzzle:
    """One task. ``check`` judges a kernel."""

    number: int
    name: str
    """That of the kernel to write."""
    title: str
    task: str
    formula: str
    """The same in one line of NumPy's or torch's words."""
    start: str
    """The kernel with a gap, ``...``."""
    hint: str
    reference: Callable[..., torch.Tensor]
    make_examples: Callable[[], Sequence[Arguments]]
    """Arguments: small ones for the picture first, then some with odd sizes."""
    block_size: int = PICTURED_BLOCK

    @property
    def heading(self) -> str:
        """Its number and title."""
        return f"{self.number}. {self.title}"

    @property
    def text(self) -> str:
        """The task and the kernel to complete."""
        return f"{self.heading}\n\n{self.task}\n\n    {self.formula}\n\n{self.source}"

    @property
    def source(self) -> str:
        """The kernel to complete."""
        return dedent(self.start).strip() + "\n"

    @property
    def file(self) -> str:
        """A file to start from."""
        comment = "\n".join(f"# {line}".rstrip() for line in [self.heading, "", self.task])
        return f"{HEAD}{comment}\n# {self.formula}\n{self.source}"

    def check(self, kernel: Any) -> Outcome:
        """Whether a kernel solves it; in a notebook the answer is a picture."""
        return check(self.heading, kernel, self.reference, self.make_examples(), self.block_size)

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__

    def _repr_markdown_(self) -> str:
        return f"### {self.heading}\n\n{self.task}\n\n`{self.formula}`\n"


def cell(kind: str, text: str, number: int) -> dict[str, Any]:
    """One cell of a notebook."""
    made: dict[str, Any] = {
        "cell_type": kind,
        "id": f"cell-{number}",
        "metadata": {},
        "source": text.strip("\n").splitlines(keepends=True),
    }
    return made | ({"execution_count": None, "outputs": []} if kind == "code" else {})


def notebook(cells: list[tuple[str, str]]) -> str:
    """The text of a notebook of cells: their kinds, ``markdown`` or ``code``, and texts."""
    record = {
        "cells": [cell(kind, text, number) for number, (kind, text) in enumerate(cells)],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(record, indent=1, ensure_ascii=False) + "\n"
