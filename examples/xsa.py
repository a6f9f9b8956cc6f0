"""Exclusive self-attention: causal attention less the part along the token's own value.

A token attends to itself most of all, and what it reads there it already knows. After the usual
online softmax the epilogue takes the projection on the token's own normalised value out of the
output, while both are still in registers.
"""

from __future__ import annotations

import math

import torch
from torch.nn.functional import normalize

import tilesmith as helion
import tilesmith.language as hl
from examples.attention import LOG2_E, online_softmax_step
from examples.attention import reference as attention_reference
from tilesmith.numerics.compare import check_against

EPS = 1e-12


@helion.kernel(static_shapes=True)
def xsa(q_in: torch.Tensor, k_in: torch.Tensor, v_in: torch.Tensor) -> torch.Tensor:
    m = q_in.size(-2)
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
        attended = acc / total[:, :, None]
        own = normalize(v[tile_b, tile_m, :].to(torch.float32), dim=-1, eps=EPS)
        along = (attended * own).sum(-1, keepdim=True)
        out[tile_b, tile_m, :] = (attended - along * own).to(out.dtype)
    return out.view(q_in.size())


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    attended = attention_reference(q, k, v, causal=True)
    own = normalize(v.double(), dim=-1, eps=EPS)
    return attended - (attended * own).sum(-1, keepdim=True) * own


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    heads, m, head_dim = (32, 1024, 64) if device == "cuda" else (4, 160, 64)
    q, k, v = (
        torch.randn(2, heads, m, head_dim, device=device, dtype=torch.bfloat16) for _ in range(3)
    )
    # The softmax weights are rounded to the values' type before the second product.
    report = check_against(
        xsa(q, k, v), reference(q, k, v), reduction_length=m, intermediate=v.dtype
    )
    print(f"xsa: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
