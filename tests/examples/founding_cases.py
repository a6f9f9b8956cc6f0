"""The example kernels that came first: one or two of each kind."""

from __future__ import annotations

import torch

from examples import (
    add,
    attention,
    bmm,
    cross_entropy,
    dot_compress,
    embedding,
    exp,
    geglu,
    jagged_mean,
    layer_norm,
    long_sum,
    matmul,
    matmul_layernorm,
    matmul_split_k,
    rms_norm,
    softmax,
)
from examples import sum as sums
from tests.examples.case import (
    BATCHES,
    COMPRESSIONS,
    HEADS,
    LONG_ROWS,
    LOOKUPS,
    LOSSES,
    NORMED_PRODUCTS,
    PLANES,
    PRODUCTS,
    ROWS,
    SEQUENCES,
    SQUARE_HEADS,
    SUMMED_PRODUCTS,
    Args,
    Case,
    Size,
    blocks,
    contracted,
    first,
    keys,
    larger,
    last,
    middle,
    plane,
    plane_and_row,
    plane_and_wide_row,
    tensors,
    two_planes,
    vanishing,
)
from tilesmith.numerics.inputs import random_tensor

EPS = 1e-5


def norm_inputs(size: Size, dtype: torch.dtype, device: str) -> Args:
    return *tensors(size, size[1:], size[1:], dtype=dtype, device=device), EPS


def norm_inputs_without_bias(size: Size, dtype: torch.dtype, device: str) -> Args:
    return *plane_and_row(size, dtype, device), None, EPS


def norm_gradient_inputs(size: Size, dtype: torch.dtype, device: str) -> Args:
    x, weight, grad_out = tensors(size, size[1:], size, dtype=dtype, device=device)
    _, mean, rstd = layer_norm.reference(x, weight, None, EPS)
    return grad_out, x, weight, mean.float(), rstd.float(), True


def norm_gradient_inputs_without_bias(size: Size, dtype: torch.dtype, device: str) -> Args:
    return *norm_gradient_inputs(size, dtype, device)[:-1], False


def labelled_logits(size: Size, dtype: torch.dtype, device: str) -> Args:
    (logits,) = plane(size, dtype, device)
    rows, classes = size
    return logits, (torch.arange(rows, device=device) * 7 + 3) % classes


def loss_gradient_inputs(size: Size, dtype: torch.dtype, device: str) -> Args:
    logits, labels = labelled_logits(size, dtype, device)
    lse = torch.logsumexp(logits.double(), -1).float()
    return random_tensor(size[:1], torch.float32, seed=5, device=device), logits, labels, lse


def factors(size: Size, dtype: torch.dtype, device: str) -> Args:
    m, n, k = size
    return tensors((m, k), (k, n), dtype=dtype, device=device)


def factors_with_second_transposed(size: Size, dtype: torch.dtype, device: str) -> Args:
    m, n, k = size
    x, y = tensors((m, k), (n, k), dtype=dtype, device=device)
    return x, y.t()


def factors_and_bias_relu(size: Size, dtype: torch.dtype, device: str) -> Args:
    bias = random_tensor([size[1]], dtype, seed=9, device=device)
    return *factors(size, dtype, device), matmul.bias_relu(bias)


def factors_and_bias(size: Size, dtype: torch.dtype, device: str) -> Args:
    bias = random_tensor([size[1]], dtype, seed=9, device=device)
    return *factors(size, dtype, device), matmul_split_k.add_bias(bias)


def factors_and_norm(size: Size, dtype: torch.dtype, device: str) -> Args:
    m, n, k = size
    return tensors((m, k), (k, n), (n,), (n,), dtype=dtype, device=device)


def batched_factors(size: Size, dtype: torch.dtype, device: str) -> Args:
    b, m, n, k = size
    return tensors((b, m, k), (b, k, n), dtype=dtype, device=device)


