"""Elementwise kernels and data movement, as data."""

from __future__ import annotations

import torch

from examples import (
    aot_compile_example,
    concatenate,
    geglu,
    low_mem_dropout,
    rope,
    swiglu,
)
from tests.examples.case import (
    Args,
    Case,
    Size,
    blocks,
    tensors,
    two_planes,
    vanishing,
)
from tests.frontend import philox_reference

PLANES: tuple[Size, ...] = ((0, 5), (1, 1), (37, 53))
PAIRS: tuple[Size, ...] = ((3, 0, 5), (1, 1, 1), (37, 19, 53))
# Batches, query heads, key heads, positions, channels.
ROTATIONS: tuple[Size, ...] = ((1, 1, 1, 1, 2), (3, 4, 2, 37, 12))
HALVES = (torch.float32, torch.bfloat16)
DROPPED, SEED = 0.3, 2**40 + 5


def three_planes(size: Size, dtype: torch.dtype, device: str) -> Args:
    return tensors(size, size, size, dtype=dtype, device=device)


def side_by_side(size: Size, dtype: torch.dtype, device: str) -> Args:
    rows, left, right = size
    return tensors((rows, left), (rows, right), dtype=dtype, device=device)


def side_by_side_mixed(size: Size, dtype: torch.dtype, device: str) -> Args:
    left, right = side_by_side(size, dtype, device)
    return left, right.float()


def two_planes_and_scale(size: Size, dtype: torch.dtype, device: str) -> Args:
    return *two_planes(size, dtype, device), 0.3


def dropped_inputs(size: Size, dtype: torch.dtype, device: str) -> Args:
    return DROPPED, *tensors(size, dtype=dtype, device=device), SEED


def dropped(p: float, x: torch.Tensor, seed: int) -> torch.Tensor:
    """Dropout with a generator of our tests' own; the share is rounded to fp32 to compare."""
    is_kept = philox_reference.rand(tuple(x.shape), seed) > torch.tensor(p, dtype=torch.float32)
    return torch.where(is_kept.to(x.device), x.double() / (1 - p), 0.0)


def queries_and_keys(size: Size, dtype: torch.dtype, device: str) -> Args:
    b, q_heads, k_heads, length, dim = size
    # Any tables will do, not only those of angles: both halves count on their own.
    return tensors(
        (b, q_heads, length, dim), (b, k_heads, length, dim), (length, dim), (length, dim),
        dtype=dtype, device=device,
    )  # fmt: skip


def pairs_of_channels(size: Size, dtype: torch.dtype, device: str) -> Args:
    b, heads, _, length, dim = size
    table = (length, dim // 2)
    return tensors((b, heads, length, dim), table, table, dtype=dtype, device=device)


def scaled_sum(x: torch.Tensor, y: torch.Tensor, scale: float) -> torch.Tensor:
    return x.double() + torch.tensor(scale, dtype=x.dtype).double() * y.double()


# fmt: off
POINTWISE: tuple[Case, ...] = (
    Case("geglu_bwd", geglu.geglu_bwd, three_planes, geglu.reference_bwd,
         blocks(16, 16), PLANES, vanishing, dtypes=HALVES),
    Case("swiglu", swiglu.swiglu, two_planes, swiglu.reference, blocks(64), PLANES),
    Case("swiglu_bwd", swiglu.swiglu_bwd, three_planes, swiglu.reference_bwd,
         blocks(64), PLANES, vanishing, dtypes=HALVES),
    Case("concatenate", concatenate.concatenate, side_by_side, concatenate.reference,
         blocks(16, 16), PAIRS, dtypes=HALVES),
    Case("concatenate_mixed", concatenate.concatenate, side_by_side_mixed, concatenate.reference,
         blocks(16, 16), PAIRS[1:], dtypes=(torch.float16,)),
    Case("concatenate_rows", concatenate.concatenate_rows, side_by_side, concatenate.reference,
         blocks(16), PAIRS, dtypes=HALVES),
    Case("low_mem_dropout", low_mem_dropout.low_mem_dropout, dropped_inputs, dropped,
         blocks(64), PLANES),
    Case("low_mem_dropout_bwd", low_mem_dropout.low_mem_dropout_bwd, dropped_inputs, dropped,
         blocks(16, 16), PLANES, dtypes=HALVES),
    Case("rope", rope.rope, queries_and_keys, rope.reference, blocks(2, 16), ROTATIONS, vanishing),
    Case("rope_bwd", rope.rope_bwd, queries_and_keys, rope.reference_bwd,
         blocks(2, 16), ROTATIONS, vanishing, dtypes=HALVES),
    Case("rope_interleaved", rope.rope_interleaved, pairs_of_channels, rope.reference_interleaved,
         blocks(2, 2, 16), ROTATIONS, vanishing),
    Case("scaled_add", aot_compile_example.scaled_add, two_planes_and_scale, scaled_sum,
         blocks(16, 16), PLANES, vanishing, roundings=(1,), dtypes=HALVES),
)
# fmt: on
