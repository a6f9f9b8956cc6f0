"""Attention on fp8 queries, keys and values: both products run in fp8.

The weights of a tile lie in [0, 1]; they are rounded to fp8 before the second product, whose sum
stays in fp32. Values come transposed, so that both products read their right operand by columns.
"""

from __future__ import annotations

import math

import torch

import tilesmith as helion
import tilesmith.language as hl
from examples.attention import LOG2_E
from tilesmith.numerics.compare import check_against

FP8 = torch.float8_e4m3fn


@helion.kernel(static_shapes=True)
def fp8_attention(q: torch.Tensor, k: torch.Tensor, v_t: torch.Tensor) -> torch.Tensor:
    """Queries and keys are `[heads, n, d]`, values `[heads, d, n]`, all fp8."""
    heads, m, d = q.size()
    n = k.size(1)
    head_dim = hl.specialize(d)
    out = torch.empty([heads, m, head_dim], dtype=torch.float32, device=q.device)
    scale = LOG2_E / math.sqrt(head_dim)
    for tile_b, tile_m in hl.tile([heads, m], block_size=[1, None]):
        head = tile_b.begin
        peak = hl.full([tile_m], float("-inf"), dtype=torch.float32)
        total = hl.zeros([tile_m], dtype=torch.float32)
        acc = hl.zeros([tile_m, head_dim], dtype=torch.float32)
        queries = q[head, tile_m, :]
        for tile_n in hl.tile(n):
            scores = hl.dot(queries, k[head, tile_n, :].T) * scale
            new_peak = torch.maximum(peak, scores.amax(-1))
            weights = torch.exp2(scores - new_peak[:, None])
            shrink = torch.exp2(peak - new_peak)
            total = total * shrink + weights.sum(-1)
            values = v_t[head, :, tile_n].T
            acc = hl.dot(weights.to(FP8), values, acc=acc * shrink[:, None])
            peak = new_peak
        out[head, tile_m, :] = acc / total[:, None]
    return out


def reference(q: torch.Tensor, k: torch.Tensor, v_t: torch.Tensor) -> torch.Tensor:
    scores = q.double() @ k.double().transpose(-1, -2) / math.sqrt(q.size(-1))
    return torch.softmax(scores, -1) @ v_t.double().transpose(-1, -2)


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    heads, m, head_dim = (32, 512, 128) if device == "cuda" else (4, 160, 64)
    q, k, v = (torch.randn(heads, m, head_dim, device=device).to(FP8) for _ in range(3))
    args = (q, k, v.transpose(1, 2).contiguous())
    # The softmax weights are rounded to fp8 before the second product.
    report = check_against(
        fp8_attention(*args), reference(*args), reduction_length=m, intermediate=FP8
    )
    print(f"fp8_attention: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
