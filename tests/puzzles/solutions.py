# type: ignore
"""A solution of each puzzle."""

from __future__ import annotations

import torch

import tilesmith
import tilesmith.language as hl


@tilesmith.kernel
def add_ten(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + 10
    return out


@tilesmith.kernel
def add(x, y):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + y[tile]
    return out


@tilesmith.kernel
def outer_sum(x, y):
    out = torch.empty([x.size(0), y.size(0)], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([x.size(0), y.size(0)]):
        out[tile_m, tile_n] = x[tile_m][:, None] + y[tile_n][None, :]
    return out


@tilesmith.kernel
def transpose(x):
    m, n = x.size()
    out = torch.empty([n, m], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        out[tile_n, tile_m] = x[tile_m, tile_n].T
    return out


@tilesmith.kernel
def row_sum(x):
    m, n = x.size()
    out = torch.empty([m], dtype=x.dtype, device=x.device)
    for tile_m in hl.tile(m):
        acc = hl.zeros([tile_m], dtype=torch.float32)
        for tile_n in hl.tile(n):
            acc = acc + x[tile_m, tile_n].sum(1)
        out[tile_m] = acc
    return out


@tilesmith.kernel
def softmax(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        row = x[tile, :]
        shifted = torch.exp(row - torch.amax(row, dim=1, keepdim=True))
        out[tile, :] = shifted / shifted.sum(1, keepdim=True)
    return out


@tilesmith.kernel
def matmul(x, y):
    m, k = x.size()
    k, n = y.size()
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = acc
    return out


@tilesmith.kernel
def gather_rows(table, index):
    n = table.size(1)
    out = torch.empty([index.size(0), n], dtype=table.dtype, device=table.device)
    for tile_b, tile_n in hl.tile([index.size(0), n]):
        rows = index[tile_b]
        out[tile_b, tile_n] = table[rows, tile_n]
    return out


@tilesmith.kernel
def moving_sum(x):
    n = x.size(0)
    out = torch.empty_like(x)
    for tile in hl.tile(n):
        left = hl.load(x, [tile.index - 1], extra_mask=tile.index > 0)
        right = hl.load(x, [tile.index + 1], extra_mask=tile.index < n - 1)
        out[tile] = left + x[tile] + right
    return out


@tilesmith.kernel
def ragged_means(values, offsets):
    rows = offsets.size(0) - 1
    out = torch.empty([rows], dtype=values.dtype, device=values.device)
    for row in hl.grid(rows):
        begin, end = offsets[row], offsets[row + 1]
        total = hl.zeros([])
        for tile in hl.tile(begin, end):
            total = total + values[tile].sum()
        out[row] = total / (end - begin)
    return out


@tilesmith.kernel
def histogram(values, num_bins: hl.constexpr):
    out = torch.zeros([num_bins], dtype=torch.int32, device=values.device)
    for tile in hl.tile(values.size(0)):
        hl.atomic_add(out, [values[tile]], 1)
    return out


@tilesmith.kernel
def attention(q, k, v):
    m, d = q.size()
    n = k.size(0)
    d = hl.specialize(d)
    out = torch.empty_like(q)
    for tile_m in hl.tile(m):
        largest = hl.full([tile_m], float("-inf"))
        total = hl.zeros([tile_m])
        acc = hl.zeros([tile_m, d])
        query = q[tile_m, :] * d**-0.5
        for tile_n in hl.tile(n):
            scores = torch.matmul(query, k[tile_n, :].T)
            new = torch.maximum(largest, scores.amax(1))
            weights = torch.exp(scores - new[:, None])
            shrink = torch.exp(largest - new)
            total = total * shrink + weights.sum(1)
            acc = torch.addmm(acc * shrink[:, None], weights, v[tile_n, :])
            largest = new
        out[tile_m, :] = acc / total[:, None]
    return out
