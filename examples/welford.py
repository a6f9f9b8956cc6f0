"""Layer normalisation of rows too long to hold: mean and variance in one pass, chunk by chunk.

Three values are carried through the loop: how many elements were seen, their mean, and the sum of
their squared distances from it. Two such summaries merge exactly (Welford, Chan), without the
cancellation of `mean(x * x) - mean(x)**2`.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against


@helion.kernel
def welford(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5
) -> torch.Tensor:
    m, n = x.size()
    out = torch.empty_like(x)
    wide = torch.promote_types(x.dtype, torch.float32)
    block_n = hl.register_block_size(n)
    for tile_m in hl.tile(m):
        count = hl.zeros([], dtype=wide)
        mean = hl.zeros([tile_m], dtype=wide)
        spread = hl.zeros([tile_m], dtype=wide)
        for tile_n in hl.tile(n, block_size=block_n):
            chunk = x[tile_m, tile_n].to(wide)
            chunk_count = (tile_n.index < n).to(torch.int32).sum().to(wide)
            chunk_mean = chunk.sum(-1) / chunk_count
            centred = chunk - chunk_mean[:, None]
            apart = chunk_mean - mean
            new_count = count + chunk_count
            weight_of_new = chunk_count / new_count
            count, mean, spread = (
                new_count,
                mean + apart * weight_of_new,
                spread + (centred * centred).sum(-1) + apart * apart * count * weight_of_new,
            )
        inverse = torch.rsqrt(spread / n + eps)
        for tile_n in hl.tile(n, block_size=block_n):
            normed = (x[tile_m, tile_n].to(wide) - mean[:, None]) * inverse[:, None]
            out[tile_m, tile_n] = normed * weight[tile_n].to(wide) + bias[tile_n].to(wide)
    return out


def reference(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5
) -> torch.Tensor:
    n = x.size(1)
    return torch.nn.functional.layer_norm(x.double(), [n], weight.double(), bias.double(), eps)


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    m, n = (262_144, 1536) if device == "cuda" else (128, 1500)
    # Far from zero, where the one-pass formula with squares would lose all digits.
    x = torch.randn(m, n, device=device) + 100
    weight, bias = torch.randn(n, device=device), torch.randn(n, device=device)
    # Subtracting the mean leaves the rounding of what was subtracted from.
    report = check_against(
        welford(x, weight, bias), reference(x, weight, bias), reduction_length=100**2 * n
    )
    print(f"welford: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
