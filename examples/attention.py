"""Attention without the score matrix: flash attention, plain, causal, biased, and its gradients.

Keys are walked in tiles with an online softmax in base 2. The step shared by the kernels is an
ordinary Python function; the causal kernel ends its loop at the diagonal. The backward computes the
weights again from the kept log-sum-exp.
"""

from __future__ import annotations

import math
from typing import Any

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against

LOG2_E = math.log2(math.e)
Three = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
State = Three


def online_softmax_step(state: State, scores: torch.Tensor, values: torch.Tensor) -> State:
    """Take one tile of base-2 scores and its values into (running max, running sum, output)."""
    peak, total, acc = state
    new_peak = torch.maximum(peak, torch.amax(scores, -1))
    powers = torch.exp2(scores - new_peak[:, :, None])
    shrink = torch.exp2(peak - new_peak)
    total = total * shrink + torch.sum(powers, -1)
    acc = torch.baddbmm(acc * shrink[:, :, None], powers.to(values.dtype), values)
    return new_peak, total, acc


@helion.kernel(static_shapes=True)
def attention(q_in: torch.Tensor, k_in: torch.Tensor, v_in: torch.Tensor) -> torch.Tensor:
    m, n = q_in.size(-2), k_in.size(-2)
    head_dim = hl.specialize(q_in.size(-1))
    q = q_in.reshape([-1, m, head_dim])
    k = k_in.reshape([-1, n, head_dim]).transpose(1, 2)
    v = v_in.reshape([-1, n, head_dim])
    out = torch.empty_like(q)
    scale = LOG2_E / math.sqrt(head_dim)
    for tile_b, tile_m in hl.tile([q.size(0), m]):
        peak = hl.full([tile_b, tile_m], float("-inf"), dtype=torch.float32)
        total = hl.zeros([tile_b, tile_m], dtype=torch.float32)
        acc = hl.zeros([tile_b, tile_m, head_dim], dtype=torch.float32)
        queries = q[tile_b, tile_m, :]
        for tile_n in hl.tile(n):
            scores = torch.bmm(queries, k[tile_b, :, tile_n], torch.float32) * scale
            values = v[tile_b, tile_n, :]
            peak, total, acc = online_softmax_step((peak, total, acc), scores, values)
        out[tile_b, tile_m, :] = (acc / total[:, :, None]).to(out.dtype)
    return out.view(q_in.size())


# One kernel for all sequence lengths; the head dimension stays a constant.
attention_dynamic = helion.kernel(attention.fn, static_shapes=False)


@helion.kernel(static_shapes=True)
def causal_attention(q_in: torch.Tensor, k_in: torch.Tensor, v_in: torch.Tensor) -> torch.Tensor:
    m = q_in.size(-2)
    assert m == k_in.size(-2), "causal attention is square"
    head_dim = hl.specialize(q_in.size(-1))
    q = q_in.reshape([-1, m, head_dim])
    k = k_in.reshape([-1, m, head_dim]).transpose(1, 2)
    v = v_in.reshape([-1, m, head_dim])
    out = torch.empty_like(q)
    scale = LOG2_E / math.sqrt(head_dim)
    for tile_b, tile_m in hl.tile([q.size(0), m]):
        peak = hl.full([tile_b, tile_m], float("-inf"), dtype=torch.float32)
        total = hl.zeros([tile_b, tile_m], dtype=torch.float32)
        acc = hl.zeros([tile_b, tile_m, head_dim], dtype=torch.float32)
        queries = q[tile_b, tile_m, :]
        for tile_n in hl.tile(0, tile_m.end):
            scores = torch.bmm(queries, k[tile_b, :, tile_n], torch.float32) * scale
            visible = tile_m.index[:, None] >= tile_n.index[None, :]
            scores = torch.where(visible[None, :, :], scores, float("-inf"))
            values = v[tile_b, tile_n, :]
            peak, total, acc = online_softmax_step((peak, total, acc), scores, values)
        out[tile_b, tile_m, :] = (acc / total[:, :, None]).to(out.dtype)
    return out.view(q_in.size())


