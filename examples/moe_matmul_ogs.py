"""Mixture of experts: each token is multiplied by the matrix of its one expert.

Tokens are sorted by expert on the host; a program takes an expert and a tile of its tokens, gathers
their rows, multiplies, and scatters the results back. Experts without a token are skipped.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against


@helion.kernel(static_shapes=False)
def moe_matmul_ogs(
    x: torch.Tensor,
    weights: torch.Tensor,
    counts: torch.Tensor,
    starts: torch.Tensor,
    order: torch.Tensor,
    most: int,
) -> torch.Tensor:
    """Results `[token, n]` of tokens `[token, k]` and matrices `[expert, k, n]`.

    Args:
        x: the tokens.
        weights: a matrix for each expert.
        counts: how many tokens each expert has.
        starts: where its tokens begin in ``order``.
        order: token numbers sorted by expert.
        most: the largest count.
    """
    tokens, k = x.size()
    experts, _, n = weights.size()
    out = torch.zeros([tokens, n], dtype=x.dtype, device=x.device)
    for expert in hl.grid(experts):
        first, count = starts[expert], counts[expert]
        if count > 0:
            for tile_t, tile_n in hl.tile([most, n]):
                is_token = tile_t.index < count
                position = torch.where(is_token, first + tile_t.index, first)
                token = order[position]
                acc = hl.zeros([tile_t, tile_n], dtype=torch.float32)
                for tile_k in hl.tile(k):
                    acc = torch.addmm(acc, x[token, tile_k], weights[expert, tile_k, tile_n])
                rows, columns = acc.size()
                # Lanes past the last token hold the first one again: it keeps what it has.
                is_own = is_token[:, None].expand(rows, columns)
                hl.store(out, [token, tile_n], acc.to(x.dtype), extra_mask=is_own)
    return out


def route(choices: torch.Tensor, experts: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Tokens of each expert: counts, starts and the order that sorts tokens by expert."""
    order = torch.argsort(choices, stable=True).to(torch.int32)
    counts = torch.bincount(choices, minlength=experts).to(torch.int32)
    return counts, (counts.cumsum(0) - counts).to(torch.int32), order


def reference(
    x: torch.Tensor,
    weights: torch.Tensor,
    counts: torch.Tensor,
    starts: torch.Tensor,
    order: torch.Tensor,
    most: int,
) -> torch.Tensor:
    out = torch.zeros(x.size(0), weights.size(2), dtype=torch.double, device=x.device)
    for expert, (begin, count) in enumerate(zip(starts.tolist(), counts.tolist())):
        own = order[begin : begin + count].long()
        out[own] = x[own].double() @ weights[expert].double()
    return out


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokens, k, n, experts = (1000, 500, 200, 30) if device == "cuda" else (200, 96, 80, 7)
    choices = torch.randint(experts, [tokens], device=device)
    counts, starts, order = route(choices, experts)
    x = torch.randn(tokens, k, device=device, dtype=torch.float16)
    weights = torch.randn(experts, k, n, device=device, dtype=torch.float16)
    args = (x, weights, counts, starts, order, int(counts.max()))
    report = check_against(moe_matmul_ogs(*args), reference(*args), reduction_length=k)
    print(f"moe_matmul_ogs: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
