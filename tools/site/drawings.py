"""Pictures of what programs touch, for the tutorial: small kernels, run by the interpreter."""

from __future__ import annotations

from typing import Any

import torch

import tilesmith
import tilesmith.language as hl
from tilesmith.puzzles.table import puzzle
from tilesmith.puzzles.touches import run_recorded, svg_picture


@tilesmith.kernel
def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Ten elements: the last tile is not full."""
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + y[tile]
    return out


@tilesmith.kernel
def outer(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Blocks of a matrix."""
    out = torch.empty([x.size(0), y.size(0)], dtype=x.dtype)
    for tile_m, tile_n in hl.tile([x.size(0), y.size(0)]):
        out[tile_m, tile_n] = x[tile_m][:, None] + y[tile_n][None, :]
    return out


@tilesmith.kernel
def softmax(x: torch.Tensor) -> torch.Tensor:
    """Whole rows."""
    out = torch.empty_like(x)
    for row in hl.tile(x.size(0)):
        out[row, :] = torch.softmax(x[row, :], dim=1)
    return out


@tilesmith.kernel
def matmul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Rows and columns that programs share."""
    m, k = x.size()
    k, n = y.size()
    out = torch.empty([m, n], dtype=x.dtype)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n])
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = acc
    return out


@tilesmith.kernel
def ragged(values: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Rows of different length, end to end."""
    rows = offsets.size(0) - 1
    out = torch.empty([rows], dtype=values.dtype)
    for row in hl.grid(rows):
        total = hl.zeros([])
        for tile in hl.tile(offsets[row], offsets[row + 1]):
            total = total + values[tile].sum()
        out[row] = total
    return out


def pictures() -> dict[str, str]:
    """SVG texts by file name."""
    offsets = puzzle("ragged_means").make_examples()[0][1]
    drawn: dict[str, tuple[Any, tuple[Any, ...], int]] = {
        "tutorial_add": (add, (torch.ones(10), torch.ones(10)), 4),
        "tutorial_outer": (outer, (torch.ones(4), torch.ones(6)), 2),
        "tutorial_softmax": (softmax, (torch.ones(6, 8),), 2),
        "tutorial_matmul": (matmul, (torch.ones(4, 6), torch.ones(6, 4)), 2),
        "tutorial_ragged": (ragged, (torch.ones(int(offsets[-1])), offsets), 2),
    }
    return {
        f"{name}.svg": svg_picture(run_recorded(kernel.bind(args), args, block)[1])
        for name, (kernel, args, block) in drawn.items()
    }