@helion.kernel(static_shapes=True)
def biased_attention(
    q_in: torch.Tensor, k_in: torch.Tensor, v_in: torch.Tensor, bias_in: torch.Tensor
) -> torch.Tensor:
    """With a bias added to the scores: one for each head, query and key."""
    m, n = q_in.size(-2), k_in.size(-2)
    head_dim = hl.specialize(q_in.size(-1))
    q = q_in.reshape([-1, m, head_dim])
    k = k_in.reshape([-1, n, head_dim]).transpose(1, 2)
    v = v_in.reshape([-1, n, head_dim])
    bias = bias_in.reshape([-1, m, n])
    out = torch.empty_like(q)
    scale = LOG2_E / math.sqrt(head_dim)
    for tile_b, tile_m in hl.tile([q.size(0), m]):
        peak = hl.full([tile_b, tile_m], float("-inf"), dtype=torch.float32)
        total = hl.zeros([tile_b, tile_m], dtype=torch.float32)
        acc = hl.zeros([tile_b, tile_m, head_dim], dtype=torch.float32)
        queries = q[tile_b, tile_m, :]
        for tile_n in hl.tile(n):
            scores = torch.bmm(queries, k[tile_b, :, tile_n], torch.float32) * scale
            scores = scores + bias[tile_b, tile_m, tile_n].to(torch.float32) * LOG2_E
            values = v[tile_b, tile_n, :]
            peak, total, acc = online_softmax_step((peak, total, acc), scores, values)
        out[tile_b, tile_m, :] = (acc / total[:, :, None]).to(out.dtype)
    return out.view(q_in.size())


