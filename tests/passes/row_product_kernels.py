"""Kernels with a product: those whose rows can be split over programs, and their near relatives."""

from __future__ import annotations

from typing import Any

import torch

import tilesmith as helion
import tilesmith.language as hl

STATIC: Any = helion.kernel(static_shapes=True)


@STATIC
def matmul_var(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    n = hl.specialize(y.size(1))
    out = torch.empty([x.size(0)], dtype=torch.float32, device=x.device)
    for tile_m in hl.tile(x.size(0)):
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, :])
        out[tile_m] = torch.var(acc, -1)
    return out


@helion.kernel(static_shapes=True, index_dtype=torch.int64)
def wide_indices(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    n = hl.specialize(y.size(1))
    out = torch.empty([x.size(0)], dtype=torch.float32, device=x.device)
    for tile_m in hl.tile(x.size(0)):
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, :])
        out[tile_m] = acc.sum(-1)
    return out


@STATIC
def surrounded(
    x: torch.Tensor, y: torch.Tensor, bias: torch.Tensor, factor: torch.Tensor, rows: torch.Tensor
) -> torch.Tensor:
    """Per-column operands on the way in, a value per row from before the loop on the way out."""
    n = hl.specialize(y.size(0))
    out = torch.empty([x.size(0), n], dtype=torch.float32, device=x.device)
    for tile_m in hl.tile(x.size(0)):
        scale = rows[tile_m]
        acc = hl.zeros([tile_m, n], dtype=torch.float32) + bias[:]
        for tile_k in hl.tile(x.size(1)):
            scaled = y[:, tile_k].T * factor[:]
            acc = acc * 0.5 + hl.dot(x[tile_m, tile_k], scaled)
        shifted = acc * scale[:, None]
        out[tile_m, :] = shifted - torch.amax(shifted, -1, keepdim=True)
    return out


@STATIC
def some_columns(x: torch.Tensor, y: torch.Tensor, limit: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Columns know their own numbers on both sides of the loop."""
    n = hl.specialize(y.size(1))
    out = torch.empty([x.size(0)], dtype=torch.float32, device=x.device)
    best = torch.empty([x.size(0)], dtype=torch.int64, device=x.device)
    for tile_m in hl.tile(x.size(0)):
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        cols = hl.arange(n)
        for tile_k in hl.tile(x.size(1)):
            chosen = torch.where(cols[None, :] < limit, y[tile_k, :], float("nan"))
            acc = torch.addmm(acc, x[tile_m, tile_k], chosen)
        kept = torch.where(cols[None, :] < limit, acc, float("-inf"))
        out[tile_m] = torch.logsumexp(kept, -1)
        best[tile_m] = torch.argmax(kept, -1)
    return out, best


@STATIC
def in_place(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    n = hl.specialize(y.size(1))
    for tile_m in hl.tile(x.size(0)):
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, :])
        x[tile_m, :] = acc - acc.mean(-1, keepdim=True)
    return x


@STATIC
def summed_products(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The contracted axis is a full slice too: with as many columns the two look alike."""
    k, n = hl.specialize(y.size(1)), hl.specialize(y.size(2))
    assert x.size(2) == k
    out = torch.empty([x.size(1)], dtype=torch.float32, device=x.device)
    for tile_m in hl.tile(x.size(1)):
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        for j in hl.grid(x.size(0)):
            acc = torch.addmm(acc, x[j, tile_m, :], y[j, :, :])
        out[tile_m] = acc.sum(-1)
    return out


@helion.kernel(static_shapes=False)
def dynamic_sizes(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    n = y.size(1)
    out = torch.empty([x.size(0)], dtype=torch.float32, device=x.device)
    for tile_m in hl.tile(x.size(0)):
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, :])
        out[tile_m] = acc.sum(-1)
    return out


@STATIC
def no_reduction(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    n = hl.specialize(y.size(1))
    out = torch.empty([x.size(0), n], dtype=torch.float32, device=x.device)
    for tile_m in hl.tile(x.size(0)):
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, :])
        out[tile_m, :] = torch.relu(acc)
    return out


