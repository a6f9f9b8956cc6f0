"""Every kind of index element, alone and combined, in loads and stores."""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import EXACT, Case, blocks, integers, randn


@helion.kernel
def cartesian_gather(x: torch.Tensor, rows: torch.Tensor, cols: torch.Tensor) -> torch.Tensor:
    out = x.new_empty([rows.size(0), cols.size(0)])
    for t, u in hl.tile([rows.size(0), cols.size(0)]):
        out[t, u] = x[rows[t], cols[u]]
    return out


@helion.kernel
def same_tile_twice(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    n = rows.size(0)
    out = x.new_empty([n])
    for t in hl.tile(n):
        # [t, t], not a diagonal: the sum of every row of the square.
        out[t] = x[rows[t], rows[t]].sum(1)
    return out


@helion.kernel
def flat_gather(x: torch.Tensor, rows: torch.Tensor, cols: torch.Tensor) -> torch.Tensor:
    flat, width = x.view(-1), x.size(1)
    out = x.new_empty([rows.size(0)])
    for t in hl.tile(rows.size(0)):
        out[t] = flat[rows[t] * width + cols[t]]
    return out


@helion.kernel
def broadcast_gather(x: torch.Tensor, rows: torch.Tensor, cols: torch.Tensor) -> torch.Tensor:
    out = x.new_empty([rows.size(0), cols.size(0)])
    for t, u in hl.tile([rows.size(0), cols.size(0)]):
        out[t, u] = x[rows[t][:, None], cols[u][None, :]]
    return out


@helion.kernel
def scatter_rows(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    for t, u in hl.tile(x.size()):
        out[index[t], u] = x[t, u]
    return out


@helion.kernel
def scalar_rows(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for i in hl.grid(x.size(0)):
        out[i, :] = x[i, :] + i
    return out


@helion.kernel
def plane_of_a_volume(x: torch.Tensor, pick: torch.Tensor) -> torch.Tensor:
    b, m, n = x.shape
    out = x.new_empty([b, m, n])
    for i, t in hl.tile([b, m], block_size=[1, None]):
        row = pick[i.begin]
        out[i.begin, t, :] = x[row, t, :]
    return out


@helion.kernel
def negative_indices(x: torch.Tensor) -> torch.Tensor:
    out = x.new_empty([x.size(0), 3])
    for t in hl.tile(x.size(0)):
        out[t, 0] = x[t, -1]
        out[t, 1] = x[t, -3:-1].sum(1)
        out[t, -1] = x[t, :-4:2].sum(1)
    return out


@helion.kernel
def slices(x: torch.Tensor) -> torch.Tensor:
    n = x.size(1)
    out = x.new_empty([x.size(0), n])
    for t in hl.tile(x.size(0)):
        out[t, :3] = x[t, 2:5]
        out[t, 3:] = x[t, 3:] * 2
    return out


@helion.kernel
def shifted_with_mask(x: torch.Tensor) -> torch.Tensor:
    n = x.size(0)
    out = torch.empty_like(x)
    for t in hl.tile(n):
        out[t] = x[t] + hl.load(x, [t + 1], extra_mask=t.index + 1 < n)
    return out


@helion.kernel
def masked_store(x: torch.Tensor) -> torch.Tensor:
    out = torch.full_like(x, -1.0)
    for t in hl.tile(x.size(0)):
        value = x[t]
        hl.store(out, [t], value, extra_mask=value > 0)
    return out


@helion.kernel
def tuple_of_tiles(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for ts in hl.tile(x.size()):
        out[ts] = x[ts] - 1
    return out


@helion.kernel
def unit_dimensions(x: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t, u in hl.tile(x.size()):
        # row is [1, n]: its only row serves every lane of t.
        out[t, u] = x[t, u] + row[t, u]
    return out


@helion.kernel
def leading_unit_dimension_is_dropped(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t][None, :] * 3
    return out


@helion.kernel
def range_from_a_tile(x: torch.Tensor) -> torch.Tensor:
    n = x.size(0)
    out = torch.zeros_like(x)
    for t in hl.tile(n):
        index = hl.arange(t.begin, t.begin + t.block_size)
        hl.store(out, [index], hl.load(x, [index], extra_mask=index < n), extra_mask=index < n)
    return out


@helion.kernel
def zero_dimensional(x: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] * s[()] + hl.load(s, [])
    return out


def pointwise(x: torch.Tensor, rows: torch.Tensor, cols: torch.Tensor) -> torch.Tensor:
    return x[rows, cols]


def outer(x: torch.Tensor, rows: torch.Tensor, cols: torch.Tensor) -> torch.Tensor:
    return x[rows][:, cols]


def scattered(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    out[index] = x
    return out


def picked(x: torch.Tensor) -> torch.Tensor:
    wide = x.double()
    return torch.stack([wide[:, -1], wide[:, -3:-1].sum(1), wide[:, :-4:2].sum(1)], 1)


def shifted(x: torch.Tensor) -> torch.Tensor:
    return x.double() + torch.cat([x[1:], x.new_zeros(1)]).double()


def two_lists() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return randn(9, 11), integers(0, 9, 13), integers(0, 11, 13, seed=1)


@helion.kernel
def picked_pairs(x: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    out = torch.empty([columns.size(0)], dtype=x.dtype, device=x.device)
    for t in hl.tile(columns.size(0)):
        out[t] = x[hl.paired(t.index, columns[t])]
    return out


@helion.kernel
def marked_pairs(columns: torch.Tensor, width: int) -> torch.Tensor:
    out = torch.zeros([columns.size(0), width], device=columns.device)
    for t in hl.tile(columns.size(0)):
        out[hl.paired(t, columns[t])] = 1.0
    return out


@helion.kernel
def rows_of_pages(cache: torch.Tensor, pages: torch.Tensor) -> torch.Tensor:
    size = cache.size(1)
    out = torch.empty([pages.size(0) * size, cache.size(2)], dtype=cache.dtype, device=cache.device)
    for t, u in hl.tile(out.size()):
        out[t, u] = cache[hl.paired(pages[t.index // size], t.index % size), u]
    return out


@helion.kernel
def tiles_and_sizes_aligned(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t, u in hl.tile([x.size(0), x.size(1)]):
        # [t, 3] below [t, u, 3]: the tile by identity, the size at the end.
        out[t, u, 0:3] = x[t, u, 0:3] + y[t, 1:4]
    return out


def marked(columns: torch.Tensor, width: int) -> torch.Tensor:
    return torch.nn.functional.one_hot(columns, width).float()


# fmt: off
INDEXING = (
    Case("cartesian_gather", cartesian_gather,
         lambda: (randn(9, 11), integers(0, 9, 7), integers(0, 11, 5, seed=1)),
         outer, blocks(4, 4), EXACT),
    Case("same_tile_twice", same_tile_twice, lambda: (randn(9, 9), integers(0, 9, 4)),
         lambda x, rows: x.double()[rows][:, rows].sum(1), blocks(4), 4,
         varies_with_blocks=True),
    Case("flat_gather", flat_gather, two_lists, pointwise, blocks(8), EXACT),
    Case("broadcast_gather", broadcast_gather, two_lists, outer, blocks(8, 4), EXACT),
    Case("scatter_rows", scatter_rows,
         lambda: (randn(7, 5), torch.tensor([3, 0, 6, 1, 5, 2, 4])), scattered, blocks(4, 4),
         EXACT),
    Case("scalar_rows", scalar_rows, lambda: (randn(6, 13),),
         lambda x: x + torch.arange(6)[:, None], blocks(), EXACT),
    Case("plane_of_a_volume", plane_of_a_volume, lambda: (randn(3, 7, 5), torch.tensor([2, 0, 0])),
         lambda x, pick: x[pick], blocks(4), EXACT),
    Case("negative_indices", negative_indices, lambda: (randn(7, 11),), picked, blocks(4), 4),
    Case("slices", slices, lambda: (randn(7, 11),),
         lambda x: torch.cat([x[:, 2:5], x[:, 3:] * 2], 1), blocks(4), EXACT),
    Case("shifted_with_mask", shifted_with_mask, lambda: (randn(21),), shifted, blocks(8)),
    Case("masked_store", masked_store, lambda: (randn(21),),
         lambda x: torch.where(x > 0, x, -1.0), blocks(8), EXACT),
    Case("tuple_of_tiles", tuple_of_tiles, lambda: (randn(3, 5, 7),), lambda x: x - 1,
         blocks(2, 2, 4), EXACT),
    Case("unit_dimensions", unit_dimensions, lambda: (randn(7, 5), randn(1, 5, seed=1)),
         lambda x, row: x + row, blocks(4, 4), EXACT),
    Case("leading_unit_dimension_is_dropped", leading_unit_dimension_is_dropped,
         lambda: (randn(7),), lambda x: x * 3, blocks(4), EXACT),
    Case("range_from_a_tile", range_from_a_tile, lambda: (randn(13),), lambda x: x, blocks(8),
         EXACT),
    Case("zero_dimensional", zero_dimensional, lambda: (randn(13), torch.tensor(2.5)),
         lambda x, s: x.double() * s.double() + s.double(), blocks(8)),
    Case("tiles_and_sizes_aligned", tiles_and_sizes_aligned,
         lambda: (randn(7, 5, 3), randn(7, 4, seed=1)),
         lambda x, y: x + y[:, None, 1:], blocks(4, 4), EXACT),
    Case("picked_pairs", picked_pairs, lambda: (randn(7, 5), integers(0, 5, 7)),
         lambda x, columns: x[torch.arange(7), columns], blocks(4), EXACT),
    Case("marked_pairs", marked_pairs, lambda: (integers(0, 5, 7), 5), marked, blocks(4), EXACT),
    Case("rows_of_pages", rows_of_pages, lambda: (randn(5, 4, 6), integers(0, 5, 3)),
         lambda cache, pages: cache[pages].flatten(0, 1), blocks(4, 4), EXACT),
)
# fmt: on
