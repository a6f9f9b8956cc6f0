"""Kernels over the buffers of several ranks, as data."""

from __future__ import annotations

import torch

from examples.distributed import (
    all_gather_matmul,
    all_reduce,
    allreduce_bias_rmsnorm,
    fp8_scaled_all_gather_matmul,
    matmul_reduce_scatter,
    two_dim_parallel_matmul,
)
from examples.distributed.ranks import random_buffers
from examples.fp8_matmul import quantise_rows
from tests.examples.case import Args, Case, Size, blocks, larger, tensors

VECTORS: tuple[Size, ...] = ((1,), (37,))
PLANES: tuple[Size, ...] = ((2, 3), (37, 21))
PRODUCTS: tuple[Size, ...] = ((2, 1, 1), (34, 29, 21))
WORLD = 2


def buffers(size: Size, dtype: torch.dtype, device: str) -> Args:
    return (random_buffers(3, size, dtype, device),)


def buffers_and_norm(size: Size, dtype: torch.dtype, device: str) -> Args:
    rows = tensors(size[1:], size[1:], dtype=dtype, device=device)
    return random_buffers(3, size, dtype, device), *rows


def gathered(size: Size, dtype: torch.dtype, device: str) -> Args:
    m, n, k = size
    shards, w = tensors((3, m, k), (k, n), dtype=dtype, device=device)
    return shards, w, torch.ones(3, dtype=torch.int32, device=device)


def factors(size: Size, dtype: torch.dtype, device: str) -> Args:
    m, n, k = size
    return tensors((m, k), (k, n), dtype=dtype, device=device)


def partial_sums(size: Size, dtype: torch.dtype, device: str) -> Args:
    return random_buffers(WORLD, size, torch.float32, device), 1, dtype


def mesh_sums(size: Size, dtype: torch.dtype, device: str) -> Args:
    return random_buffers(2 * WORLD, size, torch.float32, device), 1, WORLD, dtype


def fp8_shards(size: Size, dtype: torch.dtype, device: str) -> Args:
    m, n, k = size
    quantised = [quantise_rows(x) for x in random_buffers(WORLD, [m, k], dtype, device)]
    w, w_scale = quantise_rows(random_buffers(1, [n, k], dtype, device, seed=1)[0])
    shards, scales = (tuple(column) for column in zip(*quantised))
    return shards, scales, w.t(), w_scale


def own_rows(peers: tuple[torch.Tensor, ...], rank: int, dtype: torch.dtype) -> torch.Tensor:
    rows = peers[0].size(0) // len(peers)
    return torch.stack(peers).double().sum(0)[rank * rows : (rank + 1) * rows]


def mesh_row(
    peers: tuple[torch.Tensor, ...], row: int, width: int, dtype: torch.dtype
) -> torch.Tensor:
    return torch.stack(peers[row * width : (row + 1) * width]).double().sum(0)


def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x.double() @ w.double()


# fmt: off
DISTRIBUTED: tuple[Case, ...] = (
    Case("all_reduce", all_reduce.all_reduce, buffers, all_reduce.reference, blocks(16), VECTORS,
         larger),
    Case("allreduce_bias_rmsnorm", allreduce_bias_rmsnorm.allreduce_bias_rmsnorm,
         buffers_and_norm, allreduce_bias_rmsnorm.reference, blocks(16), PLANES, larger),
    Case("all_gather_matmul", all_gather_matmul.all_gather_matmul, gathered,
         all_gather_matmul.reference, blocks(16, 16, 16), PRODUCTS, larger),
    Case("multiply_slice", matmul_reduce_scatter.multiply_slice, factors, product,
         blocks(16, 16, 16), PRODUCTS, larger),
    Case("reduce_shard", matmul_reduce_scatter.reduce_shard, partial_sums, own_rows,
         blocks(16, 16), PLANES, larger),
    Case("add_mesh_row", two_dim_parallel_matmul.add_mesh_row, mesh_sums, mesh_row,
         blocks(16, 16), PLANES, larger),
    # Hopper's fp8 tensor cores keep about 14 bits of a partial sum.
    Case("fp8_scaled_all_gather_matmul",
         fp8_scaled_all_gather_matmul.fp8_scaled_all_gather_matmul, fp8_shards,
         fp8_scaled_all_gather_matmul.reference, blocks(16, 16, 32, 32), PRODUCTS, larger,
         rounded_to=(torch.float16,), dtypes=(torch.float32,), is_interpretable=False,
         missing_targets=("cuda:80",)),
)
# fmt: on
