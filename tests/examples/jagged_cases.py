"""Kernels over ragged rows, groups and experts, as data."""

from __future__ import annotations

import torch

from examples import (
    grouped_gemm,
    jagged_dense_add,
    jagged_dense_bmm,
    jagged_hstu_attn,
    jagged_hstu_attn_2,
    jagged_layer_norm,
    jagged_softmax,
    jagged_sum,
    moe_matmul_ogs,
)
from tests.examples.case import Args, Case, Size, blocks, larger, tensors

# Sequences, the longest of them, features.
RAGGED: tuple[Size, ...] = ((1, 1, 1), (5, 17, 16), (37, 21, 19))
NORMED: tuple[Size, ...] = ((1, 2, 3), (5, 17, 16), (21, 19, 13))
# Sequences, the longest of them, inner size, columns.
PRODUCTS: tuple[Size, ...] = ((1, 1, 1, 1), (7, 19, 21, 17))
# Sequences, the longest of them, width of a head.
HEADS: tuple[Size, ...] = ((1, 2, 16), (4, 37, 24))


def offsets_of(count: int, longest: int, device: str) -> torch.Tensor:
    """From the longest down to empty and round again."""
    lengths = (longest - torch.arange(count)) % (longest + 1)
    return torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]).to(device)


def sequences(size: Size, dtype: torch.dtype, device: str) -> Args:
    count, longest, features = size
    offsets = offsets_of(count, longest, device)
    return *tensors((int(offsets[-1]), features), dtype=dtype, device=device), offsets


def rows_and_dense(size: Size, dtype: torch.dtype, device: str) -> Args:
    count, longest, extra = size
    offsets = offsets_of(count, longest, device)
    shapes = ((int(offsets[-1]),), (count, longest + extra))
    values, dense = tensors(*shapes, dtype=dtype, device=device)
    return values, offsets, dense


def sequences_and_matrices(size: Size, dtype: torch.dtype, device: str) -> Args:
    count, longest, d, k = size
    offsets = offsets_of(count, longest, device)
    shapes = ((int(offsets[-1]), d), (count, d, k), (count, k))
    return offsets, *tensors(*shapes, dtype=dtype, device=device)


def without_bias(size: Size, dtype: torch.dtype, device: str) -> Args:
    return sequences_and_matrices(size, dtype, device)[:-1]


def ragged_heads(size: Size, dtype: torch.dtype, device: str) -> Args:
    count, longest, d = size
    offsets = offsets_of(count, longest, device)
    shape = (int(offsets[-1]), 2, d)
    return *tensors(shape, shape, shape, dtype=dtype, device=device), offsets, longest, 0.25


def groups(size: Size, dtype: torch.dtype, device: str) -> Args:
    count, longest, k, n = size
    offsets = offsets_of(count, longest, device).to(torch.int32)
    packed, b = tensors((int(offsets[-1]), k), (k, n), dtype=dtype, device=device)
    return packed, b, offsets


def routed_tokens(size: Size, dtype: torch.dtype, device: str) -> Args:
    experts, tokens, k, n = size
    # The last expert gets no token.
    choices = (torch.arange(tokens, device=device) * 5 + 1) % max(experts - 1, 1)
    counts, starts, order = moe_matmul_ogs.route(choices, experts)
    x, weights = tensors((tokens, k), (experts, k, n), dtype=dtype, device=device)
    return x, weights, counts, starts, order, int(counts.max())


# fmt: off
JAGGED: tuple[Case, ...] = (
    Case("jagged_sum", jagged_sum.jagged_sum, sequences, jagged_sum.reference,
         blocks(16, 16, 16), RAGGED, larger),
    Case("jagged_softmax", jagged_softmax.jagged_softmax, sequences, jagged_softmax.reference,
         blocks(16, 16, 16, 16), RAGGED, larger),
    Case("jagged_layer_norm", jagged_layer_norm.jagged_layer_norm, sequences,
         jagged_layer_norm.reference, blocks(16, 16, 16, 16), NORMED, lambda size: 20 * size[2]),
    Case("jagged_dense_add", jagged_dense_add.jagged_dense_add, rows_and_dense,
         jagged_dense_add.reference, blocks(16, 16, 16), RAGGED),
    Case("jagged_dense_bmm", jagged_dense_bmm.jagged_dense_bmm, sequences_and_matrices,
         jagged_dense_bmm.reference, blocks(16, 16, 16), PRODUCTS, larger),
    Case("jagged_dense_bmm_no_bias", jagged_dense_bmm.jagged_dense_bmm, without_bias,
         jagged_dense_bmm.reference, blocks(16, 16, 16), PRODUCTS, larger),
    # The weights are rounded to the values' type before the second product.
    Case("jagged_hstu_attn", jagged_hstu_attn.jagged_hstu_attn, ragged_heads,
         jagged_hstu_attn.reference, blocks(16, 16), HEADS, larger, (1,)),
    Case("jagged_hstu_attn_2", jagged_hstu_attn_2.jagged_hstu_attn_2, ragged_heads,
         jagged_hstu_attn_2.reference, blocks(16, 16), HEADS, larger, (1,)),
    Case("grouped_gemm", grouped_gemm.grouped_gemm, groups, grouped_gemm.reference,
         blocks(16, 16, 16), PRODUCTS, larger),
    Case("grouped_gemm_persistent", grouped_gemm.grouped_gemm_persistent, groups,
         grouped_gemm.reference, blocks(32, 32, 16), PRODUCTS, larger),
    Case("moe_matmul_ogs", moe_matmul_ogs.moe_matmul_ogs, routed_tokens,
         moe_matmul_ogs.reference, blocks(16, 16, 16), ((1, 1, 1, 1), (5, 53, 21, 17)), larger),
)
# fmt: on
