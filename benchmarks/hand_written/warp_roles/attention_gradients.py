"""The backward of attention with warp roles in Gluon, for Hopper.

A program owns a block of keys and walks the queries (narrow_gradients.py, wide_gradients.py).
`repeatable_attention_backward` computes the gradient of the queries in a kernel of its own
(query_gradients.py) instead of adding it up in memory: bit by bit the same each time.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from benchmarks.hand_written.warp_roles.narrow_gradients import narrow_kernel
from benchmarks.hand_written.warp_roles.primitives import (
    ROWS,
    descriptor,
    vector_descriptor,
)
from benchmarks.hand_written.warp_roles.query_gradients import query_kernel
from benchmarks.hand_written.warp_roles.wide_gradients import wide_kernel

QUERIES = {64: 128, 128: 64, 256: 64}
"""Queries in a tile, by width of the head."""
PIECE = 64
"""Columns of a sum that one instruction of a wide head adds."""


@triton.jit
def prepare_kernel(
    out,
    d_out,
    delta,
    sums,
    num_queries,
    padded,
    HAS_SUMS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Sum of the output times its gradient, per query; zeros where sums will be."""
    head = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.arange(0, WIDTH)[None, :]
    place = (head * num_queries + row)[:, None] * WIDTH + column
    is_inside = (row < num_queries)[:, None]
    product = tl.load(out + place, is_inside, 0.0).to(tl.float32)
    product *= tl.load(d_out + place, is_inside, 0.0).to(tl.float32)
    tl.store(delta + head * padded + row, tl.sum(product, 1), row < padded)
    if HAS_SUMS:
        zeros = tl.zeros([BLOCK_M, WIDTH], tl.float32)
        tl.store(sums + (head * padded + row)[:, None] * WIDTH + column, zeros)


@triton.jit
def finish_kernel(
    sums,
    d_q,
    num_queries,
    padded,
    scale,
    BLOCK_M: tl.constexpr,
    WIDTH: tl.constexpr,
    PIECE: tl.constexpr,
):
    """Sums to the gradient of the queries. PIECE: they lie in the order of the accumulators."""
    head = tl.program_id(1).to(tl.int64)
    row = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M))[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    place = (head * padded + row) * WIDTH + column
    if PIECE:
        # 64 rows: 4 warps, 2 halves, 8 lanes; columns: eights, 4 lanes, pairs.
        within, rest = column % PIECE, row % 64
        place = (within // 8 * 4 + rest // 16) * 8 + rest % 8
        place = (place * 4 + within // 2 % 4) * 4 + rest // 8 % 2 * 2 + within % 2
        place += ((head * padded + row) // 64 * (WIDTH // PIECE) + column // PIECE) * (64 * PIECE)
    value = tl.load(sums + place) * scale
    result = d_q + (head * num_queries + row) * WIDTH + column
    tl.store(result, value.to(d_q.dtype.element_ty), row < num_queries)


def flattened(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """Heads, length, width."""
    return [tensor.reshape(-1, tensor.size(-2), tensor.size(-1)) for tensor in tensors]


def gradients(
    tensors: list[torch.Tensor], lse: torch.Tensor, *, is_causal: bool, has_sums: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of queries (where there are sums), keys and values, and the sums over outputs."""
    q, k, v, out, d_out = tensors
    (heads, num_queries, width), num_keys = q.shape, k.size(1)
    padded = lse.size(1)
    delta = torch.empty_like(lse)
    d_q, d_k, d_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    sums = d_q
    if has_sums:
        sums = torch.empty(heads, padded, width, dtype=torch.float32, device=q.device)
    rows = triton.cdiv(padded, 32), heads
    prepare_kernel[rows](out, d_out, delta, sums, num_queries, padded, has_sums, 32, width)
    is_wide = width == 256
    queries, keys = [1, QUERIES[width], width], [1, ROWS if is_wide else 2 * ROWS, width]
    arguments = [
        descriptor(q, queries),
        descriptor(k, keys),
        descriptor(v, keys),
        descriptor(d_out, queries),
        vector_descriptor(lse, QUERIES[width]),
        vector_descriptor(delta, QUERIES[width]),
        descriptor(sums, [1, QUERIES[width], width // 2]) if has_sums and not is_wide else sums,
        d_k,
        d_v,
        num_queries,
        num_keys,
        math.log2(math.e) / math.sqrt(width),
        1 / math.sqrt(width),
        is_causal,
        has_sums,
    ]
    grid = triton.cdiv(num_keys, keys[1]), heads
    if is_wide:
        wide_kernel[grid](*arguments, width, num_warps=4, maxnreg=168)
    else:
        narrow_kernel[grid](
            *arguments, width == 128, QUERIES[width], width, num_warps=4, maxnreg=168
        )
    if has_sums:
        scale = 1 / math.sqrt(width)
        piece = PIECE if is_wide else 0
        finish_kernel[rows](sums, d_q, num_queries, padded, scale, 32, width, piece)
    return d_q, d_k, d_v, delta


def attention_backward(
    tensors: tuple[torch.Tensor, ...], lse: torch.Tensor, *, is_causal: bool = False
) -> list[torch.Tensor]:
    """Gradients of queries, keys and values from those, the output and its gradient.

    The log-sum-exp is the one `attention.attention_with_lse` returns.
    """
    found = gradients(flattened(*tensors), lse, is_causal=is_causal, has_sums=True)[:3]
    return [gradient.reshape(like.shape) for gradient, like in zip(found, tensors)]


def repeatable_attention_backward(
    tensors: tuple[torch.Tensor, ...], lse: torch.Tensor, *, is_causal: bool = False
) -> list[torch.Tensor]:
    """The same without sums in memory: seven products instead of five, the same bits each time."""
    flat = flattened(*tensors)
    q, k, v, _out, d_out = flat
    width, num_keys = q.size(-1), k.size(1)
    d_q, d_k, d_v, delta = gradients(flat, lse, is_causal=is_causal, has_sums=False)
    is_wide = width == 256
    keys = [1, 64 if is_wide else 128, width]
    mine = [1, ROWS, width]
    query_kernel[triton.cdiv(q.size(1), 2 * ROWS), q.size(0)](
        descriptor(q, mine),
        descriptor(k, keys),
        descriptor(v, keys),
        descriptor(d_out, mine),
        descriptor(d_q, mine),
        lse,
        delta,
        num_keys,
        lse.size(1),
        math.log2(math.e) / math.sqrt(width),
        1 / math.sqrt(width),
        is_causal,
        keys[1],
        1 if is_wide else 2,
        width,
        num_warps=4,
        maxnreg=168,
    )
    return [gradient.reshape(like.shape) for gradient, like in zip((d_q, d_k, d_v), tensors)]