@STATIC
def two_products(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    n = hl.specialize(y.size(1))
    out = torch.empty([x.size(0)], dtype=torch.float32, device=x.device)
    for tile_m in hl.tile(x.size(0)):
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, :])
            acc = torch.addmm(acc, x[tile_m, tile_k] * 2, y[tile_k, :])
        out[tile_m] = acc.sum(-1)
    return out


@STATIC
def atomic_sum(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    n = hl.specialize(y.size(1))
    out = torch.zeros([x.size(0)], dtype=torch.float32, device=x.device)
    for tile_m in hl.tile(x.size(0)):
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, :])
        hl.atomic_add(out, [tile_m], acc.sum(-1))
    return out


@STATIC
def stored_in_the_loop(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    n = hl.specialize(y.size(1))
    out = torch.empty([x.size(0), n], dtype=torch.float32, device=x.device)
    sums = torch.empty([x.size(0)], dtype=torch.float32, device=x.device)
    for tile_m in hl.tile(x.size(0)):
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, :])
            out[tile_m, :] = acc
        sums[tile_m] = acc.sum(-1)
    return sums


@STATIC
def with_barrier(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    n = hl.specialize(y.size(1))
    sums = torch.empty([x.size(0)], dtype=torch.float32, device=x.device)
    out = torch.empty_like(sums)
    for tile_m in hl.tile(x.size(0)):
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, :])
        sums[tile_m] = acc.sum(-1)
    hl.barrier()
    for tile in hl.tile(x.size(0)):
        out[tile] = sums[tile] - sums[0]
    return out


@STATIC
def carries_more(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    n = hl.specialize(y.size(1))
    out = torch.empty([x.size(0)], dtype=torch.float32, device=x.device)
    for tile_m in hl.tile(x.size(0)):
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        total = hl.zeros([tile_m], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, :])
            total = total + x[tile_m, tile_k].sum(-1)
        out[tile_m] = acc.sum(-1) + total
    return out


