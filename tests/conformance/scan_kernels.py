"""Running sums and their like, over whole rows and within tiles."""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import EXACT, Case, blocks, integers, randn


@helion.kernel
def running_sum(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t, :] = torch.cumsum(torch.exp(x[t, :]), 1)
    return out


@helion.kernel
def running_sum_from_the_end(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t, :] = hl.cumsum(torch.exp(x[t, :]), dim=-1, reverse=True)
    return out


@helion.kernel
def running_sum_of_columns(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(1)):
        out[:, t] = hl.cumsum(x[:, t] + 1, 0, reverse=True)
    return out


@helion.kernel
def running_product(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    out, back = torch.empty_like(x), torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        row = x[t, :] * 2
        out[t, :] = row.cumprod(dim=1)
        back[t, :] = hl.cumprod(row, 1, reverse=True)
    return out, back


@helion.kernel
def running_extrema(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    high, low = torch.empty_like(x), torch.empty_like(x)
    place = torch.empty(x.shape, dtype=torch.int64, device=x.device)
    for t in hl.tile(x.size(0)):
        high[t, :], place[t, :] = torch.cummax(x[t, :], 1)
        low[t, :] = hl.associative_scan(torch.minimum, x[t, :], 1, reverse=True)
    return high, place, low


@helion.kernel
def running_count(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t, :] = torch.cumsum(x[t, :] > 0, 1)
    return out


@helion.kernel
def sum_with_carry(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        before = hl.zeros([t], dtype=torch.float32)
        for u in hl.tile(x.size(1)):
            part = x[t, u] + 1
            out[t, u] = hl.cumsum(part, 1) + before[:, None]
            before = before + part.sum(1)
    return out


@helion.kernel
def tail_sums_of_tiles(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    block = hl.register_block_size(x.size(1))
    for t, u in hl.tile(x.size(), block_size=[None, block]):
        out[t, u] = hl.cumsum(torch.exp(x[t, u]), 1, reverse=True)
    return out


def with_bad_values() -> tuple[torch.Tensor]:
    x = randn(6, 13).round()
    x[1, 4] = float("nan")
    x[2] = float("-inf")
    x[3, 0] = float("inf")
    return (x,)


def backwards(x: torch.Tensor, dim: int = 1) -> torch.Tensor:
    return x.flip(dim).cumsum(dim).flip(dim)


def extrema(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (*torch.cummax(x, 1), x.flip(1).cummin(1).values.flip(1))


def tails(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([backwards(part.double().exp()) for part in x.split(4, 1)], 1)


# fmt: off
SCANS = (
    Case("running_sum", running_sum, lambda: (randn(5, 13),),
         lambda x: x.double().exp().cumsum(1), blocks(4), 13),
    Case("running_sum_from_the_end", running_sum_from_the_end, lambda: (randn(5, 13),),
         lambda x: backwards(x.double().exp()), blocks(4), 13),
    Case("running_sum_of_columns", running_sum_of_columns, lambda: (randn(13, 5).abs(),),
         lambda x: backwards(x.double() + 1, 0), blocks(4), 13),
    Case("running_product", running_product, lambda: (randn(5, 13),),
         lambda x: ((2 * x.double()).cumprod(1), (2 * x.double()).flip(1).cumprod(1).flip(1)),
         blocks(4), 13),
    Case("running_extrema", running_extrema, with_bad_values, extrema, blocks(4), EXACT),
    Case("running_count", running_count, lambda: (integers(-5, 5, 5, 13),),
         lambda x: (x > 0).cumsum(1), blocks(4), EXACT),
    Case("sum_with_carry", sum_with_carry, lambda: (randn(5, 29).abs(),),
         lambda x: (x.double() + 1).cumsum(1), blocks(4, 8), 58),
    Case("tail_sums_of_tiles", tail_sums_of_tiles, lambda: (randn(5, 13),), tails, blocks(4, 4), 4,
         is_shaped_by_config=True),
)
# fmt: on
