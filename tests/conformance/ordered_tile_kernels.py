"""The greatest, smallest, middle and k-th elements along tile axes that hold all of them."""

from __future__ import annotations

from typing import Any

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import EXACT, Case, blocks, integers, randn


@helion.kernel
def smallest_in_one_tile(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    m, n = x.shape
    values = torch.empty([m, 3], dtype=x.dtype, device=x.device)
    places = torch.empty([m, 3], dtype=torch.int64, device=x.device)
    second = torch.empty([m], dtype=x.dtype, device=x.device)
    for t in hl.tile(m):
        for u in hl.tile(n, block_size=helion.next_power_of_2(n)):
            # Lanes past the end would be the smallest of all.
            row = x[t, u].abs() + 1
            values[t, :], places[t, :] = torch.topk(row, 3, largest=False)
            second[t] = torch.kthvalue(row, 2).values
    return values, places, second


@helion.kernel
def integers_in_one_tile(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    m, n = x.shape
    values = torch.empty([m, 3], dtype=x.dtype, device=x.device)
    places = torch.empty([m, 3], dtype=torch.int64, device=x.device)
    middle = torch.empty([m], dtype=x.dtype, device=x.device)
    for t in hl.tile(m):
        for u in hl.tile(n, block_size=helion.next_power_of_2(n)):
            values[t, :], places[t, :] = torch.topk(x[t, u] - 1, 3)
            middle[t] = torch.median(x[t, u] - 1, dim=1).values
    return values, places, middle


def _integers(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    values, places = torch.sort(x - 1, dim=1, descending=True, stable=True)
    return values[:, :3], places[:, :3], (x - 1).median(1).values


def _smallest(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    values, places = torch.sort(x.abs() + 1, dim=1, stable=True)
    return values[:, :3], places[:, :3], values[:, 1]


@helion.kernel
def greatest_of_columns(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty([helion.cdiv(x.size(0), 4), 2, x.size(1)], dtype=x.dtype, device=x.device)
    for t, u in hl.tile(x.size(), block_size=[4, None]):
        out[t.id, :, u] = torch.topk(x[t, u], 2, dim=0).values
    return out


def _column_pairs(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([part.topk(2, dim=0).values for part in x.split(4)])


@helion.kernel
def medians_of_tiles(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), helion.cdiv(x.size(1), 8)], dtype=x.dtype, device=x.device)
    for t, u in hl.tile(x.size(), block_size=[None, 8]):
        out[t, u.id] = torch.median(x[t, u] - 2, dim=1).values
    return out


def _medians(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([(part - 2).median(1).values for part in x.split(8, 1)], 1)


@helion.kernel
def quantiles_of_one_tile(x: torch.Tensor) -> torch.Tensor:
    m, n = x.shape
    out = torch.empty([2, m], dtype=x.dtype, device=x.device)
    for t in hl.tile(m):
        for u in hl.tile(n, block_size=helion.next_power_of_2(n)):
            out[0, t] = torch.quantile(x[t, u] - 2, 0.25, dim=1)
            out[1, t] = torch.quantile(x[t, u] - 2, 0.3, dim=1, interpolation="higher")
    return out


def _quantiles(x: torch.Tensor) -> torch.Tensor:
    shifted = x.double() - 2
    return torch.stack(
        [shifted.quantile(0.25, dim=1), shifted.quantile(0.3, dim=1, interpolation="higher")]
    )


@helion.kernel
def medians_of_jagged_rows(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0)], dtype=x.dtype, device=x.device)
    for t in hl.tile(x.size(0)):
        for u in hl.jagged_tile(lengths[t]):
            out[t] = torch.median(x[t, u] - 2, dim=1).values
    return out


def _jagged_medians(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    return torch.stack([(row[:length] - 2).median() for row, length in zip(x, lengths)])


def some_nan(*shape: int) -> torch.Tensor:
    x = randn(*shape)
    x[1, 2] = float("nan")
    x[3, 5] = x[3, 1] = float("nan")
    return x


def row_lengths() -> tuple[torch.Tensor, torch.Tensor]:
    """No row longer than the tile, none empty; a NaN past an end counts for nothing."""
    x = some_nan(9, 13)
    x[0, 4] = float("nan")
    return x, torch.tensor([3, 1, 7, 8, 2, 5, 8, 4, 6])


def _cases(name: str, kernel: Any, reference: Any, *sizes: int) -> tuple[Case, ...]:
    """Rows of a block, of less and of one element more than half of it."""
    return tuple(
        Case(f"{name} {n}", kernel, lambda n=n: (integers(-9, 9, 5, n),), reference, blocks(4),
             EXACT, needs_static_shapes=True)
        for n in sizes
    )  # fmt: skip


# fmt: off
ORDERED_TILES = (
    *_cases("integers in one tile", integers_in_one_tile, _integers, 3, 13, 16, 17),
    Case("smallest in one tile", smallest_in_one_tile, lambda: (randn(5, 13),), _smallest,
         blocks(4), EXACT, needs_static_shapes=True),
    Case("greatest of columns", greatest_of_columns, lambda: (randn(7, 5),), _column_pairs,
         blocks(4), EXACT),
    Case("medians of tiles", medians_of_tiles, lambda: (some_nan(5, 13),), _medians, blocks(4),
         EXACT),
    Case("quantiles of one tile", quantiles_of_one_tile, lambda: (some_nan(5, 13),), _quantiles,
         blocks(4), 2, needs_static_shapes=True),
    Case("jagged medians", medians_of_jagged_rows, row_lengths, _jagged_medians, blocks(4, 8),
         EXACT, varies_with_blocks=True, has_small_default=False),
)
# fmt: on
