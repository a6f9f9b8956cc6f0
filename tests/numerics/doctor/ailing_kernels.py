"""Kernels with one ailment each, and two healthy ones."""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl


@helion.kernel(backend="reference", config=helion.Config(block_sizes=[16]))
def rounded_twice(x: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """An attention-like product whose weights are rounded to the type of the values."""
    out = torch.empty([x.size(0), v.size(1)], dtype=torch.float32, device=x.device)
    for tile in hl.tile(x.size(0)):
        weights = torch.softmax(x[tile, :], -1).to(v.dtype)
        acc = hl.zeros([tile, v.size(1)], dtype=torch.float32)
        acc = torch.addmm(acc, weights, v[:, :])
        out[tile, :] = acc
    return out


@helion.kernel(backend="reference", config=helion.Config(block_sizes=[32, 8]))
def narrow_sum(x: torch.Tensor) -> torch.Tensor:
    """Row sums carried in the type of the input."""
    out = torch.empty([x.size(0)], dtype=torch.float32, device=x.device)
    for tile in hl.tile(x.size(0)):
        total = hl.zeros([tile], dtype=x.dtype)
        for part in hl.tile(x.size(1)):
            total = total + x[tile, part].sum(-1)
        out[tile] = total.to(torch.float32)
    return out


@helion.kernel(backend="reference", config=helion.Config(block_sizes=[8]))
def decaying_sum(x: torch.Tensor) -> torch.Tensor:
    """One element a turn: a chain of as many roundings as there are terms."""
    out = torch.empty([x.size(0)], dtype=x.dtype, device=x.device)
    for tile in hl.tile(x.size(0)):
        total = hl.zeros([tile], dtype=torch.float32)
        for j in range(x.size(1)):
            total = total * 0.999 + x[tile, j]
        out[tile] = total
    return out


@helion.kernel(backend="reference", config=helion.Config(block_sizes=[16]))
def naive_variance(x: torch.Tensor) -> torch.Tensor:
    """The mean of squares less the square of the mean."""
    out = torch.empty([x.size(0)], dtype=x.dtype, device=x.device)
    for tile in hl.tile(x.size(0)):
        row = x[tile, :]
        mean = row.mean(-1)
        squares = (row * row).mean(-1)
        out[tile] = squares - mean * mean
    return out


@helion.kernel(backend="reference", config=helion.Config(block_sizes=[16]))
def stable_variance(x: torch.Tensor) -> torch.Tensor:
    """The mean of the squares of what is left without the mean."""
    out = torch.empty([x.size(0)], dtype=x.dtype, device=x.device)
    for tile in hl.tile(x.size(0)):
        row = x[tile, :]
        centred = row - row.mean(-1)[:, None]
        out[tile] = (centred * centred).mean(-1)
    return out


@helion.kernel(backend="reference", config=helion.Config(block_sizes=[16]))
def shifted(x: torch.Tensor) -> torch.Tensor:
    """In place, each element from its neighbour: programs read what others write."""
    for tile in hl.tile(x.size(0) - 1):
        x[tile] = x[tile.index + 1] + 1
    return x


@helion.kernel(backend="reference", config=helion.Config(block_sizes=[16, 16]))
def summed_by_atomics(x: torch.Tensor) -> torch.Tensor:
    """Row sums to which several programs add."""
    out = torch.zeros([x.size(0)], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile(x.size()):
        hl.atomic_add(out, [tile_m], x[tile_m, tile_n].sum(-1))
    return out


@helion.kernel(backend="reference", config=helion.Config(block_sizes=[16, 16, 16]))
def matmul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), y.size(1)], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([x.size(0), y.size(1)]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = acc.to(out.dtype)
    return out


@helion.kernel(backend="reference", config=helion.Config(block_sizes=[32]))
def gelu(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = torch.nn.functional.gelu(x[tile, :].to(torch.float32)).to(x.dtype)
    return out


@helion.kernel(backend="reference", config=helion.Config(block_sizes=[16]))
def unscaled_softmax(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        powers = torch.exp(x[tile, :])
        out[tile, :] = powers / powers.sum(-1, keepdim=True)
    return out


@helion.kernel(backend="reference", config=helion.Config(block_sizes=[16]))
def all_but_the_last(x: torch.Tensor) -> torch.Tensor:
    # As new memory may be: with something else in it each time. It may also be the same by chance.
    out = torch.rand_like(x)
    for tile in hl.tile(x.size(0) - 1):
        out[tile] = x[tile] * 2
    return out
