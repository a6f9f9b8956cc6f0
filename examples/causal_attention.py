"""Causal attention with gradients: each position attends to itself and to those before it.

Loops end, or begin, at the diagonal, so half of the products are never computed. The backward
computes the weights again from the kept log-sum-exp: one loop over queries, one over keys.
"""

from __future__ import annotations

import math
from typing import Any

import torch

import tilesmith as helion
import tilesmith.language as hl
from examples.attention import LOG2_E, Three, online_softmax_step
from tilesmith.numerics.compare import check_against


@helion.kernel(static_shapes=True)
def causal_fwd(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs of `[heads, m, d]` queries and the base-2 log-sum-exp of each score row."""
    m = q.size(1)
    assert m == k.size(1), "causal attention is square"
    head_dim = hl.specialize(q.size(2))
    dtype = torch.promote_types(q.dtype, torch.float32)
    out = torch.empty_like(q)
    lse = torch.empty([q.size(0), m], dtype=dtype, device=q.device)
    scale = LOG2_E / math.sqrt(head_dim)
    for tile_b, tile_m in hl.tile([q.size(0), m]):
        peak = hl.full([tile_b, tile_m], float("-inf"), dtype=dtype)
        total = hl.zeros([tile_b, tile_m], dtype=dtype)
        acc = hl.zeros([tile_b, tile_m, head_dim], dtype=dtype)
        queries = q[tile_b, tile_m, :]
        for tile_n in hl.tile(0, tile_m.end):
            keys = k[tile_b, tile_n, :].transpose(1, 2)
            scores = torch.bmm(queries, keys, dtype) * scale
            visible = tile_m.index[:, None] >= tile_n.index[None, :]
            scores = torch.where(visible[None, :, :], scores, float("-inf"))
            values = v[tile_b, tile_n, :]
            peak, total, acc = online_softmax_step((peak, total, acc), scores, values)
        out[tile_b, tile_m, :] = (acc / total[:, :, None]).to(out.dtype)
        lse[tile_b, tile_m] = peak + torch.log2(total)
    return out, lse


@helion.kernel(static_shapes=True)
def causal_bwd(
    grad_out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
) -> Three:
    """Gradients of queries up to the diagonal, then of keys and values from it on."""
    m = q.size(1)
    head_dim = hl.specialize(q.size(2))
    dtype = torch.promote_types(q.dtype, torch.float32)
    grad_q, grad_k, grad_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    scale = 1.0 / math.sqrt(head_dim)
    for tile_b, tile_m in hl.tile([q.size(0), m]):
        grads = grad_out[tile_b, tile_m, :]
        inner = (grads.to(dtype) * out[tile_b, tile_m, :].to(dtype)).sum(-1)
        acc = hl.zeros([tile_b, tile_m, head_dim], dtype=dtype)
        for tile_n in hl.tile(0, tile_m.end):
            keys = k[tile_b, tile_n, :]
            scores = torch.bmm(q[tile_b, tile_m, :], keys.transpose(1, 2), dtype)
            weights = torch.exp2(scores * (scale * LOG2_E) - lse[tile_b, tile_m][:, :, None])
            visible = tile_m.index[:, None] >= tile_n.index[None, :]
            weights = torch.where(visible[None, :, :], weights, 0.0)
            along = torch.bmm(grads, v[tile_b, tile_n, :].transpose(1, 2), dtype)
            grad_scores = weights * (along - inner[:, :, None]) * scale
            acc = torch.baddbmm(acc, grad_scores.to(keys.dtype), keys)
        grad_q[tile_b, tile_m, :] = acc.to(q.dtype)
    for tile_b, tile_n in hl.tile([q.size(0), m]):
        keys, values = k[tile_b, tile_n, :], v[tile_b, tile_n, :]
        for_keys = hl.zeros([tile_b, tile_n, head_dim], dtype=dtype)
        for_values = hl.zeros([tile_b, tile_n, head_dim], dtype=dtype)
        for tile_m in hl.tile(tile_n.begin, m):
            queries, grads = q[tile_b, tile_m, :], grad_out[tile_b, tile_m, :]
            inner = (grads.to(dtype) * out[tile_b, tile_m, :].to(dtype)).sum(-1)
            scores = torch.bmm(keys, queries.transpose(1, 2), dtype)
            weights = torch.exp2(scores * (scale * LOG2_E) - lse[tile_b, tile_m][:, None, :])
            visible = tile_n.index[:, None] <= tile_m.index[None, :]
            weights = torch.where(visible[None, :, :], weights, 0.0)
            for_values = torch.baddbmm(for_values, weights.to(grads.dtype), grads)
            along = torch.bmm(values, grads.transpose(1, 2), dtype)
            grad_scores = weights * (along - inner[:, None, :]) * scale
            for_keys = torch.baddbmm(for_keys, grad_scores.to(queries.dtype), queries)
        grad_k[tile_b, tile_n, :] = for_keys.to(k.dtype)
        grad_v[tile_b, tile_n, :] = for_values.to(v.dtype)
    return grad_q, grad_k, grad_v


class CausalAttention(torch.autograd.Function):
    """Causal softmax attention of `[heads, m, d]` queries, keys and values."""

    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Run the forward kernel and keep the normalisation of each row."""
        out, lse = causal_fwd(q, k, v)
        ctx.save_for_backward(q, k, v, out, lse)
        return out

    @staticmethod
    def backward(ctx: Any, grad_out: torch.Tensor) -> Three:
        """Run the backward kernel."""
        return causal_bwd(grad_out, *ctx.saved_tensors)


def _base2_scores(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    scores = q.double() @ k.double().transpose(-1, -2) * (LOG2_E / math.sqrt(q.size(-1)))
    hidden = torch.ones_like(scores, dtype=torch.bool).triu(1)
    return scores.masked_fill(hidden, float("-inf"))


def reference_fwd(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    scores = _base2_scores(q, k)
    lse = torch.logsumexp(scores / LOG2_E, -1) * LOG2_E
    return torch.exp2(scores - lse[..., None]) @ v.double(), lse


def reference_bwd(
    grad_out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
) -> Three:
    grad, scale = grad_out.double(), 1 / math.sqrt(q.size(-1))
    weights = torch.exp2(_base2_scores(q, k) - lse.double()[..., None])
    inner = (grad * out.double()).sum(-1, keepdim=True)
    grad_scores = weights * (grad @ v.double().transpose(-1, -2) - inner) * scale
    grad_k = grad_scores.transpose(-1, -2) @ q.double()
    return grad_scores @ k.double(), grad_k, weights.transpose(-1, -2) @ grad


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    m = 256
    q, k, v = (torch.randn(8, m, 64, device=device, dtype=torch.bfloat16) for _ in range(3))
    out, lse = causal_fwd(q, k, v)
    # The softmax weights are rounded to the values' type before the second product.
    exact = reference_fwd(q, k, v)[0]
    forward = check_against(out, exact, reduction_length=m, intermediate=v.dtype)
    args = (torch.randn_like(q), q, k, v, out, lse)
    backward = [
        check_against(grad, wanted, reduction_length=m, intermediate=[v.dtype] * 2).relative_norm
        for grad, wanted in zip(causal_bwd(*args), reference_bwd(*args))
    ]
    print(
        f"causal_attention: relative error {forward.relative_norm:.1e}, "
        f"backward {max(backward):.1e}"
    )


if __name__ == "__main__":
    main()
