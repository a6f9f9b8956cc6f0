"""Decode attention over a paged cache (vLLM's layout), one new token for each sequence.

Keys and values lie in pages of fixed size, and a table names the pages of each sequence. A program
takes one sequence and one head of keys, with all the query heads that share it, and walks the
sequence: positions become rows of the cache through the table.
"""

from __future__ import annotations

import math

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against

LOG2_E = math.log2(math.e)


@helion.kernel
def paged_decode(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    pages: torch.Tensor,
    lengths: torch.Tensor,
) -> torch.Tensor:
    """Outputs `[sequence, head, d]` of queries of that form.

    Args:
        q: one query for each sequence and head.
        k_cache: keys `[page, slot, kv head, d]`.
        v_cache: values, like the keys.
        pages: the pages of each sequence in order, `[sequence, place]`.
        lengths: how many positions each sequence has.
    """
    sequences, heads, head_dim = q.size()
    _, page_size, kv_heads, _ = k_cache.size()
    head_dim, page_size = hl.specialize(head_dim), hl.specialize(page_size)
    group = hl.specialize(heads // kv_heads)
    scale = LOG2_E / math.sqrt(head_dim)
    out = torch.empty_like(q)
    queries = q.view(sequences, kv_heads, group, head_dim)
    results = out.view(sequences, kv_heads, group, head_dim)
    k_rows, v_rows = k_cache.flatten(0, 1), v_cache.flatten(0, 1)
    for sequence, head in hl.grid([sequences, kv_heads]):
        query = queries[sequence, head, :, :]
        peak = hl.full([group], float("-inf"), dtype=torch.float32)
        total = hl.zeros([group], dtype=torch.float32)
        acc = hl.zeros([group, head_dim], dtype=torch.float32)
        for tile_k in hl.tile(lengths[sequence]):
            page = pages[sequence, tile_k.index // page_size]
            row = page * page_size + tile_k.index % page_size
            scores = hl.dot(query, k_rows[row, head, :].T) * scale
            new_peak = torch.maximum(peak, scores.amax(-1))
            weights = torch.exp2(scores - new_peak[:, None])
            shrink = torch.exp2(peak - new_peak)
            total = total * shrink + weights.sum(-1)
            values = v_rows[row, head, :]
            acc = hl.dot(weights.to(values.dtype), values, acc=acc * shrink[:, None])
            peak = new_peak
        results[sequence, head, :, :] = (acc / total[:, None]).to(out.dtype)
    return out


def reference(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    pages: torch.Tensor,
    lengths: torch.Tensor,
) -> torch.Tensor:
    outs: list[torch.Tensor] = []
    group = q.size(1) // k_cache.size(2)
    for sequence, length in enumerate(lengths.tolist()):
        own = pages[sequence].long()
        keys, values = (
            cache[own].flatten(0, 1)[:length].double().repeat_interleave(group, 1)
            for cache in (k_cache, v_cache)
        )
        scores = torch.einsum("hd,khd->hk", q[sequence].double(), keys) / math.sqrt(q.size(2))
        outs.append(torch.einsum("hk,khd->hd", scores.softmax(-1), values))
    return torch.stack(outs)


def random_inputs(
    lengths: list[int], heads: tuple[int, int], page_size: int, d: int, dtype: torch.dtype
) -> tuple[torch.Tensor, ...]:
    """Queries, caches with shuffled pages, the table and lengths; ``heads`` of queries and keys."""
    generator = torch.Generator().manual_seed(0)
    places = max(-(-length // page_size) for length in lengths)
    total = places * len(lengths) + 3
    q = torch.randn(len(lengths), heads[0], d, generator=generator).to(dtype)
    caches = (
        torch.randn(total, page_size, heads[1], d, generator=generator).to(dtype) for _ in range(2)
    )
    pages = torch.randperm(total, generator=generator)[: places * len(lengths)]
    pages = pages.view(len(lengths), places).to(torch.int32)
    return q, *caches, pages, torch.tensor(lengths, dtype=torch.int32)


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    lengths = [4096, 17, 1000, 1] * 16 if device == "cuda" else [70, 17, 1]
    inputs = random_inputs(lengths, (32, 8), 16, 128, torch.bfloat16)
    args = tuple(x.to(device) for x in inputs)
    report = check_against(
        paged_decode(*args),
        reference(*args),
        reduction_length=max(lengths),
        intermediate=torch.bfloat16,
    )
    print(f"paged_decode: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
