"""Kernels with rows that programs might share, and some whose rows they must not."""

from __future__ import annotations

from typing import Any

import torch

import tilesmith as helion
import tilesmith.language as hl

STATIC: Any = helion.kernel(static_shapes=True)


@STATIC
def statistics_and_doubles(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A variance and both extremes, and tiles that need none of them."""
    m, n = x.size()
    out = torch.empty([m], dtype=torch.float32, device=x.device)
    ids = torch.empty_like(x)
    for tile_m in hl.tile(m):
        row = x[tile_m, :]
        off = row - (row.sum(-1) / n)[:, None]
        ids[tile_m, :] = row * 2
        out[tile_m] = (off * off).sum(-1) / n + row.amax(-1) - row.amin(-1)
    return out, ids


@STATIC
def walked_extremes(x: torch.Tensor) -> torch.Tensor:
    """A loop that carries three numbers of each row; the last of them begins at 3."""
    m, n = x.size()
    out = torch.empty([m], dtype=torch.float32, device=x.device)
    for tile_m in hl.tile(m):
        high = hl.full([tile_m], float("-inf"), dtype=torch.float32)
        low = hl.full([tile_m], float("inf"), dtype=torch.float32)
        total = hl.full([tile_m], 3.0, dtype=torch.float32)
        for tile_n in hl.tile(n):
            part = x[tile_m, tile_n]
            high = torch.maximum(high, part.amax(-1))
            low = torch.minimum(low, part.amin(-1))
            total = total + part.sum(-1)
        out[tile_m] = high - low + total
    return out


@STATIC
def around_the_maximum(x: torch.Tensor) -> torch.Tensor:
    """A chain of two reductions that no rule joins."""
    out = torch.empty_like(x)
    for tile_m in hl.tile(x.size(0)):
        row = x[tile_m, :]
        below = row.amax(-1, keepdim=True) - row
        out[tile_m, :] = below / (below * below + 1).sum(-1, keepdim=True)
    return out


@STATIC
def running_total(x: torch.Tensor) -> torch.Tensor:
    """Each turn stores what the ones before it have added up."""
    m, n = x.size()
    out = torch.empty_like(x)
    for tile_m in hl.tile(m):
        total = hl.zeros([tile_m], dtype=torch.float32)
        for tile_n in hl.tile(n):
            total = total + x[tile_m, tile_n].sum(-1)
            out[tile_m, tile_n] = x[tile_m, tile_n] + total[:, None]
    return out


@STATIC
def last_turn_wins(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """All turns store to one place."""
    m, n = x.size()
    out, last = x.new_empty([m]), x.new_empty([m])
    for tile_m in hl.tile(m):
        total = hl.zeros([tile_m], dtype=torch.float32)
        for tile_n in hl.tile(n):
            total = total + x[tile_m, tile_n].sum(-1)
            last[tile_m] = x[tile_m, tile_n].amax(-1)
        out[tile_m] = total
    return out, last


@STATIC
def decayed(x: torch.Tensor) -> torch.Tensor:
    """A recurrence: what is carried is not only added to."""
    m, n = x.size()
    out = x.new_empty([m])
    for tile_m in hl.tile(m):
        total = hl.zeros([tile_m], dtype=torch.float32)
        for tile_n in hl.tile(n):
            total = total * 0.5 + x[tile_m, tile_n].sum(-1)
        out[tile_m] = total
    return out


@STATIC
def weighted_by_number(x: torch.Tensor) -> torch.Tensor:
    """Tiles count by their number."""
    m, n = x.size()
    out = x.new_empty([m])
    for tile_m in hl.tile(m):
        total = hl.zeros([tile_m], dtype=torch.float32)
        for tile_n in hl.tile(n):
            total = total + x[tile_m, tile_n].sum(-1) * tile_n.id
        out[tile_m] = total
    return out


@STATIC
def peaks_of_tiles(x: torch.Tensor) -> torch.Tensor:
    """The source says how large tiles are, and each counts by its own maximum."""
    m, n = x.size()
    out = x.new_empty([m])
    for tile_m in hl.tile(m):
        total = hl.zeros([tile_m], dtype=torch.float32)
        for tile_n in hl.tile(n, block_size=32):
            total = total + x[tile_m, tile_n].amax(-1)
        out[tile_m] = total
    return out


@STATIC
def peaks_of_registered_tiles(x: torch.Tensor) -> torch.Tensor:
    """The same with bounds that leave no choice."""
    m, n = x.size()
    out = x.new_empty([m])
    width = hl.register_block_size(32, 32)
    for tile_m in hl.tile(m):
        total = hl.zeros([tile_m], dtype=torch.float32)
        for tile_n in hl.tile(n, block_size=width):
            total = total + x[tile_m, tile_n].amax(-1)
        out[tile_m] = total
    return out


@STATIC
def scaled_tiles(x: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """The source says how large tiles are, and they have scales of their own."""
    m, n = x.size()
    out = x.new_empty([m])
    for tile_m in hl.tile(m):
        total = hl.zeros([tile_m], dtype=torch.float32)
        for tile_n in hl.tile(n, block_size=32):
            total = total + x[tile_m, tile_n].sum(-1) * scales[tile_m, tile_n.id]
        out[tile_m] = total
    return out


@STATIC
def counted_tiles(x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Atomics and a branch, but nobody waits for the last: two axes of a plain grid."""
    m, n = x.size()
    out = torch.empty_like(x)
    for tile_m, tile_n in hl.tile([m, n]):
        old = hl.atomic_add(counts, [0], 1)
        row = x[tile_m, tile_n]
        if old == 0:
            row = row * 2
        out[tile_m, tile_n] = row - row.amax(-1, keepdim=True)
    return out


@STATIC
def in_place(x: torch.Tensor) -> torch.Tensor:
    """Overwrites what neighbours still read."""
    for tile_m in hl.tile(x.size(0)):
        row = x[tile_m, :]
        x[tile_m, :] = row - row.amax(-1, keepdim=True)
    return x


@STATIC
def largest(x: torch.Tensor) -> torch.Tensor:
    """Positions are not put together."""
    out = torch.empty([x.size(0)], dtype=torch.int64, device=x.device)
    for tile_m in hl.tile(x.size(0)):
        out[tile_m] = x[tile_m, :].argmax(-1)
    return out