@STATIC
def mixes_rows(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Rows of one tile meet: their number is part of the result."""
    n = hl.specialize(y.size(1))
    out = torch.empty([x.size(0)], dtype=torch.float32, device=x.device)
    for tile_m in hl.tile(x.size(0), block_size=4):
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, :])
        sums = acc.sum(-1)
        out[tile_m] = sums - torch.amax(sums, 0)
    return out


@STATIC
def one_result_per_tile(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    n = hl.specialize(y.size(1))
    block = hl.register_block_size(x.size(0))
    out = torch.empty([helion.cdiv(x.size(0), block)], dtype=torch.float32, device=x.device)
    for tile_m in hl.tile(x.size(0), block_size=block):
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, :])
        out[tile_m.id] = acc.sum(-1).sum(0)
    return out


@STATIC
def knows_its_tile(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    n = hl.specialize(y.size(1))
    out = torch.empty([x.size(0)], dtype=torch.float32, device=x.device)
    for tile_m in hl.tile(x.size(0), block_size=4):
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, :])
        out[tile_m] = acc.sum(-1) + tile_m.begin
    return out


@STATIC
def overwrites_what_it_read(x: torch.Tensor, y: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    n = hl.specialize(y.size(1))
    for tile_m in hl.tile(x.size(0)):
        before = rows[tile_m]
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, :])
        rows[tile_m] = acc.sum(-1) + before
    return rows


@STATIC
def random_rows(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    n = hl.specialize(y.size(1))
    out = torch.empty([x.size(0)], dtype=torch.float32, device=x.device)
    for tile_m in hl.tile(x.size(0)):
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, :])
        out[tile_m] = (acc * hl.rand([tile_m, n], seed=1)).sum(-1)
    return out


@STATIC
def printing(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    n = hl.specialize(y.size(1))
    out = torch.empty([x.size(0)], dtype=torch.float32, device=x.device)
    for tile_m in hl.tile(x.size(0)):
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, :])
        sums = acc.sum(-1)
        hl.device_print("sums", sums)
        out[tile_m] = sums
    return out


@STATIC
def columns_reduced_on_the_way(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The right operand is normalised over all columns, which no tile of them can do."""
    n = hl.specialize(y.size(1))
    out = torch.empty([x.size(0)], dtype=torch.float32, device=x.device)
    for tile_m in hl.tile(x.size(0)):
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            weights = torch.softmax(y[tile_k, :], -1)
            acc = torch.addmm(acc, x[tile_m, tile_k], weights)
        out[tile_m] = acc.sum(-1)
    return out


@STATIC
def batched(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    n = hl.specialize(y.size(2))
    out = torch.empty([x.size(0), x.size(1)], dtype=torch.float32, device=x.device)
    for b, tile_m in hl.tile([x.size(0), x.size(1)], block_size=[1, None]):
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(2)):
            acc = torch.addmm(acc, x[b.begin, tile_m, tile_k], y[b.begin, tile_k, :])
        out[b.begin, tile_m] = acc.sum(-1)
    return out


@STATIC
def around_the_maximum(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A sum around a maximum: no part of it can be made before the maximum is known."""
    n = hl.specialize(y.size(1))
    out = torch.empty([x.size(0), n], dtype=torch.float32, device=x.device)
    sums = torch.empty([x.size(0)], dtype=torch.float32, device=x.device)
    for tile_m in hl.tile(x.size(0)):
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, :])
        below = acc - torch.amax(acc, -1, keepdim=True)
        total = (below * below).sum(-1)
        out[tile_m, :] = below / total[:, None]
        sums[tile_m] = total
    return out, sums


@STATIC
def three_in_a_row(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    n = hl.specialize(y.size(1))
    out = torch.empty([x.size(0), n], dtype=torch.float32, device=x.device)
    for tile_m in hl.tile(x.size(0)):
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, :])
        below = acc - torch.amax(acc, -1, keepdim=True)
        scaled = below / torch.amin(below, -1, keepdim=True)
        out[tile_m, :] = scaled - scaled.sum(-1, keepdim=True)
    return out


@STATIC
def largest_product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    n = hl.specialize(y.size(1))
    out = torch.empty([x.size(0)], dtype=torch.int64, device=x.device)
    for tile_m in hl.tile(x.size(0)):
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, :])
        out[tile_m] = torch.argmax(acc, -1)
    return out


@STATIC
def two_statistics(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Powers and squares of the same rows, and the least of them."""
    n = hl.specialize(y.size(1))
    out = torch.empty([x.size(0)], dtype=torch.float32, device=x.device)
    least = torch.empty([x.size(0)], dtype=torch.float32, device=x.device)
    for tile_m in hl.tile(x.size(0)):
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, :])
        out[tile_m] = torch.logsumexp(acc, -1) + torch.var(acc, -1)
        least[tile_m] = torch.amin(acc, -1)
    return out, least


@STATIC
def added_rows(x: torch.Tensor, y: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    """The product of 0 and the rows of ``shift``: rows that hold what a test wants them to."""
    n = hl.specialize(y.size(1))
    out = torch.empty([x.size(0), n], dtype=torch.float32, device=x.device)
    for tile_m in hl.tile(x.size(0)):
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, :])
        out[tile_m, :] = torch.softmax(acc + shift[tile_m, :], dim=-1)
    return out


@STATIC
def log_of_added_rows(x: torch.Tensor, y: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    n = hl.specialize(y.size(1))
    out = torch.empty([x.size(0)], dtype=torch.float32, device=x.device)
    for tile_m in hl.tile(x.size(0)):
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, :])
        out[tile_m] = torch.logsumexp(acc + shift[tile_m, :], dim=-1)
    return out


@STATIC
def layernorm_of_added_rows(x: torch.Tensor, y: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    n = hl.specialize(y.size(1))
    out = torch.empty([x.size(0), n], dtype=torch.float32, device=x.device)
    for tile_m in hl.tile(x.size(0)):
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, :])
        rows = acc + shift[tile_m, :]
        centred = rows - rows.mean(-1, keepdim=True)
        out[tile_m, :] = centred * torch.rsqrt((centred * centred).mean(-1, keepdim=True) + 1e-5)
    return out
