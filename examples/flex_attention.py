"""Attention with the user's own score and mask functions, over the blocks a block mask lists.

`score_mod(score, batch, head, query, key)` changes scores, `mask_mod(batch, head, query, key)` says
which keys a query sees; both are traced into the kernel. A `BlockMask` lists for each block of
queries the blocks of keys that hold anything visible, so the loop over keys skips the rest: its
bounds come from memory. Key and value heads may be shared by several query heads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against

LOG2_E = math.log2(math.e)
ScoreMod = Callable[[Any, Any, Any, Any, Any], Any]
MaskMod = Callable[[Any, Any, Any, Any], Any]


class BlockMask(NamedTuple):
    """For each head and block of queries: how many blocks of keys it sees, and which."""

    counts: torch.Tensor
    blocks: torch.Tensor
    query_block: int
    key_block: int


def no_change(score: Any, batch: Any, head: Any, query: Any, key: Any) -> Any:
    return score


def causal(batch: Any, head: Any, query: Any, key: Any) -> Any:
    return query >= key


def sliding_window(width: int) -> MaskMod:
    """A query sees itself and the keys up to ``width`` before it."""
    return lambda batch, head, query, key: (query >= key) & (query - key <= width)


def alibi(slopes: torch.Tensor) -> ScoreMod:
    """A penalty for distance, with one slope for each head."""
    return lambda score, batch, head, query, key: score - slopes[head] * (query - key).abs()


def make_block_mask(
    mask_mod: MaskMod, heads: tuple[int, int], sizes: tuple[int, int], block: int, device: str
) -> BlockMask:
    """The blocks in which ``mask_mod`` leaves anything visible."""
    (batch, head), (m, n) = heads, sizes
    visible = _visible(mask_mod, heads, sizes, device)
    rows, columns = helion.cdiv(m, block), helion.cdiv(n, block)
    padded = torch.zeros(batch * head, rows * block, columns * block, dtype=torch.bool)
    padded[:, :m, :n] = visible.flatten(0, 1).cpu()
    any_visible = padded.view(-1, rows, block, columns, block).any(4).any(2)
    # Blocks in use first, in ascending order.
    order = torch.argsort(any_visible.to(torch.int8), dim=-1, descending=True, stable=True)
    counts = any_visible.sum(-1).to(torch.int32)
    return BlockMask(counts.to(device), order.to(torch.int32).to(device), block, block)


def _visible(
    mask_mod: MaskMod, heads: tuple[int, int], sizes: tuple[int, int], device: str
) -> torch.Tensor:
    batch, head, query, key = torch.meshgrid(
        *(torch.arange(size, device=device) for size in (*heads, *sizes)), indexing="ij"
    )
    return mask_mod(batch, head, query, key)


@helion.kernel(static_shapes=True)
def flex_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    block_mask: BlockMask,
    score_mod: ScoreMod,
    mask_mod: MaskMod,
) -> tuple[torch.Tensor, torch.Tensor]:
    batch_size, num_heads, m, d = q.size()
    kv_heads, n = k.size(1), k.size(2)
    head_dim = hl.specialize(d)
    group = num_heads // kv_heads
    query_block = hl.specialize(block_mask.query_block)
    key_block = hl.specialize(block_mask.key_block)
    out = torch.empty_like(q)
    lse = torch.empty([batch_size, num_heads, m], dtype=torch.float32, device=q.device)
    scale = 1.0 / math.sqrt(head_dim)
    is_whole = hl.specialize(n % key_block) == 0
    for tile_b, tile_h, tile_m in hl.tile(
        [batch_size, num_heads, m], block_size=[1, 1, query_block]
    ):
        batch, head = tile_b.begin, tile_h.begin
        kv_head = head // group
        row = batch * num_heads + head
        peak = hl.full([tile_m], float("-inf"), dtype=torch.float32)
        total = hl.zeros([tile_m], dtype=torch.float32)
        acc = hl.zeros([tile_m, head_dim], dtype=torch.float32)
        queries = q[batch, head, tile_m, :]
        count = block_mask.counts[row, tile_m.id]
        for i in hl.grid(count):
            first = block_mask.blocks[row, tile_m.id, i] * key_block
            end = first + key_block
            for tile_n in hl.tile(first, end if is_whole else min(end, n)):
                scores = hl.dot(queries, k[batch, kv_head, tile_n, :].T) * scale
                where = (tile_m.index[:, None], tile_n.index[None, :])
                scores = score_mod(scores, batch, head, *where)
                visible = mask_mod(batch, head, *where)
                scores = torch.where(visible, scores * LOG2_E, float("-inf"))
                new_peak = torch.maximum(peak, scores.amax(-1))
                # A query that has seen nothing yet must not compute inf - inf.
                anchor = torch.where(new_peak == float("-inf"), 0.0, new_peak)
                weights = torch.exp2(scores - anchor[:, None])
                shrink = torch.exp2(peak - anchor)
                total = total * shrink + weights.sum(-1)
                values = v[batch, kv_head, tile_n, :]
                acc = hl.dot(weights.to(values.dtype), values, acc=acc * shrink[:, None])
                peak = new_peak
        # A query that sees nothing gives zero.
        out[batch, head, tile_m, :] = acc / torch.where(total == 0.0, 1.0, total)[:, None]
        lse[batch, head, tile_m] = (peak + torch.log2(total)) / LOG2_E
    return out, lse


def reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    block_mask: BlockMask,
    score_mod: ScoreMod,
    mask_mod: MaskMod,
) -> tuple[torch.Tensor, torch.Tensor]:
    group = q.size(1) // k.size(1)
    keys, values = (x.double().repeat_interleave(group, 1) for x in (k, v))
    scores = q.double() @ keys.transpose(-1, -2) / math.sqrt(q.size(-1))
    sizes = (*q.shape[:2], q.size(2), k.size(2))
    where = torch.meshgrid(*(torch.arange(s, device=q.device) for s in sizes), indexing="ij")
    scores = score_mod(scores, *where).masked_fill(~mask_mod(*where), float("-inf"))
    weights = torch.softmax(scores, -1).nan_to_num(0.0)
    return weights @ values, torch.logsumexp(scores, -1)


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    batch, heads, kv_heads, m, head_dim = (2, 32, 8, 1024, 64) if device == "cuda" else (
        2, 4, 2, 150, 32
    )  # fmt: skip
    q = torch.randn(batch, heads, m, head_dim, device=device, dtype=torch.bfloat16)
    k, v = (
        torch.randn(batch, kv_heads, m, head_dim, device=device, dtype=torch.bfloat16)
        for _ in range(2)
    )
    slopes = torch.exp2(-torch.arange(heads, device=device, dtype=torch.float32))
    errors: list[str] = []
    for name, score_mod, mask_mod in (
        ("causal", no_change, causal),
        ("window and alibi", alibi(slopes), sliding_window(40)),
    ):
        mask = make_block_mask(mask_mod, (batch, heads), (m, m), 64, device)
        args = (q, k, v, mask, score_mod, mask_mod)
        (out, lse), (exact, exact_lse) = flex_attention(*args), reference(*args)
        report = check_against(out, exact, reduction_length=m, intermediate=v.dtype)
        check_against(lse, exact_lse, reduction_length=head_dim, intermediate=torch.float16)
        errors.append(f"{name} {report.relative_norm:.1e}")
    print(f"flex_attention: relative error {', '.join(errors)}")


if __name__ == "__main__":
    main()
