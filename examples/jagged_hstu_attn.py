"""Causal silu attention on sequences of different lengths laid end to end (HSTU).

There is no softmax: weights are `silu(alpha q k^T) / n`, so no maximum is kept. The grid runs over
sequences and heads; the loops over queries and keys are bounded by offsets loaded from memory, the
one over keys by the diagonal too.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch.nn.functional import silu

import tilesmith as helion
import tilesmith.language as hl
from examples.jagged_sum import random_offsets
from tilesmith.numerics.compare import check_against


@helion.kernel(static_shapes=True)
def jagged_hstu_attn(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    offsets: torch.Tensor,
    max_length: int,
    alpha: float,
) -> torch.Tensor:
    """Inputs and output are `[total length, head, d]`."""
    heads = q.size(1)
    head_dim = hl.specialize(q.size(2))
    sequences = offsets.size(0) - 1
    out = torch.empty_like(v)
    for sequence, head in hl.grid([sequences, heads]):
        begin, end = offsets[sequence], offsets[sequence + 1]
        for tile_q in hl.tile(begin, end):
            queries = q[tile_q, head, :]
            acc = hl.zeros([tile_q, head_dim], dtype=torch.float32)
            for tile_k in hl.tile(begin, tile_q.end):
                scores = hl.dot(queries, k[tile_k, head, :].T) * alpha
                weights = silu(scores) / max_length
                is_past = tile_q.index[:, None] >= tile_k.index[None, :]
                weights = torch.where(is_past, weights, 0.0)
                values = v[tile_k, head, :]
                acc = hl.dot(weights.to(values.dtype), values, acc=acc)
            out[tile_q, head, :] = acc.to(out.dtype)
    return out


def reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    offsets: torch.Tensor,
    max_length: int,
    alpha: float,
) -> torch.Tensor:
    out = torch.empty(v.shape, dtype=torch.double, device=v.device)
    for begin, end in pairwise(offsets.tolist()):
        queries, keys, values = (x[begin:end].double().transpose(0, 1) for x in (q, k, v))
        weights = silu(queries @ keys.transpose(1, 2) * alpha) / max_length
        out[begin:end] = (weights.tril() @ values).transpose(0, 1)
    return out


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sequences, longest, heads, d = (64, 1024, 4, 128) if device == "cuda" else (5, 60, 2, 32)
    offsets = random_offsets(sequences, longest, device)
    q, k, v = (
        torch.randn(int(offsets[-1]), heads, d, device=device, dtype=torch.bfloat16)
        for _ in range(3)
    )
    args = (q, k, v, offsets, longest, 1.0 / d**0.5)
    # The weights are rounded to bf16 before the second product.
    report = check_against(
        jagged_hstu_attn(*args),
        reference(*args),
        reduction_length=longest,
        intermediate=torch.bfloat16,
    )
    print(f"jagged_hstu_attn: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