def heads(size: Size, dtype: torch.dtype, device: str) -> Args:
    b, m, n, d = size
    return tensors((b, 2, m, d), (b, 2, n, d), (b, 2, n, d), dtype=dtype, device=device)


def compress_inputs(size: Size, dtype: torch.dtype, device: str) -> Args:
    b, m, d, k = size
    return tensors((b, m, d), (b, m, k), dtype=dtype, device=device)


def compress_inputs_with_z(size: Size, dtype: torch.dtype, device: str) -> Args:
    b, m, d, k = size
    return tensors((b, m, d), (b, m, k), (b, d, k), dtype=dtype, device=device)


def compress_gradient_inputs(size: Size, dtype: torch.dtype, device: str) -> Args:
    x, y = compress_inputs(size, dtype, device)
    _, xty = dot_compress.reference(x, y)
    return random_tensor(y.shape, dtype, seed=9, device=device), x, y, xty.to(dtype)


def compress_gradient_inputs_with_z(size: Size, dtype: torch.dtype, device: str) -> Args:
    return *compress_gradient_inputs(size, dtype, device), True


def lookups(size: Size, dtype: torch.dtype, device: str) -> Args:
    count, rows, dim = size
    indices = (torch.arange(2 * count, device=device) * 5 + 1) % rows
    return indices.view(count, 2), *plane((rows, dim), dtype, device)


def sequences(size: Size, dtype: torch.dtype, device: str) -> Args:
    count, longest, features = size
    steps = torch.arange(count)
    # From the longest down to empty and round again; likewise the feature counts, the other way.
    lengths = (longest - steps) % (longest + 1)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    counts = (steps * 3 + features) % (features + 1)
    (values,) = plane((int(offsets[-1]), features), dtype, device)
    return values, offsets.to(device), counts.to(device)


def causal_reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return attention.reference(q, k, v, causal=True)