@helion.kernel(static_shapes=True)
def attention_fwd(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs of `[heads, m, d]` queries and the base-2 log-sum-exp of each score row."""
    m, n = q.size(1), k.size(1)
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
        for tile_n in hl.tile(n):
            keys = k[tile_b, tile_n, :].transpose(1, 2)
            scores = torch.bmm(queries, keys, dtype) * scale
            values = v[tile_b, tile_n, :]
            peak, total, acc = online_softmax_step((peak, total, acc), scores, values)
        out[tile_b, tile_m, :] = (acc / total[:, :, None]).to(out.dtype)
        lse[tile_b, tile_m] = peak + torch.log2(total)
    return out, lse


@helion.kernel(static_shapes=True)
def attention_bwd(
    grad_out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
) -> Three:
    """Gradients from recomputed weights: one loop over queries, one over keys, one launch."""
    m, n = q.size(1), k.size(1)
    head_dim = hl.specialize(q.size(2))
    dtype = torch.promote_types(q.dtype, torch.float32)
    grad_q, grad_k, grad_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    scale = 1.0 / math.sqrt(head_dim)
    for tile_b, tile_m in hl.tile([q.size(0), m]):
        grads = grad_out[tile_b, tile_m, :]
        inner = (grads.to(dtype) * out[tile_b, tile_m, :].to(dtype)).sum(-1)
        acc = hl.zeros([tile_b, tile_m, head_dim], dtype=dtype)
        for tile_n in hl.tile(n):
            keys = k[tile_b, tile_n, :]
            scores = torch.bmm(q[tile_b, tile_m, :], keys.transpose(1, 2), dtype)
            weights = torch.exp2(scores * (scale * LOG2_E) - lse[tile_b, tile_m][:, :, None])
            along = torch.bmm(grads, v[tile_b, tile_n, :].transpose(1, 2), dtype)
            grad_scores = weights * (along - inner[:, :, None]) * scale
            acc = torch.baddbmm(acc, grad_scores.to(keys.dtype), keys)
        grad_q[tile_b, tile_m, :] = acc.to(q.dtype)
    for tile_b, tile_n in hl.tile([q.size(0), n]):
        keys = k[tile_b, tile_n, :]
        values = v[tile_b, tile_n, :]
        for_keys = hl.zeros([tile_b, tile_n, head_dim], dtype=dtype)
        for_values = hl.zeros([tile_b, tile_n, head_dim], dtype=dtype)
        for tile_m in hl.tile(m):
            queries = q[tile_b, tile_m, :]
            grads = grad_out[tile_b, tile_m, :]
            inner = (grads.to(dtype) * out[tile_b, tile_m, :].to(dtype)).sum(-1)
            scores = torch.bmm(keys, queries.transpose(1, 2), dtype)
            weights = torch.exp2(scores * (scale * LOG2_E) - lse[tile_b, tile_m][:, None, :])
            for_values = torch.baddbmm(for_values, weights.to(grads.dtype), grads)
            along = torch.bmm(values, grads.transpose(1, 2), dtype)
            grad_scores = weights * (along - inner[:, None, :]) * scale
            for_keys = torch.baddbmm(for_keys, grad_scores.to(queries.dtype), queries)
        grad_k[tile_b, tile_n, :] = for_keys.to(k.dtype)
        grad_v[tile_b, tile_n, :] = for_values.to(v.dtype)
    return grad_q, grad_k, grad_v


class Attention(torch.autograd.Function):
    """Softmax attention of `[heads, m, d]` queries on `[heads, n, d]` keys and values."""

    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Run the forward kernel and keep the normalisation of each row."""
        out, lse = attention_fwd(q, k, v)
        ctx.save_for_backward(q, k, v, out, lse)
        return out

    @staticmethod
    def backward(ctx: Any, grad_out: torch.Tensor) -> Three:
        """Run the backward kernel."""
        return attention_bwd(grad_out, *ctx.saved_tensors)


def reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    bias: torch.Tensor | None = None,
    causal: bool = False,
) -> torch.Tensor:
    scores = q.double() @ k.double().transpose(-1, -2) / math.sqrt(q.size(-1))
    if bias is not None:
        scores = scores + bias.double()
    if causal:
        hidden = torch.ones_like(scores, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    return torch.softmax(scores, -1) @ v.double()


def reference_fwd(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    scores = q.double() @ k.double().transpose(-1, -2) / math.sqrt(q.size(-1))
    return torch.softmax(scores, -1) @ v.double(), torch.logsumexp(scores, -1) * LOG2_E


def reference_bwd(
    grad_out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
) -> Three:
    grad, scale = grad_out.double(), 1 / math.sqrt(q.size(-1))
    queries, keys, values = q.double(), k.double(), v.double()
    scores = queries @ keys.transpose(-1, -2) * (scale * LOG2_E)
    weights = torch.exp2(scores - lse.double()[..., None])
    inner = (grad * out.double()).sum(-1, keepdim=True)
    grad_scores = weights * (grad @ values.transpose(-1, -2) - inner) * scale
    grad_k = grad_scores.transpose(-1, -2) @ queries
    return grad_scores @ keys, grad_k, weights.transpose(-1, -2) @ grad


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    heads, m, head_dim = 8, 256, 64
    q, k, v = (
        torch.randn(2, heads, m, head_dim, device=device, dtype=torch.bfloat16) for _ in range(3)
    )
    bias = torch.randn(2, heads, m, m, device=device, dtype=torch.bfloat16)
    # The softmax weights are rounded to the values' type before the second product.
    plain, causal, biased = (
        check_against(out, exact, reduction_length=m, intermediate=v.dtype).relative_norm
        for out, exact in (
            (attention(q, k, v), reference(q, k, v)),
            (causal_attention(q, k, v), reference(q, k, v, causal=True)),
            (biased_attention(q, k, v, bias), reference(q, k, v, bias)),
        )
    )
    print(f"attention: relative error {plain:.1e}, causal {causal:.1e}, biased {biased:.1e}")
    heads_first = [tensor.flatten(0, 1) for tensor in (q, k, v)]
    args = (torch.randn_like(heads_first[0]), *heads_first, *attention_fwd(*heads_first))
    backward = [
        check_against(grad, exact, reduction_length=m, intermediate=[v.dtype] * 2).relative_norm
        for grad, exact in zip(attention_bwd(*args), reference_bwd(*args))
    ]
    print(f"attention: relative error backward {max(backward):.1e}")


if __name__ == "__main__":
    main()
