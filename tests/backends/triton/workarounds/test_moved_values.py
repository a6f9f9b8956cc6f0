"""Values that a loop exchanges are carried, also where all of them begin as one value.

Triton would take them for unchanged: what it carries is what its own IR says.
"""

from __future__ import annotations

import re

import pytest
import torch

import tilesmith
import tilesmith.language as hl
from tilesmith.backends.triton.build import compile_artifact

TARGET = "cuda:90"


@tilesmith.kernel
def turned(x: torch.Tensor, count: int) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        a = x[tile]
        b = x[tile]
        turn = hl.full([], 0, dtype=torch.int32)
        while turn < count:
            a, b = b, a + 1
            turn = turn + 1
        out[tile] = a * 10 + b
    return out


@tilesmith.kernel
def turned_in_range(x: torch.Tensor, count: int) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        a = x[tile]
        b = x[tile]
        c = x[tile]
        for turn in range(count):
            a, b, c = b, c, a + turn
        out[tile] = a * 10 + b - c
    return out


@tilesmith.kernel
def turned_inside(x: torch.Tensor, count: int) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        a = x[tile]
        b = x[tile]
        for _ in range(count):
            for turn in range(count):
                a, b = b, a * turn
        out[tile] = a * 10 + b
    return out


def carried(kernel: tilesmith.Kernel, loop: str) -> list[int]:
    """How many values each loop carries in Triton's own IR."""
    bound = kernel.bind((torch.zeros(100), 3), target=TARGET)
    text = compile_artifact(bound.to_artifact(target=TARGET)).assembly["ttir"]
    found = re.findall(rf"scf\.{loop} .*", text)
    return [line.partition("-> (")[2].partition(")")[0].count(",") + 1 for line in found]


@pytest.mark.parametrize(
    ("kernel", "loop", "wanted"),
    [(turned, "while", [3]), (turned_in_range, "for", [3]), (turned_inside, "for", [2, 2])],
    ids=["while", "range", "nested"],
)
def test_all_are_carried(kernel: tilesmith.Kernel, loop: str, wanted: list[int]):
    assert carried(kernel, loop) == wanted
