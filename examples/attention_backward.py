"""Gradients of attention, plain and causal, as kernels of their own.

Weights are computed again from the kept log-sum-exp. One kernel walks keys for the gradient of the
queries; one walks queries for those of keys and values, with the scores turned, so that a tile of
weights is the left operand of the next product as it is. Loops of the causal form end, or begin, at
the diagonal. Heads wider than 128 have a kernel for the keys and one for the values: the sums of
both do not fit into registers at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

import tilesmith as helion
import tilesmith.language as hl
from examples import attention, causal_attention
from examples.attention import LOG2_E, Three
from tilesmith.numerics.compare import check_against

WIDEST_PAIR = 128
"""Columns of keys and values whose sums one kernel keeps."""


@helion.kernel(static_shapes=True)
def row_products(grad_out: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Sums of the outputs times their gradients, one for each query."""
    heads, m, _ = out.size()
    dtype = torch.promote_types(out.dtype, torch.float32)
    inner = torch.empty([heads, m], dtype=dtype, device=out.device)
    for tile_b, tile_m in hl.tile([heads, m]):
        grads = grad_out[tile_b, tile_m, :].to(dtype)
        inner[tile_b, tile_m] = (grads * out[tile_b, tile_m, :].to(dtype)).sum(-1)
    return inner


@helion.kernel(static_shapes=True)
def query_gradients(
    grad_out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    lse: torch.Tensor,
    inner: torch.Tensor,
    is_causal: hl.constexpr,
) -> torch.Tensor:
    """The gradient of `[heads, m, d]` queries: a loop over keys, up to the diagonal."""
    m, n = q.size(1), k.size(1)
    head_dim = hl.specialize(q.size(2))
    dtype = torch.promote_types(q.dtype, torch.float32)
    grad_q = torch.empty_like(q)
    scale = 1.0 / math.sqrt(head_dim)
    for tile_b, tile_m in hl.tile([q.size(0), m]):
        queries, grads = q[tile_b, tile_m, :], grad_out[tile_b, tile_m, :]
        norm, mean = lse[tile_b, tile_m], inner[tile_b, tile_m]
        acc = hl.zeros([tile_b, tile_m, head_dim], dtype=dtype)
        for tile_n in hl.tile(0, tile_m.end if is_causal else n):
            keys = k[tile_b, tile_n, :]
            scores = torch.bmm(queries, keys.transpose(1, 2), dtype)
            weights = torch.exp2(scores * (scale * LOG2_E) - norm[:, :, None])
            if is_causal:
                visible = tile_m.index[:, None] >= tile_n.index[None, :]
                weights = torch.where(visible[None, :, :], weights, 0.0)
            along = torch.bmm(grads, v[tile_b, tile_n, :].transpose(1, 2), dtype)
            grad_scores = weights * (along - mean[:, :, None])
            acc = torch.baddbmm(acc, grad_scores.to(k.dtype), keys)
        grad_q[tile_b, tile_m, :] = (acc * scale).to(q.dtype)
    return grad_q


