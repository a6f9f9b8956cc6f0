"""Attention without the score matrix: the forward pass of flash attention, plain and causal.

Keys are walked in tiles with an online softmax in base 2. The step shared by both kernels is an
ordinary Python function; the causal kernel ends its loop at the diagonal.
"""

from __future__ import annotations

import math

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against

LOG2_E = math.log2(math.e)
State = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


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


def reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool = False
) -> torch.Tensor:
    scores = q.double() @ k.double().transpose(-1, -2) / math.sqrt(q.size(-1))
    if causal:
        hidden = torch.ones_like(scores, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    return torch.softmax(scores, -1) @ v.double()


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    heads, m, head_dim = 8, 256, 64
    q, k, v = (
        torch.randn(2, heads, m, head_dim, device=device, dtype=torch.bfloat16) for _ in range(3)
    )
    # The softmax weights are rounded to the values' type before the second product.
    plain, causal = (
        check_against(out, exact, reduction_length=m, intermediate=v.dtype)
        for out, exact in (
            (attention(q, k, v), reference(q, k, v)),
            (causal_attention(q, k, v), reference(q, k, v, causal=True)),
        )
    )
    print(f"attention: relative error {plain.relative_norm:.1e}, causal {causal.relative_norm:.1e}")


if __name__ == "__main__":
    main()
