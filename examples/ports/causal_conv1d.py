"""Causal depthwise convolution with bias and SiLU (Mamba's `causal_conv1d`).

Every channel has its own short filter; position `t` sees `t` and the few before it. The filter's
taps are unrolled, and what would lie before the first position is masked.
"""

from __future__ import annotations

import torch
from torch.nn import functional

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against


@helion.kernel
def causal_conv1d(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, activation: str | None
) -> torch.Tensor:
    """Channels `[batch, d, length]` filtered by taps `[d, width]`; activation None or "silu"."""
    batch, d, length = x.size()
    width = hl.specialize(weight.size(1))
    out = torch.empty_like(x)
    for tile_b, tile_d, tile_t in hl.tile([batch, d, length], block_size=[1, None, None]):
        i = tile_b.begin
        acc = hl.zeros([tile_d, tile_t], dtype=torch.float32)
        if bias is not None:
            acc = acc + bias[tile_d].to(torch.float32)[:, None]
        for tap in hl.static_range(width):
            place = tile_t.index + (tap - width + 1)
            values = hl.load(x, [i, tile_d, place], extra_mask=(place >= 0)[None, :])
            acc = acc + values.to(torch.float32) * weight[tile_d, tap].to(torch.float32)[:, None]
        if activation == "silu":
            acc = acc * torch.sigmoid(acc)
        out[i, tile_d, tile_t] = acc.to(out.dtype)
    return out


def reference(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, activation: str | None
) -> torch.Tensor:
    d, width = weight.size()
    padded = functional.pad(x.double(), (width - 1, 0))
    offsets = bias.double() if bias is not None else None
    out = functional.conv1d(padded, weight.double()[:, None], offsets, groups=d)
    return functional.silu(out) if activation == "silu" else out


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    batch, d, length = (8, 4096, 2048) if device == "cuda" else (2, 20, 100)
    x = torch.randn(batch, d, length, device=device, dtype=torch.bfloat16)
    weight = torch.randn(d, 4, device=device, dtype=torch.bfloat16)
    bias = torch.randn(d, device=device, dtype=torch.bfloat16)
    args = (x, weight, bias, "silu")
    report = check_against(causal_conv1d(*args), reference(*args), reduction_length=4)
    print(f"causal_conv1d: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