# fmt: off
FOUNDING: tuple[Case, ...] = (
    Case("add", add.add, plane_and_row, add.reference, blocks(16, 16), PLANES),
    Case("add_mixed", add.add, plane_and_wide_row, add.reference, blocks(16, 16), PLANES),
    Case("exp_fwd", exp.exp_fwd, plane, exp.reference, blocks(16, 16), PLANES),
    Case("exp_bwd", exp.exp_bwd, two_planes, exp.reference_bwd, blocks(16, 16), PLANES),
    Case("geglu", geglu.geglu, two_planes, geglu.reference, blocks(16, 16), PLANES, vanishing),
    Case("sum_rows", sums.sum_rows, plane, sums.reference, blocks(16), PLANES, last),
    Case("sum_columns", sums.sum_columns, plane, sums.reference_columns, blocks(16), PLANES, first),
    Case("long_sum", long_sum.long_sum, plane, long_sum.reference, blocks(16), PLANES, last),
    Case("long_sum_looped", long_sum.long_sum_looped, plane, long_sum.reference,
         blocks(16, reduction_loops=[16]), LONG_ROWS, last),
    Case("long_sum_manual", long_sum.long_sum_manual, plane, long_sum.reference,
         blocks(16, 16), PLANES, last),
    Case("softmax", softmax.softmax, plane, softmax.reference, blocks(16), PLANES, last),
    Case("softmax_decomposed", softmax.softmax_decomposed, plane, softmax.reference,
         blocks(16, reduction_loops=[16]), LONG_ROWS, last),
    Case("softmax_two_pass", softmax.softmax_two_pass, plane, softmax.reference,
         blocks(16, 16), PLANES, last),
    Case("layer_norm_fwd", layer_norm.layer_norm_fwd, norm_inputs, layer_norm.reference,
         blocks(16), ROWS, last),
    Case("layer_norm_fwd_no_bias", layer_norm.layer_norm_fwd, norm_inputs_without_bias,
         layer_norm.reference, blocks(16, reduction_loops=[16]), LONG_ROWS, last),
    Case("layer_norm_bwd", layer_norm.layer_norm_bwd, norm_gradient_inputs,
         layer_norm.reference_bwd, blocks(32, 16), LONG_ROWS, larger),
    Case("layer_norm_bwd_no_bias", layer_norm.layer_norm_bwd, norm_gradient_inputs_without_bias,
         layer_norm.reference_bwd, blocks(16, 16), LONG_ROWS, larger),
    Case("rms_norm", rms_norm.rms_norm, plane_and_row, rms_norm.reference, blocks(16), ROWS, last),
    Case("cross_entropy", cross_entropy.cross_entropy, labelled_logits, cross_entropy.reference,
         blocks(16), LOSSES, last),
    Case("cross_entropy_fwd", cross_entropy.cross_entropy_fwd, labelled_logits,
         cross_entropy.reference_fwd, blocks(16), LOSSES, last),
    Case("cross_entropy_bwd", cross_entropy.cross_entropy_bwd, loss_gradient_inputs,
         cross_entropy.reference_bwd, blocks(16, 16), LOSSES, last),
    Case("matmul", matmul.matmul, factors, matmul.reference, blocks(16, 16, 16), PRODUCTS, last),
    Case("matmul_transposed", matmul.matmul, factors_with_second_transposed, matmul.reference,
         blocks(16, 16, 16), PRODUCTS, last),
    Case("matmul_bias_relu", matmul.matmul, factors_and_bias_relu, matmul.reference,
         blocks(16, 16, 16), PRODUCTS, last),
    # Each of up to 64 slices rounds as it adds: a random walk, so the root of their number.
    Case("matmul_split_k", matmul_split_k.matmul_split_k, factors, matmul_split_k.reference,
         blocks(16, 16, 16, split_k=2), SUMMED_PRODUCTS, last, roundings=(8,)),
    Case("matmul_split_k_bias", matmul_split_k.matmul_split_k, factors_and_bias,
         matmul_split_k.reference, blocks(16, 16, 16, split_k=4), SUMMED_PRODUCTS, last,
         roundings=(8,)),
    Case("bmm", bmm.bmm, batched_factors, bmm.reference, blocks(1, 16, 16, 16), BATCHES, last),
    Case("matmul_layernorm", matmul_layernorm.matmul_layernorm, factors_and_norm,
         matmul_layernorm.reference, blocks(16, 16), NORMED_PRODUCTS, larger),
    Case("attention", attention.attention, heads, attention.reference, blocks(1, 16, 16), HEADS,
         keys, roundings=(1,)),
    Case("causal_attention", attention.causal_attention, heads, causal_reference,
         blocks(1, 16, 16), SQUARE_HEADS, keys, roundings=(1,)),
    Case("dot_compress_fwd", dot_compress.dot_compress_fwd, compress_inputs,
         dot_compress.reference, blocks(32, 16), COMPRESSIONS, contracted, roundings=(1, 0)),
    Case("dot_compress_fwd_z", dot_compress.dot_compress_fwd, compress_inputs_with_z,
         dot_compress.reference, blocks(32, 16), COMPRESSIONS, contracted, roundings=(1, 0)),
    Case("dot_compress_bwd", dot_compress.dot_compress_bwd, compress_gradient_inputs,
         dot_compress.reference_bwd, blocks(32, 16), COMPRESSIONS, contracted,
         roundings=(3, 1)),
    Case("dot_compress_bwd_z", dot_compress.dot_compress_bwd, compress_gradient_inputs_with_z,
         dot_compress.reference_bwd, blocks(32, 16), COMPRESSIONS, contracted,
         roundings=(3, 1, 0)),
    Case("embedding", embedding.embedding, lookups, embedding.reference, blocks(16, 16), LOOKUPS),
    Case("jagged_mean", jagged_mean.jagged_mean, sequences, jagged_mean.reference,
         blocks(16, 16, 16), SEQUENCES, middle),
)
# fmt: on
