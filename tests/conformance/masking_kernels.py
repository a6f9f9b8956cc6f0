"""Computations whose masked lanes would spoil the result if they were not reset."""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import EXACT, Case, blocks, randn


@helion.kernel
def exp_then_sum(x: torch.Tensor) -> torch.Tensor:
    out = x.new_empty([x.size(0)])
    for t in hl.tile(x.size(0)):
        out[t] = torch.exp(x[t, :]).sum(-1)
    return out


@helion.kernel
def exp_then_sum_in_tiles(x: torch.Tensor) -> torch.Tensor:
    out = x.new_empty([x.size(0)])
    for t in hl.tile(x.size(0)):
        acc = hl.zeros([t], dtype=torch.float32)
        for u in hl.tile(x.size(1)):
            acc = acc + torch.exp(x[t, u]).sum(-1)
        out[t] = acc
    return out


@helion.kernel
def increment_then_dot(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    m, k = x.shape
    n = y.size(1)
    out = x.new_empty([m, n])
    for t, u in hl.tile([m, n]):
        acc = hl.zeros([t, u], dtype=torch.float32)
        for v in hl.tile(k):
            acc = hl.dot(x[t, v] + 1, y[v, u] + 1, acc=acc)
        out[t, u] = acc
    return out


@helion.kernel
def increment_then_dot_over_a_slice(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    m, n = x.size(0), y.size(1)
    out = x.new_empty([m, n])
    for t, u in hl.tile([m, n]):
        out[t, u] = torch.mm(x[t, :] + 1, y[:, u] + 1)
    return out


@helion.kernel
def centred_square_mean(x: torch.Tensor) -> torch.Tensor:
    out = x.new_empty([x.size(0)])
    for t in hl.tile(x.size(0)):
        row = x[t, :]
        out[t] = (row - row.mean(-1, keepdim=True)).square().mean(-1)
    return out


@helion.kernel
def mean_of_a_tile(x: torch.Tensor) -> torch.Tensor:
    blocks_n = hl.register_block_size(x.size(1))
    out = x.new_zeros([x.size(0), helion.cdiv(x.size(1), blocks_n)])
    for t, u in hl.tile(x.size(), block_size=[None, blocks_n]):
        out[t, u.id] = x[t, u].mean(1)
    return out


@helion.kernel
def extrema(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    low, high = x.new_empty([x.size(0)]), x.new_empty([x.size(0)])
    for t in hl.tile(x.size(0)):
        row = x[t, :]
        low[t] = torch.amin(row, 1)
        high[t] = torch.amax(row, 1)
    return low, high


@helion.kernel
def positions_of_extrema(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    m = x.size(0)
    low = torch.empty([m], dtype=torch.int64, device=x.device)
    high = torch.empty_like(low)
    for t in hl.tile(m):
        low[t] = x[t, :].argmin(1)
        high[t] = x[t, :].argmax(1)
    return low, high


@helion.kernel
def products(x: torch.Tensor) -> torch.Tensor:
    out = x.new_empty([x.size(0)])
    for t in hl.tile(x.size(0)):
        out[t] = (x[t, :] * 2).prod(1)
    return out


@helion.kernel
def truths(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    m = x.size(0)
    some = torch.empty([m], dtype=torch.bool, device=x.device)
    every = torch.empty_like(some)
    for t in hl.tile(m):
        some[t] = (x[t, :] <= 0).any(1)
        every[t] = (x[t, :] > 0).all(1)
    return some, every


@helion.kernel
def variance_and_mean(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    m = x.size(0)
    variance, average = x.new_empty([m]), x.new_empty([m])
    for t in hl.tile(m):
        variance[t], average[t] = torch.var_mean(x[t, :], 1)
    return variance, average


@helion.kernel
def norms(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    m = x.size(0)
    logs, lengths = x.new_empty([m]), x.new_empty([m])
    for t in hl.tile(m):
        logs[t] = torch.logsumexp(x[t, :], 1)
        lengths[t] = torch.norm(x[t, :] + 1, dim=1)
    return logs, lengths


def with_bad_values() -> tuple[torch.Tensor]:
    x = randn(6, 13) - 5
    x[1, 4] = float("nan")
    x[2] = float("-inf")
    x[3, 0] = float("inf")
    x[4] = -3.0
    return (x,)


def tile_means(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([part.double().mean(1) for part in x.split(4, 1)], 1)


def positive_row() -> tuple[torch.Tensor]:
    x = randn(5, 13).abs() + 0.1
    x[2, 5] = -1
    return (x,)


# fmt: off
MASKING = (
    Case("exp_then_sum", exp_then_sum, lambda: (randn(5, 13),),
         lambda x: x.double().exp().sum(1), blocks(4), 13),
    Case("exp_then_sum_looped", exp_then_sum, lambda: (randn(5, 29),),
         lambda x: x.double().exp().sum(1), blocks(4, reduction_loops=[8]), 29),
    Case("exp_then_sum_in_tiles", exp_then_sum_in_tiles, lambda: (randn(5, 13),),
         lambda x: x.double().exp().sum(1), blocks(4, 8), 13),
    Case("increment_then_dot", increment_then_dot, lambda: (randn(19, 21), randn(21, 17, seed=1)),
         lambda x, y: (x.double() + 1) @ (y.double() + 1), blocks(16, 16, 16), 42),
    Case("increment_then_dot_over_a_slice", increment_then_dot_over_a_slice,
         lambda: (randn(19, 21), randn(21, 17, seed=1)),
         lambda x, y: (x.double() + 1) @ (y.double() + 1), blocks(16, 16), 42),
    Case("centred_square_mean", centred_square_mean, lambda: (randn(5, 13) + 3,),
         lambda x: x.double().var(1, correction=0), blocks(4), 13),
    Case("centred_square_mean_looped", centred_square_mean, lambda: (randn(5, 29) + 3,),
         lambda x: x.double().var(1, correction=0), blocks(4, reduction_loops=[8]), 29),
    Case("extrema", extrema, with_bad_values, lambda x: (x.amin(1), x.amax(1)), blocks(4), EXACT),
    Case("extrema_looped", extrema, with_bad_values, lambda x: (x.amin(1), x.amax(1)),
         blocks(4, reduction_loops=[8]), EXACT),
    Case("positions_of_extrema", positions_of_extrema, with_bad_values,
         lambda x: (x.argmin(1), x.argmax(1)), blocks(4), EXACT),
    Case("products", products, lambda: (randn(5, 13),),
         lambda x: (x.double() * 2).prod(1), blocks(4), 13),
    Case("truths", truths, positive_row, lambda x: ((x <= 0).any(1), (x > 0).all(1)),
         blocks(4), EXACT),
    Case("variance_and_mean", variance_and_mean, lambda: (randn(5, 13) + 3,),
         lambda x: torch.var_mean(x.double(), 1), blocks(4), 13),
    Case("norms", norms, lambda: (randn(5, 13),),
         lambda x: (x.double().logsumexp(1), (x.double() + 1).norm(dim=1)), blocks(4), 13),
    Case("mean_of_a_tile", mean_of_a_tile, lambda: (randn(5, 13),), tile_means, blocks(4, 4), 4,
         is_shaped_by_config=True),
)
# fmt: on
