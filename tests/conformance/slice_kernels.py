"""Slices of runtime position, index tensors of higher rank, new axes, and forms of stores."""

from __future__ import annotations

from typing import Any

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import EXACT, Case, blocks, integers, randn


@helion.kernel
def window_of_a_block(x: torch.Tensor, shift: int) -> torch.Tensor:
    m, n = x.size(0), x.size(1) - 4
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for t in hl.tile(m):
        for u in hl.tile(n):
            first = u.begin + shift
            out[t, u] = x[t, first : first + u.block_size]
    return out


@helion.kernel
def tile_from_its_bounds(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t.begin : t.end] = x[t.begin : t.begin + t.block_size] + 1
    return out


@helion.kernel
def two_blocks(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros([x.size(0) // 2], dtype=x.dtype, device=x.device)
    for t in hl.tile(out.size(0)):
        both = x[2 * t.begin : 2 * t.begin + 2 * t.block_size]
        out[t] = both.reshape(t, 2).sum(1)
    return out


@helion.kernel
def every_second(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros([x.size(0) // 2], dtype=x.dtype, device=x.device)
    for t in hl.tile(out.size(0)):
        begin = t.begin * 2
        out[t] = x[begin + 1 : begin + 2 * t.block_size + 1 : 2]
    return out


@helion.kernel
def ranges_of_a_block(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros([x.size(0), 3], dtype=torch.int32, device=x.device)
    for t in hl.tile(x.size(0)):
        out[t, 0] = hl.arange(t) + t.begin
        out[t, 1] = hl.arange(t.begin * 3, t.begin * 3 + t.block_size * 3, 3)
        out[t, 2] = hl.arange(t.begin + 1, t.begin + 1 + t.block_size, dtype=torch.int64)
    return out


@helion.kernel
def known_ranges(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros([4, 5], dtype=torch.int32, device=x.device)
    for _ in hl.grid(1):
        out[0, :] = hl.arange(5)
        out[1, :] = hl.arange(2, 7)
        out[2, :] = hl.arange(3, 16, 3)
        out[3, :] = torch.arange(9, -1, -2)
    return out


@helion.kernel
def fixed_length(x: torch.Tensor, starts: torch.Tensor, shift: int) -> torch.Tensor:
    out = torch.empty([starts.size(0), 6], dtype=x.dtype, device=x.device)
    for i in hl.grid(starts.size(0)):
        start = starts[i]
        out[i, :3] = x[start : start + 3]
        out[i, 3:] = x[shift + 1 : shift + 4]
    return out


@helion.kernel
def open_slices(x: torch.Tensor) -> torch.Tensor:
    n = x.size(1)
    out = torch.zeros([x.size(0), n], dtype=x.dtype, device=x.device)
    for t in hl.tile(x.size(0)):
        out[t, : n - 2] = x[t, 2:]
        out[t, -2:] = x[t, :2]
    return out


@helion.kernel
def picked_rows(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    m, k = index.size()
    out = torch.empty([m, k, x.size(1)], dtype=x.dtype, device=x.device)
    for t in hl.tile(m):
        out[t, :, :] = x[index[t, :], :]
    return out


@helion.kernel
def picked_columns(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    m, k = index.size()
    out = torch.empty([x.size(0), m, k], dtype=x.dtype, device=x.device)
    for t, u in hl.tile([x.size(0), m]):
        out[t, u, :] = x[t, index[u, :]]
    return out


@helion.kernel
def separate_tables(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    m, k = index.size()
    out = torch.zeros([m, k, x.size(1), m, k], dtype=x.dtype, device=x.device)
    for t in hl.tile(m, block_size=4):
        found = x[index[t, :], :, index[t, :]]
        out[t, :, :, t, :] = found
    return out


@helion.kernel
def three_tables(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    m, k = index.size()
    out = torch.empty([m, k, x.size(2)], dtype=x.dtype, device=x.device)
    for t in hl.tile(m):
        rows = index[t, :]
        out[t, :, :] = x[rows, hl.arange(k)[None, :], :]
    return out


@helion.kernel
def new_axes(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    m = x.size(0)
    out, total = torch.empty_like(x), torch.empty([m], dtype=x.dtype, device=x.device)
    for t in hl.tile(m):
        out[t, :] = x[t, None, :].sum(1) + x[None, t, ...].sum(0)
        total[t] = x[t, ..., 0]
    return out, total


@helion.kernel
def scalar_places(x: torch.Tensor, pick: torch.Tensor, k: int) -> torch.Tensor:
    out = torch.zeros([x.size(0), 5], dtype=x.dtype, device=x.device)
    for t in hl.tile(x.size(0), block_size=1):
        out[t.begin, 0] = x[t.id, 0]
        out[t.begin, 1] = x[t.begin, k]
        out[t.begin, 2] = x[pick[t.begin], -1]
        out[t.begin, 3] = t.begin
        out[t.begin, 4] = hl.load(x, [t.begin, pick[0]])
    return out


@helion.kernel
def spread_out(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros([2 * x.size(0) + 1], dtype=x.dtype, device=x.device)
    for t in hl.tile(x.size(0)):
        out[t.index * 2 + 1] = x[t]
    return out


@helion.kernel
def updates(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    for t in hl.tile(x.size(0)):
        x[t, 0] += y[t]
        x[t, 1] -= 3
        x[t, 2] *= y[t]
        x[t, 3] //= 2
        x[t, 4] |= 5
        x[t, 5] <<= 1
    return x


@helion.kernel
def whole_tensor(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    for i in hl.grid(x.size(0)):
        x[i, ...] = y
    return x


@helion.kernel
def converted(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    whole = torch.empty(x.size(), dtype=torch.int32, device=x.device)
    flags = torch.empty(x.size(), dtype=torch.bool, device=x.device)
    for t in hl.tile(x.size(0)):
        whole[t] = x[t]
        flags[t] = x[t].to(torch.int32)
    return whole, flags


@helion.kernel
def broadcast_stores(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), 5, 3], dtype=x.dtype, device=x.device)
    for t in hl.tile(x.size(0)):
        out[t, :, 0] = x[t][:, None]
        out[t, :, 1] = True
        out[t, :, 2] = x[0]
    return out


@helion.kernel
def masked_in_every_way(x: torch.Tensor, keep: torch.Tensor, is_on: int) -> torch.Tensor:
    out = torch.full_like(x, -1.0)
    for t, u in hl.tile(x.size()):
        row = hl.load(x, [t, u], extra_mask=keep[u][None, :])
        row = row + hl.load(x, [t, u], extra_mask=is_on > 0, eviction_policy="evict_first")
        hl.store(out, [t, u], row, extra_mask=keep[u][None, :])
    return out


def picked(x: torch.Tensor, pick: torch.Tensor, k: int) -> torch.Tensor:
    rows = torch.arange(x.size(0), dtype=x.dtype)
    return torch.stack([x[:, 0], x[:, k], x[pick, -1], rows, x[:, pick[0]]], 1)


def updated(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    parts = [x[:, 0] + y, x[:, 1] - 3, x[:, 2] * y, x[:, 3] // 2, x[:, 4] | 5, x[:, 5] << 1]
    return torch.stack(parts, 1)


def separated(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    m, k = index.shape
    return x[index][..., index].reshape(m, k, x.size(1), m, k)


def spread(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(2 * x.size(0) + 1)
    out[1::2] = x
    return out


def stored(x: torch.Tensor) -> torch.Tensor:
    ones = torch.ones(x.size(0), 5)
    return torch.stack([x[:, None] * ones, ones, x[0] * ones], 2)


def masked(x: torch.Tensor, keep: torch.Tensor, is_on: int) -> torch.Tensor:
    return torch.where(keep, x + (x if is_on > 0 else 0), -1.0)


def ranges(x: torch.Tensor) -> torch.Tensor:
    rows = torch.arange(x.size(0), dtype=torch.int32)
    return torch.stack([rows, rows * 3, rows + 1], 1)


def lists(*_: Any) -> torch.Tensor:
    rows = [range(5), range(2, 7), range(3, 16, 3), range(9, -1, -2)]
    return torch.tensor([list(row) for row in rows], dtype=torch.int32)


def fixed(x: torch.Tensor, starts: torch.Tensor, shift: int) -> torch.Tensor:
    rows = [torch.cat([x[s : s + 3], x[shift + 1 : shift + 4]]) for s in starts.tolist()]
    return torch.stack(rows)


def keep() -> torch.Tensor:
    flags = [True, False, True, True, False, True, False]
    return torch.tensor(flags, device=torch.get_default_device())


# fmt: off
@helion.kernel
def half_a_block(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(y)
    for t in hl.tile(x.size(0)):
        half = t.block_size // 2
        first = t.begin // 2
        offset = hl.zeros([half]) + hl.arange(half)
        part = y[t.begin // 2 : t.begin // 2 + half]
        out[first : first + t.block_size // 2] = part * 2 + (offset - hl.arange(half))
    return out


@helion.kernel
def all_but_one_of_a_block(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    for t in hl.tile(x.size(0), block_size=8):
        begin = t.begin // 4 * 4
        out[begin + 1 : begin + t.block_size] = x[t.begin : t.begin + t.block_size - 1]
    return out


def all_but_one_reference(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    for begin in range(0, x.size(0), 8):
        last = min(begin + 7, x.size(0) - 1)
        out[begin + 1 : last + 1] = x[begin:last]
    return out


SLICES = (
    Case(
        "half_a_block",
        half_a_block,
        lambda: (randn(38), randn(19, seed=1)),
        lambda _, y: y.double() * 2,
        blocks(8),
        varies_with_blocks=True,
    ),
    Case(
        "all_but_one",
        all_but_one_of_a_block,
        lambda: (randn(21),),
        all_but_one_reference,
        helion.Config(),
        EXACT,
    ),
    Case("window_of_a_block", window_of_a_block, lambda: (randn(5, 25), 3), lambda x, s: x[:, 3:24],
         blocks(2, 8), EXACT),
    Case("tile_from_its_bounds", tile_from_its_bounds, lambda: (randn(13),), lambda x: x + 1,
         blocks(8), EXACT),
    Case("two_blocks", two_blocks, lambda: (randn(26),),
         lambda x: x.double().view(-1, 2).sum(1), blocks(8), 2),
    Case("every_second", every_second, lambda: (randn(27),), lambda x: x[1::2], blocks(8), EXACT),
    Case("ranges_of_a_block", ranges_of_a_block, lambda: (randn(13),), ranges, blocks(8), EXACT),
    Case("known_ranges", known_ranges, lambda: (randn(1),), lists, blocks(), EXACT,
         needs_static_shapes=True),
    Case("fixed_length", fixed_length, lambda: (randn(17), torch.tensor([0, 5, 14, 9]), 7), fixed,
         blocks(), EXACT),
    Case("open_slices", open_slices, lambda: (randn(5, 11),), lambda x: x.roll(-2, 1), blocks(2),
         EXACT, needs_static_shapes=True),
    Case("picked_rows", picked_rows, lambda: (randn(9, 5), integers(0, 9, 7, 3)),
         lambda x, index: x[index], blocks(4), EXACT),
    Case("picked_columns", picked_columns, lambda: (randn(5, 9), integers(0, 9, 7, 3)),
         lambda x, index: x[:, index], blocks(2, 4), EXACT),
    Case("separate_tables", separate_tables, lambda: (randn(5, 3, 5), integers(0, 5, 4, 2)),
         separated, blocks(), EXACT),
    Case("three_tables", three_tables, lambda: (randn(9, 3, 5), integers(0, 9, 7, 3)),
         lambda x, index: x[index, torch.arange(3)], blocks(4), EXACT),
    Case("new_axes", new_axes, lambda: (randn(7, 5),), lambda x: (x + x, x[:, 0]), blocks(4),
         EXACT),
    Case("scalar_places", scalar_places, lambda: (randn(5, 7), torch.tensor([3, 1, 0, 4, 4]), 2),
         picked, blocks(), EXACT),
    Case("spread_out", spread_out, lambda: (randn(13),), spread, blocks(8), EXACT),
    Case("updates", updates, lambda: (integers(-9, 9, 7, 6), integers(-9, 9, 7, seed=1)), updated,
         blocks(4), EXACT),
    Case("whole_tensor", whole_tensor, lambda: (randn(3, 5, 7), randn(5, 7, seed=1)),
         lambda x, y: y.expand(3, 5, 7).contiguous(), blocks(), EXACT),
    Case("converted", converted, lambda: (randn(13) * 3,), lambda x: (x.int(), x.int() != 0),
         blocks(8), EXACT),
    Case("broadcast_stores", broadcast_stores, lambda: (randn(7),), stored, blocks(4), EXACT),
    Case("masked_in_every_way", masked_in_every_way, lambda: (randn(5, 7), keep(), 1), masked,
         blocks(2, 4), EXACT),
    Case("masked_in_every_way_off", masked_in_every_way, lambda: (randn(5, 7), keep(), 0), masked,
         blocks(2, 4), EXACT),
)
# fmt: on
