"""Flash decoding: the keys of one query are split over programs, a second kernel joins the parts.

With one query for each sequence there are too few programs for a long cache. Every part keeps its
own maximum and sum; `join_parts` scales all parts to the common maximum and adds them up.
"""

from __future__ import annotations

import math

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against

LOG2_E = math.log2(math.e)


@helion.kernel
def attend_parts(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, splits: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Unjoined outputs `[batch, head, split, d]`, and the base-2 log of the sum of each part."""
    batch, heads, head_dim = q.size()
    length, kv_heads = k.size(1), k.size(2)
    head_dim = hl.specialize(head_dim)
    group = hl.specialize(heads // kv_heads)
    scale = LOG2_E / math.sqrt(head_dim)
    share = helion.cdiv(length, splits)
    queries = q.view(batch, kv_heads, group, head_dim)
    parts = torch.empty(
        [batch, kv_heads, group, splits, head_dim], dtype=torch.float32, device=q.device
    )
    sums = torch.empty([batch, kv_heads, group, splits], dtype=torch.float32, device=q.device)
    for i, head, split in hl.grid([batch, kv_heads, splits]):
        query = queries[i, head, :, :]
        peak = hl.full([group], float("-inf"), dtype=torch.float32)
        total = hl.zeros([group], dtype=torch.float32)
        acc = hl.zeros([group, head_dim], dtype=torch.float32)
        for tile_k in hl.tile(split * share, min((split + 1) * share, length)):
            scores = hl.dot(query, k[i, tile_k, head, :].T) * scale
            new_peak = torch.maximum(peak, scores.amax(-1))
            weights = torch.exp2(scores - new_peak[:, None])
            shrink = torch.exp2(peak - new_peak)
            total = total * shrink + weights.sum(-1)
            values = v[i, tile_k, head, :]
            acc = hl.dot(weights.to(values.dtype), values, acc=acc * shrink[:, None])
            peak = new_peak
        # A part without keys has the sum 0, whose logarithm tells `join_parts` to leave it out.
        parts[i, head, :, split, :] = acc / torch.where(total > 0, total, 1.0)[:, None]
        sums[i, head, :, split] = torch.where(total > 0, peak + torch.log2(total), float("-inf"))
    return parts.view(batch, heads, splits, head_dim), sums.view(batch, heads, splits)


@helion.kernel
def join_parts(parts: torch.Tensor, sums: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Attention `[batch, head, d]` from the parts of all splits."""
    batch, heads, _, head_dim = parts.size()
    out = torch.empty([batch, heads, head_dim], dtype=dtype, device=parts.device)
    for tile_b, tile_h, tile_d in hl.tile([batch, heads, head_dim], block_size=[1, 1, None]):
        i, head = tile_b.begin, tile_h.begin
        logs = sums[i, head, :]
        weights = torch.exp2(logs - logs.amax(-1, keepdim=True))
        joined = (parts[i, head, :, tile_d] * weights[:, None]).sum(0)
        out[i, head, tile_d] = (joined / weights.sum(-1)).to(dtype)
    return out


def split_kv_decode(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, splits: int) -> torch.Tensor:
    """One query `[batch, head, d]` for keys and values `[batch, length, kv head, d]`."""
    return join_parts(*attend_parts(q, k, v, splits), q.dtype)


def reference_parts(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, splits: int
) -> tuple[torch.Tensor, torch.Tensor]:
    group, share = q.size(1) // k.size(2), -(-k.size(1) // splits)
    keys, values = (x.double().repeat_interleave(group, 2) for x in (k, v))
    scores = torch.einsum("bhd,bkhd->bhk", q.double(), keys) / math.sqrt(q.size(2))
    parts = torch.zeros(*q.shape[:2], splits, q.size(2), dtype=torch.double, device=q.device)
    sums = torch.full(parts.shape[:3], float("-inf"), dtype=torch.double, device=q.device)
    for split in range(splits):
        own = slice(split * share, (split + 1) * share)
        weights = scores[:, :, own].softmax(-1)
        parts[:, :, split] = torch.einsum("bhk,bkhd->bhd", weights, values[:, own])
        sums[:, :, split] = scores[:, :, own].logsumexp(-1) * LOG2_E
    return parts, sums


def reference_join(parts: torch.Tensor, sums: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    weights = (sums.double() / LOG2_E).softmax(-1)
    return (parts.double() * weights[..., None]).sum(2)


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, splits: int) -> torch.Tensor:
    return reference_join(*reference_parts(q, k, v, 1), q.dtype)


def random_inputs(
    batch: int, length: int, heads: tuple[int, int], d: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries, keys and values; ``heads`` of queries and of keys."""
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(batch, heads[0], d, generator=generator).to(dtype)
    k, v = (torch.randn(batch, length, heads[1], d, generator=generator) for _ in range(2))
    return q, k.to(dtype), v.to(dtype)


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    length = 32768 if device == "cuda" else 300
    inputs = random_inputs(2, length, (32, 8), 128, torch.bfloat16)
    args = (*(x.to(device) for x in inputs), 16)
    report = check_against(
        split_kv_decode(*args),
        reference(*args),
        reduction_length=length,
        intermediate=torch.bfloat16,
    )
    print(f"split_kv_decode: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
