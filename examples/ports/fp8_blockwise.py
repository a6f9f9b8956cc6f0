"""fp8 with a scale for each block (DeepSeek-V3): quantising activations, and the product.

Activations have one scale for 128 neighbours of a row, weights one for a square of 128 by 128. The
scales change along the contracted axis, so each block's product is scaled before it is added.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against

FP8 = torch.float8_e4m3fn
FP8_MAX = torch.finfo(FP8).max
BLOCK = 128


@helion.kernel
def quantise_groups(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows `[m, k]` as fp8, and the scales `[m, groups]` that bring them back."""
    m, k = x.size()
    groups = helion.cdiv(k, BLOCK)
    out = torch.empty([m, k], dtype=FP8, device=x.device)
    scales = torch.empty([m, groups], dtype=torch.float32, device=x.device)
    for tile_m, tile_k in hl.tile([m, k], block_size=[None, BLOCK]):
        values = x[tile_m, tile_k].to(torch.float32)
        scale = torch.clamp(values.abs().amax(-1), min=1e-10) / FP8_MAX
        out[tile_m, tile_k] = (values / scale[:, None]).to(FP8)
        scales[tile_m, tile_k.id] = scale
    return out, scales


@helion.kernel
def fp8_blockwise(
    x: torch.Tensor, w: torch.Tensor, x_scales: torch.Tensor, w_scales: torch.Tensor
) -> torch.Tensor:
    """`x` `[m, k]` times the transpose of `w` `[n, k]`, in bf16."""
    m, k = x.size()
    n = w.size(0)
    out = torch.empty([m, n], dtype=torch.bfloat16, device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k, block_size=BLOCK):
            product = hl.dot(x[tile_m, tile_k], w[tile_n, tile_k].T)
            rows = x_scales[tile_m, tile_k.id]
            columns = w_scales[tile_n.index // BLOCK, tile_k.id]
            acc = acc + product * rows[:, None] * columns[None, :]
        out[tile_m, tile_n] = acc.to(torch.bfloat16)
    return out


def quantise_squares(w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights as fp8 and a scale for each square, as a checkpoint has them."""
    n, k = w.size()
    padded = torch.nn.functional.pad(w.float(), (0, -k % BLOCK, 0, -n % BLOCK))
    squares = padded.view(padded.size(0) // BLOCK, BLOCK, padded.size(1) // BLOCK, BLOCK)
    scales = squares.abs().amax((1, 3)).clamp(min=1e-10) / FP8_MAX
    scaled = (squares / scales[:, None, :, None]).view(padded.shape)
    return scaled[:n, :k].to(FP8).contiguous(), scales


def expand_scales(scales: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """The scale of each element; ``rows`` and ``columns`` are how many share one."""
    return scales.double().repeat_interleave(rows, 0).repeat_interleave(columns, 1)


def reference(
    x: torch.Tensor, w: torch.Tensor, x_scales: torch.Tensor, w_scales: torch.Tensor
) -> torch.Tensor:
    (_, k), n = x.size(), w.size(0)
    left = x.double() * expand_scales(x_scales, 1, BLOCK)[:, :k]
    right = w.double() * expand_scales(w_scales, BLOCK, BLOCK)[:n, :k]
    return left @ right.T


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    m, n, k = (1024, 2048, 7168) if device == "cuda" else (33, 160, 300)
    activations = torch.randn(m, k, device=device, dtype=torch.bfloat16)
    x, x_scales = quantise_groups(activations)
    w, w_scales = quantise_squares(torch.randn(n, k, device=device))
    # fp8 keeps three bits behind the leading one.
    found = x.double() * expand_scales(x_scales, 1, BLOCK)[:, :k]
    rounding = ((found - activations.double()).norm() / activations.double().norm()).item()
    assert rounding < 2**-4
    args = (x, w, x_scales, w_scales)
    # Hopper's fp8 tensor cores keep about 14 bits of a partial sum.
    report = check_against(
        fp8_blockwise(*args), reference(*args), reduction_length=k, intermediate=torch.float16
    )
    print(f"fp8_blockwise: relative error {report.relative_norm:.1e}, of rounding {rounding:.1e}")


if __name__ == "__main__":
    main()
