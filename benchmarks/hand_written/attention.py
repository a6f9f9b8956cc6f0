"""Attention in hand-written Triton, for Hopper and later: online softmax, TMA descriptors.

Keys are walked in blocks; only those at the diagonal or at the end are masked. The width of a head
is a power of two.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

UNSET = [1, 1, 1]
"""Block of a descriptor until a config has been chosen."""


def set_blocks(arguments: dict[str, Any]) -> None:
    """Give the descriptors the blocks of a config."""
    width = arguments["WIDTH"]
    for name, block in (("q", "M"), ("k", "N"), ("v", "N"), ("out", "M")):
        arguments[name].block_shape = [1, arguments[f"BLOCK_{block}"], width]


def config(m: int, n: int, num_stages: int, num_warps: int) -> triton.Config:
    """One choice of blocks."""
    blocks = {"BLOCK_M": m, "BLOCK_N": n}
    return triton.Config(blocks, num_stages=num_stages, num_warps=num_warps, pre_hook=set_blocks)


CONFIGS = [
    config(128, 128, 2, 8),
    config(128, 64, 3, 8),
    config(128, 64, 3, 4),
    config(64, 64, 3, 4),
]


@triton.jit
def attend(
    queries,
    k,
    v,
    peak,
    total,
    acc,
    head,
    first_query,
    begin,
    end,
    num_keys,
    scale,
    IS_CAUSAL: tl.constexpr,
    IS_MASKED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    WIDTH: tl.constexpr,
):
    for first_key in tl.range(begin, end, BLOCK_N):
        keys = k.load([head, first_key, 0]).reshape(BLOCK_N, WIDTH)
        scores = tl.dot(queries, keys.T) * scale
        if IS_MASKED:
            key = first_key + tl.arange(0, BLOCK_N)[None, :]
            is_visible = key < num_keys
            if IS_CAUSAL:
                is_visible &= first_query + tl.arange(0, BLOCK_M)[:, None] >= key
            scores = tl.where(is_visible, scores, float("-inf"))
        new_peak = tl.maximum(peak, tl.max(scores, 1))
        weights = tl.exp2(scores - new_peak[:, None])
        shrink = tl.exp2(peak - new_peak)
        total = total * shrink + tl.sum(weights, 1)
        values = v.load([head, first_key, 0]).reshape(BLOCK_N, WIDTH)
        acc = tl.dot(weights.to(values.dtype), values, acc * shrink[:, None])
        peak = new_peak
    return peak, total, acc


@triton.autotune(CONFIGS, key=["num_queries", "num_keys", "WIDTH", "IS_CAUSAL"])
@triton.jit
def attention_kernel(
    q,
    k,
    v,
    out,
    num_queries,
    num_keys,
    scale,
    IS_CAUSAL: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    first_query, head = tl.program_id(0) * BLOCK_M, tl.program_id(1)
    queries = q.load([head, first_query, 0]).reshape(BLOCK_M, WIDTH)
    peak = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK_M], dtype=tl.float32)
    acc = tl.zeros([BLOCK_M, WIDTH], dtype=tl.float32)
    end = num_keys
    unmasked = num_keys // BLOCK_N * BLOCK_N
    if IS_CAUSAL:
        end = min(num_keys, first_query + BLOCK_M)
        unmasked = min(unmasked, first_query // BLOCK_N * BLOCK_N)
    for IS_MASKED in tl.static_range(2):
        begin_now = unmasked if IS_MASKED else 0
        end_now = end if IS_MASKED else unmasked
        peak, total, acc = attend(
            queries,
            k,
            v,
            peak,
            total,
            acc,
            head,
            first_query,
            begin_now,
            end_now,
            num_keys,
            scale,
            IS_CAUSAL,
            IS_MASKED,
            BLOCK_M,
            BLOCK_N,
            WIDTH,
        )
    result = (acc / total[:, None]).to(out.dtype)
    out.store([head, first_query, 0], result.reshape(1, BLOCK_M, WIDTH))


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, is_causal: bool = False
) -> torch.Tensor:
    """Softmax attention of contiguous queries, keys and values, heads first."""
    out = torch.empty_like(q)
    width, num_queries, num_keys = q.size(-1), q.size(-2), k.size(-2)
    heads = [tensor.reshape(-1, tensor.size(-2), width) for tensor in (q, k, v, out)]
    descriptors = [TensorDescriptor.from_tensor(tensor, list(UNSET)) for tensor in heads]
    scale = math.log2(math.e) / math.sqrt(width)

    def grid(meta: dict[str, Any]) -> tuple[int, int]:
        return triton.cdiv(num_queries, meta["BLOCK_M"]), heads[0].size(0)

    attention_kernel[grid](
        *descriptors, num_queries, num_keys, scale, IS_CAUSAL=is_causal, WIDTH=width
    )
    return out


def causal_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The same, each query with the keys up to its own position."""
    return attention(q, k, v, is_causal=True)
