"""Every example kernel as data: inputs for a boundary size, the fp64 reference, the error budget.

The one table behind the interpreter, cross-compilation, Triton-interpreter and device suites.
Inputs depend only on size, dtype and device. Configs have blocks of 16: most tiles are partial.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import torch

import tilesmith as helion
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
from tilesmith.numerics.compare import ErrorReport, check_against
from tilesmith.numerics.inputs import random_tensor

Size = tuple[int, ...]
Args = tuple[Any, ...]
EPS = 1e-5


@dataclass(frozen=True)
class Case:
    """One kernel with one kind of arguments.

    Attributes:
        name: unique, also the test id.
        kernel: the decorated kernel.
        make_inputs: (size, dtype, device) -> positional arguments.
        reference: same arguments -> fp64 outputs, in the form the kernel returns them.
        config: an explicit small config.
        sizes: boundary sizes; the last one has partial tiles along every axis.
        reduction_length: terms of the longest sum behind one output element.
        roundings: per output, how many intermediates are rounded to the input dtype on the way.
    """

    name: str
    kernel: Any
    make_inputs: Callable[[Size, torch.dtype, str], Args]
    reference: Callable[..., Any]
    config: helion.Config
    sizes: tuple[Size, ...]
    reduction_length: Callable[[Size], int] = lambda size: 1
    roundings: tuple[int, ...] = ()

    def __str__(self) -> str:
        return self.name

    def check(self, actual: Any, args: Args, size: Size, dtype: torch.dtype) -> list[ErrorReport]:
        """Compare what the kernel returned with the reference, output by output."""
        results, expected = as_outputs(actual), as_outputs(self.reference(*args))
        assert len(results) == len(expected)
        reports: list[ErrorReport] = []
        for result, wanted, roundings in zip_longest(results, expected, self.roundings):
            if wanted is None or result is None:
                assert wanted is result
                continue
            reports.append(
                check_against(
                    result,
                    wanted,
                    reduction_length=self.reduction_length(size),
                    intermediate=[dtype] * (roundings or 0),
                )
            )
        return reports


def as_outputs(returned: Any) -> tuple[torch.Tensor | None, ...]:
    """A kernel's result as a tuple."""
    return returned if isinstance(returned, tuple) else (returned,)


def blocks(*sizes: int, **others: Any) -> helion.Config:
    """A config given by its block sizes."""
    return helion.Config(block_sizes=list(sizes), **others)


def tensors(*shapes: Size, dtype: torch.dtype, device: str) -> Args:
    """One random tensor per shape."""
    return tuple(
        random_tensor(shape, dtype, seed=seed, device=device) for seed, shape in enumerate(shapes)
    )


def plane(size: Size, dtype: torch.dtype, device: str) -> Args:
    return tensors(size, dtype=dtype, device=device)


def two_planes(size: Size, dtype: torch.dtype, device: str) -> Args:
    return tensors(size, size, dtype=dtype, device=device)


def plane_and_row(size: Size, dtype: torch.dtype, device: str) -> Args:
    return tensors(size, size[1:], dtype=dtype, device=device)


def plane_and_wide_row(size: Size, dtype: torch.dtype, device: str) -> Args:
    x, row = plane_and_row(size, dtype, device)
    return x, row.float()


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


PLANES: tuple[Size, ...] = ((0, 5), (5, 0), (1, 1), (15, 17), (16, 16), (17, 15), (37, 53))
ROWS: tuple[Size, ...] = tuple(size for size in PLANES if size[1])
# Only a row of two or more has a reduction to loop over, and a gradient that is not just zero.
LONG_ROWS: tuple[Size, ...] = tuple(size for size in PLANES if size[1] > 1)
LOSSES: tuple[Size, ...] = tuple(size for size in PLANES if size[0] and size[1])
PRODUCTS: tuple[Size, ...] = (
    (0, 5, 7),
    (5, 0, 7),
    (5, 7, 0),
    (1, 1, 1),
    (15, 17, 16),
    (16, 16, 16),
    (17, 15, 33),
    (37, 53, 29),
)
SUMMED_PRODUCTS: tuple[Size, ...] = tuple(size for size in PRODUCTS if size[2])
NORMED_PRODUCTS: tuple[Size, ...] = tuple(size for size in PRODUCTS if size[1])
BATCHES: tuple[Size, ...] = (
    (0, 5, 6, 7),
    (2, 5, 6, 0),
    (1, 1, 1, 1),
    (2, 15, 17, 16),
    (1, 16, 16, 16),
    (3, 17, 15, 33),
)
HEADS: tuple[Size, ...] = (
    (0, 5, 5, 16),
    (1, 1, 1, 16),
    (1, 15, 17, 16),
    (1, 16, 16, 32),
    (2, 17, 33, 24),
)
SQUARE_HEADS: tuple[Size, ...] = (
    (0, 5, 5, 16),
    (1, 1, 1, 16),
    (1, 15, 15, 16),
    (1, 16, 16, 32),
    (2, 37, 37, 24),
)
COMPRESSIONS: tuple[Size, ...] = (
    (0, 5, 16, 16),
    (2, 0, 16, 16),
    (1, 1, 16, 16),
    (2, 15, 16, 16),
    (1, 16, 32, 16),
    (3, 37, 24, 20),
)
LOOKUPS: tuple[Size, ...] = (
    (0, 3, 5),
    (1, 1, 1),
    (15, 7, 17),
    (8, 16, 16),
    (17, 37, 15),
    (53, 5, 37),
)
SEQUENCES: tuple[Size, ...] = (
    (0, 3, 4),
    (5, 0, 6),
    (1, 1, 1),
    (15, 17, 16),
    (16, 16, 16),
    (37, 33, 53),
)


def vanishing(size: Size) -> int:
    """No sum, but results so close to zero that only their absolute error can be small."""
    return 2


def first(size: Size) -> int:
    return size[0]


def last(size: Size) -> int:
    return size[-1]


def larger(size: Size) -> int:
    return max(size)


def contracted(size: Size) -> int:
    """Both sums of a dot compression: over rows, then over columns."""
    _, m, d, _ = size
    return m * d


def middle(size: Size) -> int:
    return size[1]


def keys(size: Size) -> int:
    """A score sums the head dimension, an output element the keys."""
    _, _, n, d = size
    return n * d


# fmt: off
EXAMPLES: tuple[Case, ...] = (
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
