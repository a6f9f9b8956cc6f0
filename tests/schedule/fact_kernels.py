"""Kernels that multiply and then reduce, or nearly so, for the tests of facts."""

from __future__ import annotations

from typing import Any

import torch

import tilesmith
import tilesmith.language as hl


@tilesmith.kernel(static_shapes=True)
def matmul_var(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    m, k = x.size()
    n = hl.specialize(y.size(1))
    out = torch.empty([m], dtype=torch.float32, device=x.device)
    for tile_m in hl.tile(m):
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, :])
        out[tile_m] = torch.var(acc, dim=-1, correction=0)
    return out


@tilesmith.kernel(static_shapes=True)
def matmul_rms_norm(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    m, k = x.size()
    n = hl.specialize(y.size(1))
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for tile_m in hl.tile(m):
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, :])
        out[tile_m, :] = acc * torch.rsqrt((acc * acc).mean(-1, keepdim=True) + 1e-5)
    return out


@tilesmith.kernel(static_shapes=True)
def matmul_softmax(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    m, k = x.size()
    n = hl.specialize(y.size(1))
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for tile_m in hl.tile(m):
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc += x[tile_m, tile_k] @ y[tile_k, :]
        out[tile_m, :] = torch.softmax(acc, dim=-1)
    return out


@tilesmith.kernel(static_shapes=True)
def matmul_l2_normalize(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The whole of K at once, without a loop."""
    m, n = x.size(0), hl.specialize(y.size(1))
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for tile_m in hl.tile(m):
        product = torch.matmul(x[tile_m, :], y[:, :]).to(torch.float32)
        out[tile_m, :] = product / torch.sqrt((product * product).sum(-1, keepdim=True))
    return out


@tilesmith.kernel(static_shapes=True)
def matmul_logsumexp(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    m, k = x.size()
    n = hl.specialize(y.size(1))
    out = torch.empty([m], dtype=torch.float32, device=x.device)
    for tile_m in hl.tile(m):
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, :])
        out[tile_m] = torch.logsumexp(acc, dim=-1)
    return out


@tilesmith.kernel(static_shapes=True)
def tiled_matmul_sum(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """N is tiled: no program has a whole row."""
    (m, k), n = x.size(), y.size(1)
    out = torch.zeros([m], dtype=torch.float32, device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        hl.atomic_add(out, [tile_m], acc.sum(-1))
    return out


@tilesmith.kernel(static_shapes=True)
def normalized_matmul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The reduction comes before the product and is over its contracted axis."""
    m, n = x.size(0), hl.specialize(y.size(1))
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for tile_m in hl.tile(m):
        row = x[tile_m, :].to(torch.float32)
        scaled = row * torch.rsqrt((row * row).mean(-1, keepdim=True))
        out[tile_m, :] = torch.matmul(scaled.to(x.dtype), y[:, :])
    return out


@tilesmith.kernel(static_shapes=True)
def matmul_with_other_sum(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Reduces the output's columns and the rows of an operand."""
    m, k = x.size()
    n = hl.specialize(y.size(1))
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for tile_m in hl.tile(m):
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        total = hl.zeros([tile_m], dtype=torch.float32)
        for tile_k in hl.tile(k):
            part = x[tile_m, tile_k]
            total += part.to(torch.float32).sum(-1)
            acc = torch.addmm(acc, part, y[tile_k, :])
        out[tile_m, :] = acc / acc.sum(-1, keepdim=True) + total[:, None]
    return out


@tilesmith.kernel(static_shapes=True)
def matmul_column_sum(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Reduces the product over M, which is tiled."""
    m, k = x.size()
    n = hl.specialize(y.size(1))
    out = torch.zeros([n], dtype=torch.float32, device=x.device)
    for tile_m in hl.tile(m):
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, :])
        hl.atomic_add(out, [slice(None)], acc.sum(0))
    return out


@tilesmith.kernel(static_shapes=True)
def sums_of_partial_products(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Reduces in every step of the loop over K: there never is a whole product."""
    m, k = x.size()
    out = torch.empty([m], dtype=torch.float32, device=x.device)
    for tile_m in hl.tile(m):
        total = hl.zeros([tile_m], dtype=torch.float32)
        for tile_k in hl.tile(k):
            part = hl.dot(x[tile_m, tile_k], y[tile_k, :])
            total = torch.maximum(total, part.to(torch.float32).amax(-1))
        out[tile_m] = total
    return out


def matmul_of_any_size(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    (m, k), n = x.size(), y.size(1)
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = acc.to(x.dtype)
    return out


def dynamic_matmul() -> Any:
    """A kernel that has seen no call: facts have the sizes of the first one."""
    return tilesmith.kernel(matmul_of_any_size, static_shapes=False)


def operands(m: int, n: int, k: int, dtype: torch.dtype = torch.float16) -> Any:
    """Arguments of the products above."""
    return torch.empty(m, k, dtype=dtype), torch.empty(k, n, dtype=dtype)
