"""Attention in the shape that suits large matrix units: few exponentials, rescaling in halves.

The peak of a row is only raised when it grew by more than `SLACK`: results stay exact, since every
weight is relative to whatever peak is used, and most tiles skip the rescaling. The accumulator is
rescaled in two halves of its columns, split and joined in registers. On NVIDIA GPUs the exponential
may be one PTX instruction.
"""

from __future__ import annotations

import math

import torch

import tilesmith as helion
import tilesmith.language as hl
from examples.attention import LOG2_E
from examples.attention import reference as attention_reference
from tilesmith.numerics.compare import check_against

SLACK = 8.0
"""Weights may reach ``2 ** SLACK``, well inside the range of every float type."""


def fast_exp2(x: torch.Tensor) -> torch.Tensor:
    """The hardware's base-2 exponential, accurate to two units in the last place."""
    return hl.inline_asm_elementwise(
        "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=torch.float32, is_pure=True, pack=1
    )


def rescaled(acc: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """The accumulator times a factor for each row, one half of its columns after the other."""
    rows, columns = acc.size()
    low, high = hl.split(acc.reshape(rows, 2, columns // 2).permute(0, 2, 1))
    both = hl.join(low * factor[:, None], high * factor[:, None])
    return both.permute(0, 2, 1).reshape(rows, columns)


@helion.kernel(static_shapes=True)
def blackwell_attention(
    q_in: torch.Tensor, k_in: torch.Tensor, v_in: torch.Tensor, use_asm: hl.constexpr = False
) -> torch.Tensor:
    m, n = q_in.size(-2), k_in.size(-2)
    head_dim = hl.specialize(q_in.size(-1))
    # All heads are one long list of rows: a tile is found by its offset from the head's first row.
    q, k, v = (x.reshape([-1, head_dim]) for x in (q_in, k_in, v_in))
    heads = q_in.numel() // (m * head_dim)
    out = torch.empty_like(q)
    scale = LOG2_E / math.sqrt(head_dim)
    for tile_h, tile_m in hl.tile([heads, m], block_size=[1, None]):
        first_query, first_key = tile_h.begin * m, tile_h.begin * n
        peak = hl.full([tile_m], float("-inf"), dtype=torch.float32)
        total = hl.zeros([tile_m], dtype=torch.float32)
        acc = hl.zeros([tile_m, head_dim], dtype=torch.float32)
        queries = q[tile_m + first_query, :]
        for tile_n in hl.tile(n):
            scores = hl.dot(queries, k[tile_n + first_key, :].T) * scale
            highest = scores.amax(-1)
            new_peak = torch.where(highest > peak + SLACK, highest, peak)
            shrink = torch.exp2(peak - new_peak)
            if use_asm:
                weights = fast_exp2(scores - new_peak[:, None])
            else:
                weights = torch.exp2(scores - new_peak[:, None])
            total = total * shrink + weights.sum(-1)
            values = v[tile_n + first_key, :]
            acc = hl.dot(weights.to(values.dtype), values, acc=rescaled(acc, shrink))
            peak = new_peak
        out[tile_m + first_query, :] = (acc / total[:, None]).to(out.dtype)
    return out.view(q_in.size())


def reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, use_asm: bool = False
) -> torch.Tensor:
    return attention_reference(q, k, v)


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    heads, m, head_dim = (32, 1024, 64) if device == "cuda" else (4, 150, 32)
    q, k, v = (
        torch.randn(1, heads, m, head_dim, device=device, dtype=torch.bfloat16) for _ in range(3)
    )
    has_ptx = device == "cuda" and torch.version.hip is None
    # The softmax weights are rounded to the values' type before the second product.
    report = check_against(
        blackwell_attention(q, k, v, has_ptx),
        reference(q, k, v),
        reduction_length=m,
        intermediate=v.dtype,
    )
    print(f"blackwell_attention: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
