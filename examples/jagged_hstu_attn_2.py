"""HSTU attention again, decomposed otherwise: the grid runs over tiles of the longest length.

Every sequence gets as many programs as the longest one needs; a program past the end of its own
sequence finds nothing to do, a branch taken at run time. Rows are then spread over more programs
than with one program for a whole sequence.
"""

from __future__ import annotations

import torch
from torch.nn.functional import silu

import tilesmith as helion
import tilesmith.language as hl
from examples.jagged_hstu_attn import reference
from examples.jagged_sum import random_offsets
from tilesmith.numerics.compare import check_against


@helion.kernel(static_shapes=True)
def jagged_hstu_attn_2(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    offsets: torch.Tensor,
    max_length: int,
    alpha: float,
) -> torch.Tensor:
    heads = q.size(1)
    head_dim = hl.specialize(q.size(2))
    sequences = offsets.size(0) - 1
    out = torch.empty_like(v)
    for tile_b, tile_h, tile_q in hl.tile([sequences, heads, max_length], block_size=[1, 1, None]):
        sequence, head = tile_b.begin, tile_h.begin
        begin = offsets[sequence]
        length = offsets[sequence + 1] - begin
        if tile_q.begin < length:
            is_inside = (tile_q.index < length)[:, None]
            queries = hl.load(q, [begin + tile_q.index, head, slice(None)], extra_mask=is_inside)
            acc = hl.zeros([tile_q, head_dim], dtype=torch.float32)
            for tile_k in hl.tile(0, min(length, tile_q.end)):
                rows = begin + tile_k.index
                scores = hl.dot(queries, k[rows, head, :].T) * alpha
                weights = silu(scores) / max_length
                is_past = tile_q.index[:, None] >= tile_k.index[None, :]
                weights = torch.where(is_past, weights, 0.0)
                values = v[rows, head, :]
                acc = hl.dot(weights.to(values.dtype), values, acc=acc)
            hl.store(
                out,
                [begin + tile_q.index, head, slice(None)],
                acc.to(out.dtype),
                extra_mask=is_inside,
            )
    return out


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sequences, longest, heads, d = (16, 512, 32, 128) if device == "cuda" else (5, 60, 2, 32)
    offsets = random_offsets(sequences, longest, device)
    q, k, v = (torch.randn(int(offsets[-1]), heads, d, device=device) for _ in range(3))
    args = (q, k, v, offsets, longest, 1.0 / d**0.5)
    # fp32 products run in tf32 on a GPU, whose mantissa is fp16's.
    report = check_against(
        jagged_hstu_attn_2(*args),
        reference(*args),
        reduction_length=longest,
        intermediate=[torch.float16] * 2,
    )
    print(f"jagged_hstu_attn_2: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
