"""Which lanes past the end of a tile are loaded through the copy engine, since nobody sees them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilesmith
import tilesmith.language as hl
from tilesmith.backends.triton.emission.unseen_lanes import UnseenLanes
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.traversal import walk_function


@tilesmith.kernel
def stored(x: torch.Tensor, y: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), y.size(1)], dtype=torch.float32, device=x.device)
    for group in hl.grid(ends.size(0) - 1):
        for tile_m, tile_n in hl.tile([ends[group], 0], [ends[group + 1], y.size(1)]):
            acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
            for tile_k in hl.tile(x.size(1)):
                acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
            out[tile_m, tile_n] = torch.relu(acc)
    return out


@tilesmith.kernel
def summed(x: torch.Tensor, y: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Rows of the next group would be added."""
    out = torch.empty([ends.size(0) - 1, y.size(1)], dtype=torch.float32, device=x.device)
    for group in hl.grid(ends.size(0) - 1):
        for tile_n in hl.tile(y.size(1)):
            total = hl.zeros([tile_n], dtype=torch.float32)
            for tile_m in hl.tile(ends[group], ends[group + 1]):
                total = total + torch.mm(x[tile_m, :], y[:, tile_n]).float().sum(0)
            out[group, tile_n] = total
    return out


@tilesmith.kernel
def looked_up(x: torch.Tensor, y: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Numbers of the next group would be places."""
    out = torch.empty([x.size(0), y.size(1)], dtype=y.dtype, device=x.device)
    for group in hl.grid(ends.size(0) - 1):
        for tile_m in hl.tile(ends[group], ends[group + 1]):
            out[tile_m, :] = y[x[tile_m, 0].to(torch.int32), :]
    return out


@tilesmith.kernel
def cumulated(x: torch.Tensor, y: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for group in hl.grid(ends.size(0) - 1):
        for tile_m in hl.tile(ends[group], ends[group + 1]):
            out[tile_m, :] = torch.cumsum(x[tile_m, :], 0)
    return out


def unseen(kernel: Any) -> dict[str, tuple[int, ...]]:
    """By tensor: the axes of its load past whose end nobody looks."""
    shapes = ((64, 64), (64, 64))
    x, y = (torch.empty(s, dtype=torch.float16, device="meta") for s in shapes)
    ends = torch.empty(5, dtype=torch.int32, device="meta")
    bound = kernel.bind(kernel.normalize_args(x, y, ends), target="cuda:90")
    function = bound.config_spec.function
    lanes = UnseenLanes(function)
    loads = [op for op in walk_function(function) if isinstance(op, Load)]
    return {op.tensor.name: lanes.axes(op) for op in loads if op.result.tile.rank}


def test_rows_and_columns_of_a_product_are_only_stored() -> None:
    # What is contracted is seen by all of its row and column.
    assert unseen(stored) == {"x": (0,), "y": (1,)}


@pytest.mark.parametrize(
    ("kernel", "found"),
    [(summed, {"x": (), "y": (1,)}), (looked_up, {"x": (), "y": (0, 1)}), (cumulated, {"x": (1,)})],
    ids=["summed", "looked up", "cumulated"],
)
def test_lanes_that_meet_others_are_seen(kernel: Any, found: dict[str, tuple[int, ...]]) -> None:
    assert unseen(kernel) == found
