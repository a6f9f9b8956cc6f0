"""Attention on packed sequences with a sliding window and sinks (the form of gpt-oss).

Sequences lie end to end, `cu_seqlens` holds where each begins. A query sees itself and the
`window - 1` positions before it, and its head's sink: a learned logit that takes part in the
softmax but has no value. The loop over keys runs over the window only.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against

LOG2_E = math.log2(math.e)


@helion.kernel
def varlen_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    sinks: torch.Tensor,
    cu_seqlens: torch.Tensor,
    longest: int,
    window: int,
) -> torch.Tensor:
    """Outputs `[total, head, d]` of queries of that form; keys and values have fewer heads."""
    heads, head_dim = q.size(1), hl.specialize(q.size(2))
    group = heads // k.size(1)
    scale = LOG2_E / math.sqrt(head_dim)
    sequences = cu_seqlens.size(0) - 1
    out = torch.empty_like(q)
    for sequence, head, tile_q in hl.tile([sequences, heads, longest], block_size=[1, 1, None]):
        first = cu_seqlens[sequence.begin]
        length = cu_seqlens[sequence.begin + 1] - first
        if tile_q.begin < length:
            h, kv_head = head.begin, head.begin // group
            is_query = (tile_q.index < length)[:, None]
            query = hl.load(q, [first + tile_q.index, h, slice(None)], extra_mask=is_query)
            # The sink is a key of its own, seen first: its weight is exp2(0).
            peak = hl.zeros([tile_q], dtype=torch.float32) + sinks[h].to(torch.float32) * LOG2_E
            total = hl.full([tile_q], 1.0, dtype=torch.float32)
            acc = hl.zeros([tile_q, head_dim], dtype=torch.float32)
            for tile_k in hl.tile(max(tile_q.begin - window + 1, 0), min(tile_q.end, length)):
                row = first + tile_k.index
                distance = tile_q.index[:, None] - tile_k.index[None, :]
                scores = hl.dot(query, k[row, kv_head, :].T) * scale
                is_seen = (distance >= 0) & (distance < window)
                scores = torch.where(is_seen, scores, float("-inf"))
                new_peak = torch.maximum(peak, scores.amax(-1))
                weights = torch.exp2(scores - new_peak[:, None])
                shrink = torch.exp2(peak - new_peak)
                total = total * shrink + weights.sum(-1)
                values = v[row, kv_head, :]
                acc = hl.dot(weights.to(values.dtype), values, acc=acc * shrink[:, None])
                peak = new_peak
            result = (acc / total[:, None]).to(out.dtype)
            hl.store(out, [first + tile_q.index, h, slice(None)], result, extra_mask=is_query)
    return out


def reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    sinks: torch.Tensor,
    cu_seqlens: torch.Tensor,
    longest: int,
    window: int,
) -> torch.Tensor:
    group = q.size(1) // k.size(1)
    out = torch.empty(q.shape, dtype=torch.double, device=q.device)
    for begin, end in pairwise(cu_seqlens.tolist()):
        query = q[begin:end].double().transpose(0, 1)
        keys, values = (
            x[begin:end].double().transpose(0, 1).repeat_interleave(group, 0) for x in (k, v)
        )
        scores = query @ keys.transpose(1, 2) / math.sqrt(q.size(2))
        place = torch.arange(end - begin, device=q.device)
        distance = place[:, None] - place
        scores = scores.masked_fill((distance < 0) | (distance >= window), float("-inf"))
        sink = sinks.double()[:, None, None].expand(-1, end - begin, 1)
        weights = torch.cat([scores, sink], -1).softmax(-1)[..., :-1]
        out[begin:end] = (weights @ values).transpose(0, 1)
    return out


def random_inputs(
    lengths: list[int], heads: tuple[int, int], d: int, window: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, int, int]:
    """All arguments; ``heads`` of queries and of keys."""
    generator = torch.Generator().manual_seed(0)
    total = sum(lengths)
    q = torch.randn(total, heads[0], d, generator=generator).to(dtype)
    k, v = (torch.randn(total, heads[1], d, generator=generator).to(dtype) for _ in range(2))
    sinks = torch.randn(heads[0], generator=generator).to(dtype)
    cu_seqlens = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
    return q, k, v, sinks, cu_seqlens, max(lengths), window


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    lengths = [1000, 2048, 1, 517] if device == "cuda" else [100, 1, 37]
    *tensors, longest, window = random_inputs(lengths, (8, 2), 64, 128, torch.bfloat16)
    args = (*(x.to(device) for x in tensors), longest, window)
    report = check_against(
        varlen_attention(*args),
        reference(*args),
        reduction_length=window,
        intermediate=torch.bfloat16,
    )
    print(f"varlen_attention: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
