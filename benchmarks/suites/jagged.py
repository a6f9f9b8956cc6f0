"""Operators on sequences of different lengths laid end to end.

Sizes are (sequences, the longest of them, features). The eager forms read no length on the host.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from benchmarks.suites.arguments import Size, inputs, normal, normals, random_offsets
from examples import jagged_hstu_attn, jagged_layer_norm, jagged_mean, jagged_softmax, jagged_sum
from tilesmith.bench.case import Arguments, Operator

FP32 = torch.float32
SEQUENCES = (
    (32, 256, 128),
    (128, 256, 256),
    (512, 128, 256),
    (512, 512, 256),
    (512, 512, 1024),
    (1024, 1024, 1024),
)
SMALL_SEQUENCES = ((5, 17, 16), (32, 64, 40), (512, 128, 256))
# Of layer normalisation a program holds whole rows.
NORMED_SEQUENCES = ((32, 256, 64), (128, 256, 128), (512, 128, 128), (512, 512, 256))
# Sequences, the longest of them, heads, channels.
HEADS = ((64, 256, 4, 128), (64, 512, 4, 128), (64, 1024, 4, 128), (256, 1024, 4, 128))
SMALL_HEADS = ((3, 20, 2, 16), (5, 60, 2, 32), (16, 200, 4, 64))


def sequences(size: Size, device: torch.device, dtype: torch.dtype) -> Arguments:
    count, longest, features = size
    offsets = random_offsets(count, longest)
    return normal((int(offsets[-1]), features), device, dtype), offsets.to(device)


def counted_sequences(size: Size, device: torch.device, dtype: torch.dtype) -> Arguments:
    """All features of every sequence are data."""
    count, _, features = size
    full = torch.full((count,), features, dtype=torch.int64, device=device)
    return *sequences(size, device, dtype), full


def ragged_heads(size: Size, device: torch.device, dtype: torch.dtype) -> Arguments:
    count, longest, heads, width = size
    offsets = random_offsets(count, longest)
    shape = (int(offsets[-1]), heads, width)
    tensors = normals(shape, shape, shape, device=device, dtype=dtype)
    return *tensors, offsets.to(device), longest, width**-0.5


def owners(values: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """The sequence each row belongs to."""
    rows = torch.arange(values.size(0), device=values.device)
    return torch.searchsorted(offsets, rows, right=True) - 1


def sums(values: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    zeros = values.new_zeros([offsets.size(0) - 1, *values.shape[1:]])
    return zeros.index_add(0, owners(values, offsets), values)


def eager_jagged_sum(values: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    return sums(values.float(), offsets).to(values.dtype)


def eager_jagged_mean(
    values: torch.Tensor, offsets: torch.Tensor, feature_counts: torch.Tensor
) -> torch.Tensor:
    """Spared the feature counts, which are all full."""
    lengths = offsets.diff().clamp(min=1)[:, None]
    return (sums(values.float(), offsets) / lengths).to(values.dtype)


def eager_jagged_softmax(values: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    own = owners(values, offsets)
    wide = values.float()
    floor = torch.full(
        [offsets.size(0) - 1, values.size(1)], float("-inf"), device=values.device, dtype=FP32
    )
    index = own[:, None].expand_as(wide)
    peaks = floor.scatter_reduce(0, index, wide, "amax")
    powers = torch.exp(wide - peaks[own])
    return (powers / sums(powers, offsets)[own]).to(values.dtype)


def eager_jagged_layer_norm(values: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    own = owners(values, offsets)
    lengths = offsets.diff().clamp(min=1)
    wide = values.float()
    mean = sums(wide.mean(-1), offsets) / lengths
    centred = wide - mean[own, None]
    variance = sums(centred.square().mean(-1), offsets) / lengths
    return (centred * torch.rsqrt(variance + 1e-6)[own, None]).to(values.dtype)


def eager_ragged_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    offsets: torch.Tensor,
    max_length: int,
    alpha: float,
) -> torch.Tensor:
    """Padded to the longest sequence."""
    own = owners(q, offsets)
    place = own, torch.arange(q.size(0), device=q.device) - offsets[own]
    shape = [offsets.size(0) - 1, max_length, *q.shape[1:]]
    queries, keys, values = (
        x.new_zeros(shape).index_put(place, x).transpose(1, 2) for x in (q, k, v)
    )
    scores = (queries @ keys.transpose(-1, -2)) * alpha
    weights = (functional.silu(scores) / max_length).tril()
    return (weights @ values).transpose(1, 2)[place]


def num_pairs(offsets: torch.Tensor) -> float:
    """Queries and keys that meet: the lower triangles of all sequences."""
    lengths = offsets.diff().double()
    return float((lengths * (lengths + 1) / 2).sum())


def ragged_flops(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *others: Any) -> float:
    return 4.0 * q.size(1) * q.size(2) * num_pairs(others[0])


def longest_of(values: torch.Tensor, offsets: torch.Tensor, *others: Any) -> int:
    return int(offsets.diff().max())


def reduction_operators() -> tuple[Operator, ...]:
    shared: dict[str, Any] = {
        "inputs": inputs(sequences, SEQUENCES),
        "cpu_inputs": inputs(sequences, SMALL_SEQUENCES, FP32),
        "reduction_length": longest_of,
    }
    return (
        Operator(
            "jagged_sum",
            kernels={"jagged_sum": "examples.jagged_sum:jagged_sum"},
            eager=eager_jagged_sum,
            exact=jagged_sum.reference,
            **shared,
        ),
        Operator(
            "jagged_mean",
            inputs=inputs(counted_sequences, SEQUENCES),
            cpu_inputs=inputs(counted_sequences, SMALL_SEQUENCES, FP32),
            kernels={"jagged_mean": "examples.jagged_mean:jagged_mean"},
            eager=eager_jagged_mean,
            exact=jagged_mean.reference,
            reduction_length=longest_of,
        ),
        Operator(
            "jagged_softmax",
            kernels={"jagged_softmax": "examples.jagged_softmax:jagged_softmax"},
            eager=eager_jagged_softmax,
            exact=jagged_softmax.reference,
            **shared,
        ),
    )


def operators() -> tuple[Operator, ...]:
    """Those of this family."""
    return (
        *reduction_operators(),
        Operator(
            "jagged_layer_norm",
            inputs=inputs(sequences, NORMED_SEQUENCES),
            cpu_inputs=inputs(sequences, SMALL_SEQUENCES, FP32),
            kernels={"jagged_layer_norm": "examples.jagged_layer_norm:jagged_layer_norm"},
            eager=eager_jagged_layer_norm,
            exact=jagged_layer_norm.reference,
            reduction_length=lambda values, offsets: longest_of(values, offsets) * values.size(1),
        ),
        Operator(
            "ragged_attention",
            inputs=inputs(ragged_heads, HEADS),
            cpu_inputs=inputs(ragged_heads, SMALL_HEADS, FP32),
            kernels={
                "hstu": "examples.jagged_hstu_attn:jagged_hstu_attn",
                "hstu_2": "examples.jagged_hstu_attn_2:jagged_hstu_attn_2",
            },
            eager=eager_ragged_attention,
            exact=jagged_hstu_attn.reference,
            flops=ragged_flops,
            reduction_length=lambda q, k, v, offsets, *others: q.size(2) * longest_of(q, offsets),
            # Eager PyTorch rounds the scores, all round the weights.
            roundings=2,
            num_products=2,
        ),
    )
