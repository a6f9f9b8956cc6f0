"""Mixture of experts around the expert products: routing, permuting tokens, joining results.

`route` picks the best experts of each token. `sort_by_expert` gives every choice its place among
those of its expert, in order of tokens and so the same in each run. `permute` copies rows to their
places and `unpermute` adds the weighted results of a token's experts.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against

Two = tuple[torch.Tensor, torch.Tensor]


@helion.kernel
def route(logits: torch.Tensor, top_k: hl.constexpr) -> Two:
    """Weights of each token's experts, summing to one, and their numbers, `[token, top_k]`."""
    tokens = logits.size(0)
    weights = torch.empty([tokens, top_k], dtype=torch.float32, device=logits.device)
    choices = torch.empty([tokens, top_k], dtype=torch.int32, device=logits.device)
    for tile_t in hl.tile(tokens):
        chances = torch.softmax(logits[tile_t, :].to(torch.float32), dim=-1)
        best, chosen = torch.topk(chances, top_k, dim=-1)
        weights[tile_t, :] = best / best.sum(-1, keepdim=True)
        choices[tile_t, :] = chosen.to(torch.int32)
    return weights, choices


@helion.kernel
def sort_by_expert(choices: torch.Tensor, experts: int) -> Two:
    """The place of each choice when choices are sorted by expert, and the tokens of each expert."""
    flat = choices.view(-1)
    places = torch.empty_like(choices)
    counts = torch.empty([experts], dtype=torch.int32, device=choices.device)
    flat_places = places.view(-1)
    for expert in hl.grid(experts):
        # Choices of experts before this one come first.
        begin = hl.zeros([], dtype=torch.int32)
        for tile in hl.tile(flat.size(0)):
            begin = begin + (flat[tile] < expert).to(torch.int32).sum().to(torch.int32)
        place = begin
        for tile in hl.tile(flat.size(0)):
            is_own = flat[tile] == expert
            ranks = torch.cumsum(is_own.to(torch.int32), 0).to(torch.int32)
            hl.store(flat_places, [tile], place + ranks - 1, extra_mask=is_own)
            place = place + is_own.to(torch.int32).sum().to(torch.int32)
        counts[expert] = place - begin
    return places, counts


@helion.kernel
def permute(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Rows of tokens at their places, `[token * top_k, d]`."""
    tokens, d = x.size()
    top_k = hl.specialize(places.size(1))
    out = torch.empty([tokens * top_k, d], dtype=x.dtype, device=x.device)
    for tile_t, tile_d in hl.tile([tokens, d]):
        rows = x[tile_t, tile_d]
        for j in hl.static_range(top_k):
            out[places[tile_t, j], tile_d] = rows
    return out


@helion.kernel
def unpermute(y: torch.Tensor, places: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Weighted sums of the results of each token's experts."""
    tokens, top_k = places.size()
    top_k = hl.specialize(top_k)
    out = torch.empty([tokens, y.size(1)], dtype=y.dtype, device=y.device)
    for tile_t, tile_d in hl.tile([tokens, y.size(1)]):
        acc = hl.zeros([tile_t, tile_d], dtype=torch.float32)
        for j in hl.static_range(top_k):
            acc = acc + y[places[tile_t, j], tile_d].to(torch.float32) * weights[tile_t, j][:, None]
        out[tile_t, tile_d] = acc.to(y.dtype)
    return out


def reference_route(logits: torch.Tensor, top_k: int) -> Two:
    best, chosen = logits.double().softmax(-1).topk(top_k, -1)
    return best / best.sum(-1, keepdim=True), chosen.to(torch.int32)


def reference_sort(choices: torch.Tensor, experts: int) -> Two:
    order = torch.argsort(choices.flatten(), stable=True)
    places = torch.empty_like(order)
    places[order] = torch.arange(order.numel(), device=order.device)
    counts = torch.bincount(choices.flatten(), minlength=experts)
    return places.view(choices.shape).to(torch.int32), counts.to(torch.int32)


def reference_permute(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    out = torch.empty(places.numel(), x.size(1), dtype=torch.double, device=x.device)
    out[places.flatten().long()] = x.double().repeat_interleave(places.size(1), 0)
    return out


def reference_unpermute(
    y: torch.Tensor, places: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    return (y.double()[places.long()] * weights.double()[..., None]).sum(1)


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokens, experts, d, top_k = (4096, 64, 2048, 8) if device == "cuda" else (100, 8, 64, 2)
    logits = torch.randn(tokens, experts, device=device)
    x = torch.randn(tokens, d, device=device, dtype=torch.bfloat16)
    weights, choices = route(logits, top_k)
    places, counts = sort_by_expert(choices, experts)
    rows = permute(x, places)
    assert counts.sum() == rows.size(0)
    # Experts that double their tokens, so the weights must sum to one.
    report = check_against(
        unpermute(rows * 2, places, weights), x.double() * 2, reduction_length=top_k
    )
    print(f"moe_permute: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