@helion.kernel(static_shapes=True)
def key_value_gradients(
    grad_out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    lse: torch.Tensor,
    inner: torch.Tensor,
    is_causal: hl.constexpr,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of keys and values: a loop over queries, from the diagonal on."""
    m, n = q.size(1), k.size(1)
    head_dim = hl.specialize(q.size(2))
    dtype = torch.promote_types(q.dtype, torch.float32)
    grad_k, grad_v = torch.empty_like(k), torch.empty_like(v)
    scale = 1.0 / math.sqrt(head_dim)
    for tile_b, tile_n in hl.tile([q.size(0), n]):
        keys, values = k[tile_b, tile_n, :], v[tile_b, tile_n, :]
        for_keys = hl.zeros([tile_b, tile_n, head_dim], dtype=dtype)
        for_values = hl.zeros([tile_b, tile_n, head_dim], dtype=dtype)
        for tile_m in hl.tile(tile_n.begin if is_causal else 0, m):
            queries, grads = q[tile_b, tile_m, :], grad_out[tile_b, tile_m, :]
            scores = torch.bmm(keys, queries.transpose(1, 2), dtype)
            weights = torch.exp2(scores * (scale * LOG2_E) - lse[tile_b, tile_m][:, None, :])
            if is_causal:
                visible = tile_n.index[:, None] <= tile_m.index[None, :]
                weights = torch.where(visible[None, :, :], weights, 0.0)
            for_values = torch.baddbmm(for_values, weights.to(grad_out.dtype), grads)
            along = torch.bmm(values, grads.transpose(1, 2), dtype)
            grad_scores = weights * (along - inner[tile_b, tile_m][:, None, :])
            for_keys = torch.baddbmm(for_keys, grad_scores.to(q.dtype), queries)
        grad_k[tile_b, tile_n, :] = (for_keys * scale).to(k.dtype)
        grad_v[tile_b, tile_n, :] = for_values.to(v.dtype)
    return grad_k, grad_v


@helion.kernel(static_shapes=True)
def key_gradients(
    grad_out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    lse: torch.Tensor,
    inner: torch.Tensor,
    is_causal: hl.constexpr,
) -> torch.Tensor:
    """The gradient of the keys alone, for wide heads."""
    m, n = q.size(1), k.size(1)
    head_dim = hl.specialize(q.size(2))
    dtype = torch.promote_types(q.dtype, torch.float32)
    grad_k = torch.empty_like(k)
    scale = 1.0 / math.sqrt(head_dim)
    for tile_b, tile_n in hl.tile([q.size(0), n]):
        keys, values = k[tile_b, tile_n, :], v[tile_b, tile_n, :]
        acc = hl.zeros([tile_b, tile_n, head_dim], dtype=dtype)
        for tile_m in hl.tile(tile_n.begin if is_causal else 0, m):
            queries, grads = q[tile_b, tile_m, :], grad_out[tile_b, tile_m, :]
            scores = torch.bmm(keys, queries.transpose(1, 2), dtype)
            weights = torch.exp2(scores * (scale * LOG2_E) - lse[tile_b, tile_m][:, None, :])
            if is_causal:
                visible = tile_n.index[:, None] <= tile_m.index[None, :]
                weights = torch.where(visible[None, :, :], weights, 0.0)
            along = torch.bmm(values, grads.transpose(1, 2), dtype)
            grad_scores = weights * (along - inner[tile_b, tile_m][:, None, :])
            acc = torch.baddbmm(acc, grad_scores.to(q.dtype), queries)
        grad_k[tile_b, tile_n, :] = (acc * scale).to(k.dtype)
    return grad_k


@helion.kernel(static_shapes=True)
def value_gradients(
    grad_out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    lse: torch.Tensor,
    is_causal: hl.constexpr,
) -> torch.Tensor:
    """The gradient of the values alone, for wide heads."""
    m, n = q.size(1), k.size(1)
    head_dim = hl.specialize(q.size(2))
    dtype = torch.promote_types(q.dtype, torch.float32)
    grad_v = torch.empty_like(k)
    scale = LOG2_E / math.sqrt(head_dim)
    for tile_b, tile_n in hl.tile([q.size(0), n]):
        keys = k[tile_b, tile_n, :]
        acc = hl.zeros([tile_b, tile_n, head_dim], dtype=dtype)
        for tile_m in hl.tile(tile_n.begin if is_causal else 0, m):
            queries, grads = q[tile_b, tile_m, :], grad_out[tile_b, tile_m, :]
            scores = torch.bmm(keys, queries.transpose(1, 2), dtype)
            weights = torch.exp2(scores * scale - lse[tile_b, tile_m][:, None, :])
            if is_causal:
                visible = tile_n.index[:, None] <= tile_m.index[None, :]
                weights = torch.where(visible[None, :, :], weights, 0.0)
            acc = torch.baddbmm(acc, weights.to(grad_out.dtype), grads)
        grad_v[tile_b, tile_n, :] = acc.to(k.dtype)
    return grad_v


def attention_backward(
    grad_out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    *,
    is_causal: bool = False,
) -> Three:
    """Gradients of `[heads, m, d]` queries and `[heads, n, d]` keys and values.

    `lse` is the base-2 log-sum-exp that the forward kernels of the other examples keep.
    """
    inner = row_products(grad_out, out)
    args = grad_out, q, k, v, lse, inner, is_causal

    def others() -> tuple[torch.Tensor, torch.Tensor]:
        if q.size(-1) <= WIDEST_PAIR:
            return key_value_gradients(*args)
        return key_gradients(*args), value_gradients(grad_out, q, k, lse, is_causal)

    grad_q, (grad_k, grad_v) = side_by_side(lambda: query_gradients(*args), others, q.device)
    return grad_q, grad_k, grad_v


def side_by_side(
    first: Callable[[], torch.Tensor], second: Callable[[], Any], device: torch.device
) -> tuple[torch.Tensor, Any]:
    """Both results. On a GPU the last programs of one fill what the first of the other leave."""
    if device.type != "cuda":
        return first(), second()
    here, aside = torch.cuda.current_stream(device), torch.cuda.Stream(device)
    aside.wait_stream(here)
    with torch.cuda.stream(aside):
        found = first()
    other = second()
    here.wait_stream(aside)
    # It was made in memory of the other stream, which must not have it back too early.
    found.record_stream(here)
    return found, other


class Attention(torch.autograd.Function):
    """Softmax attention, plain or causal, whose gradients are kernels of their own."""

    @staticmethod
    def forward(
        ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool
    ) -> torch.Tensor:
        """Run the forward kernel and keep the normalisation of each row."""
        forward = causal_attention.causal_fwd if is_causal else attention.attention_fwd
        out, lse = forward(q, k, v)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.is_causal = is_causal
        return out

    @staticmethod
    def backward(ctx: Any, grad_out: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Run the kernels of the gradients."""
        return *attention_backward(grad_out, *ctx.saved_tensors, is_causal=ctx.is_causal), None


def reference(
    grad_out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    *,
    is_causal: bool = False,
) -> Three:
    source = causal_attention if is_causal else attention
    return source.reference_bwd(grad_out, q, k, v, out, lse)


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    m, worst = 256, 0.0
    for head_dim in (64, 256):
        q, k, v = (
            torch.randn(4, m, head_dim, device=device, dtype=torch.bfloat16) for _ in range(3)
        )
        for is_causal in (False, True):
            source = causal_attention.causal_fwd if is_causal else attention.attention_fwd
            args = (torch.randn_like(q), q, k, v, *source(q, k, v))
            results = attention_backward(*args, is_causal=is_causal)
            for found, exact in zip(results, reference(*args, is_causal=is_causal)):
                checked = check_against(
                    found, exact, reduction_length=m, intermediate=[v.dtype] * 2
                )
                worst = max(worst, checked.relative_norm)
    print(f"attention_backward: relative error {worst:.1e}")


if __name__ == "__main__":
    main()
