"""Elements that change places: joined, split, gathered, sorted, and reshaped across padding."""

from __future__ import annotations

import torch
from torch.nn import functional

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import EXACT, Case, blocks, integers, randn


@helion.kernel
def join_and_split(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    m, n = x.shape
    both = torch.empty([m, n, 2], dtype=x.dtype, device=x.device)
    left, right = torch.empty_like(x), torch.empty_like(x)
    for t, u in hl.tile([m, n]):
        pair = hl.join(x[t, u], y[t][:, None])
        both[t, u, :] = pair
        low, high = hl.split(pair * 2)
        left[t, u], right[t, u] = low, high
    return both, left, right


def joined(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    wide = y[:, None].expand_as(x)
    return torch.stack([x, wide], -1), 2 * x, 2 * wide


@helion.kernel
def rotate_halves(x: torch.Tensor, cos: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        row = x[t, :]
        first, second = torch.chunk(row, 2, dim=-1)
        out[t, :] = row * cos[t, :] + torch.cat([-second, first], dim=-1)
    return out


def rotated(x: torch.Tensor, cos: torch.Tensor) -> torch.Tensor:
    x, cos = x.double(), cos.double()
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1)


@helion.kernel
def interleaved_pairs(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    m, n = x.shape
    out = torch.empty([2 * m, n], dtype=x.dtype, device=x.device)
    for t, u in hl.tile([m, n]):
        both = torch.stack([x[t, u], y[t, u]], dim=1).reshape(2 * t.block_size, u)
        rows = 2 * t.begin + hl.arange(2 * t.block_size)
        out[rows, u] = both
    return out


@helion.kernel
def parts_of_rows(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    m = x.size(0)
    picked = torch.empty([m, 3], dtype=x.dtype, device=x.device)
    inner = torch.empty([m, 5], dtype=x.dtype, device=x.device)
    spread = torch.empty([m, 13], dtype=x.dtype, device=x.device)
    for t in hl.tile(m):
        row = x[t, :]
        a, b, c = row[:, 0], row[:, 7], row[:, -1]
        picked[t, :] = torch.stack([c, a, b], dim=-1)
        inner[t, :] = row[:, 2:12:2]
        spread[t, :] = functional.pad(row[:, 3:9], (3, 4), value=-1.5)
    return picked, inner, spread


def parts(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    picked = torch.stack([x[:, -1], x[:, 0], x[:, 7]], -1)
    return picked, x[:, 2:12:2], functional.pad(x[:, 3:9], (3, 4), value=-1.5)


@helion.kernel
def moved_elements(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    m, n = x.shape
    m, n = hl.specialize(m), hl.specialize(n)
    back, rolled = torch.empty_like(x), torch.empty_like(x)
    long = torch.empty([m, n + 4], dtype=x.dtype, device=x.device)
    twice = torch.empty([m, 2 * n], dtype=x.dtype, device=x.device)
    for t in hl.tile(m):
        row = x[t, :]
        back[t, :] = row.flip(-1)
        rolled[t, :] = row.roll(-3, 1)
        long[t, :] = torch.cat([row[:, :4], row], 1)
        twice[t, :] = row.repeat_interleave(2, dim=1)
    return back, rolled, long, twice


def moved(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    long = torch.cat([x[:, :4], x], 1)
    return x.flip(-1), x.roll(-3, 1), long, x.repeat_interleave(2, 1)


@helion.kernel
def gathered(x: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, ...]:
    m, k = index.shape
    out = torch.empty([m, k], dtype=x.dtype, device=x.device)
    lines = torch.empty([m, k], dtype=x.dtype, device=x.device)
    for t in hl.tile(m):
        row = torch.exp(x[t, :])
        out[t, :] = torch.gather(row, 1, index[t, :])
        lines[t, :] = torch.index_select(row, 1, index[0, :])
    return out, lines


@helion.kernel
def gathered_within_tiles(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t, u in hl.tile(x.size()):
        last = u.end - u.begin - 1
        position = last - (u.index - u.begin)
        out[t, u] = torch.gather(x[t, u], 1, position[None, :].expand(t, u))
    return out


@helion.kernel
def sorted_rows(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    up, down = torch.empty_like(x), torch.empty_like(x)
    place = torch.empty(x.shape, dtype=torch.int64, device=x.device)
    for t in hl.tile(x.size(0)):
        up[t, :] = torch.sort(x[t, :], dim=-1).values
        down[t, :], place[t, :] = torch.sort(x[t, :] * 1, descending=True, stable=True)
    return up, down, place


def in_order(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x.sort(-1).values, *torch.sort(x, dim=-1, descending=True, stable=True)


@helion.kernel
def largest_of_rows(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    m = x.size(0)
    values = torch.empty([m, 3], dtype=x.dtype, device=x.device)
    places = torch.empty([m, 3], dtype=torch.int64, device=x.device)
    least = torch.empty([m, 4], dtype=x.dtype, device=x.device)
    for t in hl.tile(m):
        values[t, :], places[t, :] = torch.topk(x[t, :], 3)
        least[t, :] = torch.topk(x[t, :], 4, largest=False).values
    return values, places, least


@helion.kernel
def sorted_columns_of_tiles(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t, u in hl.tile(x.size(), block_size=[4, None]):
        out[t, u] = torch.sort(x[t, u], dim=0).values
    return out


def sorted_fours(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([part.sort(0).values for part in x.split(4)])


@helion.kernel
def reshaped_rows(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    m = x.size(0)
    sums = torch.empty([m, 3], dtype=x.dtype, device=x.device)
    turned = torch.empty([m, 15], dtype=x.dtype, device=x.device)
    for t in hl.tile(m):
        grid = x[t, :].reshape(t, 3, 5)
        sums[t, :] = grid.sum(-1)
        turned[t, :] = grid.transpose(1, 2).reshape(t, -1)
    return sums, turned


def reshaped(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    grid = x.double().reshape(-1, 3, 5)
    return grid.sum(-1), grid.transpose(1, 2).reshape(-1, 15)


@helion.kernel
def merged_tile_axis(x: torch.Tensor) -> torch.Tensor:
    m, n = x.shape
    n = hl.specialize(n)
    out = torch.empty([m * n], dtype=x.dtype, device=x.device)
    for t in hl.tile(m):
        line = (x[t, :] * 2).reshape(n * t.block_size)
        out[n * t.begin + hl.arange(n * t.block_size)] = line
    return out


@helion.kernel
def lower_triangles(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    low = torch.empty_like(x)
    main = torch.empty(x.shape[:2], dtype=x.dtype, device=x.device)
    for t in hl.tile(x.size(0)):
        matrix = x[t, :, :]
        low[t, :, :] = torch.tril(matrix, 1) + torch.triu(matrix, 2) * 3
        main[t, :] = torch.diagonal(matrix, 0, 1, 2)
    return low, main


def triangles(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.tril(1) + x.triu(2) * 3, x.diagonal(0, 1, 2)


def stable_top(x: torch.Tensor, count: int) -> tuple[torch.Tensor, ...]:
    values, places = torch.sort(x, dim=-1, descending=True, stable=True)
    return values[:, :count], places[:, :count]


def ties_and_nan(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    x = (randn(*shape) * 2).round().to(dtype)
    x[1, 4] = float("nan")
    x[2, :3] = torch.tensor([0.0, -0.0, 0.0])
    x[3, 0], x[3, 1] = float("inf"), float("-inf")
    return x


def reversed_fives(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([part.flip(1) for part in x.split(8, 1)], 1)


# fmt: off
REARRANGEMENTS = (
    Case("join_and_split", join_and_split, lambda: (randn(5, 13), randn(5, seed=1)), joined,
         blocks(4, 8), EXACT, needs_static_shapes=True),
    Case("rotate_halves", rotate_halves, lambda: (randn(5, 16), randn(5, 16, seed=1)), rotated,
         blocks(4), 2, needs_static_shapes=True),
    Case("rotate_odd_halves", rotate_halves, lambda: (randn(5, 26), randn(5, 26, seed=1)), rotated,
         blocks(4), 2, needs_static_shapes=True),
    Case("interleaved_pairs", interleaved_pairs, lambda: (randn(5, 9), randn(5, 9, seed=1)),
         lambda x, y: torch.stack([x, y], 1).flatten(0, 1), blocks(4, 4), EXACT),
    Case("parts_of_rows", parts_of_rows, lambda: (ties_and_nan(5, 13),), parts, blocks(4), EXACT,
         needs_static_shapes=True),
    Case("moved_elements", moved_elements, lambda: (randn(5, 13),), moved, blocks(4), EXACT,
         needs_static_shapes=True),
    Case("gathered", gathered, lambda: (integers(-9, 0, 5, 13).float(), integers(0, 13, 5, 6)),
         lambda x, i: (x.double().exp().gather(1, i), x.double().exp()[:, i[0]]), blocks(4)),
    Case("gathered_within_tiles", gathered_within_tiles, lambda: (randn(5, 13),), reversed_fives,
         blocks(4, 8), EXACT, is_shaped_by_config=True),
    Case("sorted_rows", sorted_rows, lambda: (ties_and_nan(5, 13),), in_order, blocks(4), EXACT),
    Case("sorted_doubles", sorted_rows, lambda: (ties_and_nan(5, 6, dtype=torch.float64),),
         in_order, blocks(4), EXACT),
    Case("sorted_halves", sorted_rows, lambda: (ties_and_nan(5, 16, dtype=torch.float16),),
         in_order, blocks(4), EXACT),
    Case("largest_of_rows", largest_of_rows, lambda: (integers(-99, 99, 5, 29),),
         lambda x: (*stable_top(x, 3), x.sort(-1).values[:, :4]), blocks(4), EXACT,
         needs_static_shapes=True),
    Case("sorted_columns_of_tiles", sorted_columns_of_tiles, lambda: (randn(7, 5),), sorted_fours,
         blocks(4), EXACT),
    Case("reshaped_rows", reshaped_rows, lambda: (randn(5, 15),), reshaped, blocks(4), 5,
         needs_static_shapes=True),
    Case("merged_tile_axis", merged_tile_axis, lambda: (randn(7, 3),),
         lambda x: (2 * x).flatten(), blocks(4), EXACT),
    Case("lower_triangles", lower_triangles, lambda: (randn(5, 6, 6),), triangles, blocks(4), EXACT,
         needs_static_shapes=True),
)
# fmt: on
