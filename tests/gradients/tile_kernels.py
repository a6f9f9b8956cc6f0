"""Kernels of one op each, for its adjoint.

Results that depend on the sizes of tiles are those of fixed sizes: a gradient has them, too.
"""

from __future__ import annotations

from typing import Any

import torch

import tilesmith as helion
import tilesmith.language as hl

SMALL = helion.Config(block_sizes=[2])


@helion.kernel(config=SMALL)
def of_rows(x: torch.Tensor, function: Any) -> torch.Tensor:
    """A function of rows that gives one number each."""
    out = torch.empty([x.size(0)], dtype=x.dtype, device=x.device)
    for tile in hl.tile(x.size(0)):
        out[tile] = function(x[tile, :])
    return out


@helion.kernel(config=SMALL)
def of_whole_rows(x: torch.Tensor, function: Any) -> torch.Tensor:
    """A function of rows that gives rows."""
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = function(x[tile, :])
    return out


@helion.kernel(config=SMALL)
def of_matrices(x: torch.Tensor, y: torch.Tensor, function: Any) -> torch.Tensor:
    """A function of two square matrices."""
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :, :] = function(x[tile, :, :], y[tile, :, :])
    return out


@helion.kernel(config=SMALL)
def gathered(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Elements picked within rows."""
    out = torch.empty(places.size(), dtype=x.dtype, device=x.device)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = torch.gather(x[tile, :], 1, places[tile, :])
    return out


@helion.kernel(config=SMALL)
def looked_up(table: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Rows of a table, some of them several times."""
    out = torch.empty([places.size(0), table.size(1)], dtype=table.dtype, device=table.device)
    for tile in hl.tile(places.size(0)):
        out[tile, :] = table[places[tile], :]
    return out


@helion.kernel(config=SMALL)
def masked(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """The beginnings of rows, loaded from a flat tensor."""
    width = hl.specialize(x.size(1))
    flat = x.view(-1)
    out = torch.empty([x.size(0)], dtype=x.dtype, device=x.device)
    for tile in hl.tile(x.size(0)):
        places = tile.index[:, None] * width + hl.arange(width)[None, :]
        inside = hl.arange(width)[None, :] < lengths[tile][:, None]
        row = hl.load(flat, [places], extra_mask=inside)
        out[tile] = torch.exp(row * 0.5).sum(-1)
    return out


@helion.kernel
def branched(x: torch.Tensor, limit: int) -> torch.Tensor:
    """Another function for some programs."""
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0), block_size=2):
        row = x[tile, :]
        scale = row.sum(-1, keepdim=True)
        if tile.begin < limit:
            result = torch.sin(row) * scale
        else:
            result = row * row
            result = result + row
        out[tile, :] = result
    return out


@helion.kernel(config=SMALL)
def decayed(x: torch.Tensor, rate: torch.Tensor) -> torch.Tensor:
    """A recurrence over tiles of columns, in which every turn is stored."""
    rows, columns = x.size()
    out = torch.empty_like(x)
    for tile_m in hl.tile(rows):
        state = hl.zeros([tile_m], dtype=x.dtype)
        for tile_n in hl.tile(columns, block_size=4):
            chunk = x[tile_m, tile_n]
            state = torch.tanh(state * rate[tile_m] + chunk.sum(-1))
            out[tile_m, tile_n] = chunk * state[:, None]
    return out


@helion.kernel(config=SMALL)
def stepped(x: torch.Tensor, rate: torch.Tensor) -> torch.Tensor:
    """A recurrence over single columns."""
    rows, columns = x.size()
    out = torch.empty([rows], dtype=x.dtype, device=x.device)
    for tile in hl.tile(rows):
        state = hl.zeros([tile], dtype=x.dtype)
        for i in range(columns):
            state = state * torch.sigmoid(rate[i]) + torch.sin(x[tile, i] + state)
        out[tile] = state
    return out


@helion.kernel(config=SMALL)
def nested(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A recurrence inside a sum."""
    rows, columns = x.size()
    out = torch.empty([rows], dtype=x.dtype, device=x.device)
    for tile_m in hl.tile(rows):
        total = hl.zeros([tile_m], dtype=x.dtype)
        for tile_k in hl.tile(y.size(0), block_size=2):
            scale = y[tile_k].sum()
            state = hl.zeros([tile_m], dtype=x.dtype) + 0.5
            for tile_n in hl.tile(columns, block_size=4):
                state = torch.cos(state * scale) + x[tile_m, tile_n].sum(-1)
            total = total + state * scale
        out[tile_m] = total
    return out


@helion.kernel(static_shapes=False)
def from_the_end(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Loops over tiles from the last one to the first: one block is tuned, one is fixed."""
    rows, columns = x.size()
    sums = torch.empty([rows], dtype=x.dtype, device=x.device)
    squares = torch.zeros_like(x)
    for tile_m in hl.tile(rows):
        total = hl.zeros([tile_m], dtype=x.dtype)
        for tile_n in reversed(hl.tile(1, columns, block_size=4)):
            total = total + torch.sin(x[tile_m, tile_n]).sum(-1)
        for tile_k in reversed(hl.tile(columns)):
            squares[tile_m, tile_k] = x[tile_m, tile_k] * x[tile_m, tile_k]
        sums[tile_m] = total
    return sums, squares


@helion.kernel(config=SMALL)
def summed_atomically(x: torch.Tensor, bins: torch.Tensor) -> torch.Tensor:
    """Squares added up in bins."""
    out = torch.zeros([4], dtype=x.dtype, device=x.device)
    for tile in hl.tile(x.size(0)):
        row = x[tile]
        hl.atomic_add(out, [bins[tile]], row * row)
    return out


@helion.kernel(config=SMALL)
def with_host_views(x: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Views, casts and sums of the host around device code."""
    rows = x.transpose(0, 1).contiguous().view(-1, x.size(0)) * 2
    first = torch.empty(rows.size(), dtype=x.dtype, device=x.device)
    pair = torch.zeros([2, *rows.size()], dtype=x.dtype, device=x.device)
    second = pair[1]
    for tile in hl.tile(rows.size(0)):
        row = rows[tile, :]
        first[tile, :] = row * scale[0]
        second[tile, :] = torch.exp(row)
    return pair.reshape(2, -1).T, first.sum()
