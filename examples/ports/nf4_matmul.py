"""Product with NF4 weights (QLoRA, bitsandbytes): four bits look up one of sixteen numbers.

Weights `[n, k]` lie as bytes `[n, k / 2]`, the first of two in the high half. The sixteen numbers
are quantiles of a normal distribution; every 64 neighbours of a row share a scale.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against

GROUP = 64
# fmt: off
CODES = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
    -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
    0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)
# fmt: on


@helion.kernel
def nf4_matmul(
    x: torch.Tensor, packed: torch.Tensor, scales: torch.Tensor, codes: torch.Tensor
) -> torch.Tensor:
    """`x` `[m, k]` times the transpose of the weights; scales `[n, k / 64]`."""
    m, k = x.size()
    n, half_k = packed.size()
    assert k == 2 * half_k, "two weights lie in each byte"
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(half_k):
            both = packed[tile_n, tile_k].to(torch.int32)
            high, low = codes[both >> 4], codes[both & 0xF]
            # Neighbours of one byte are of one group.
            scale = scales[tile_n, tile_k.index * 2 // GROUP].to(torch.float32)
            pairs = torch.stack([high * scale, low * scale], dim=-1)
            weights = pairs.reshape(tile_n, tile_k.block_size * 2).to(x.dtype)
            begin = tile_k.begin * 2
            acc = hl.dot(x[tile_m, begin : begin + tile_k.block_size * 2], weights.T, acc=acc)
        out[tile_m, tile_n] = acc.to(x.dtype)
    return out


def quantise(weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Bytes and scales of weights `[n, k]`, k even."""
    n, k = weights.size()
    groups = torch.nn.functional.pad(weights.float(), (0, -k % GROUP)).view(n, -1, GROUP)
    scales = groups.abs().amax(-1).clamp(min=1e-10)
    codes = torch.tensor(CODES, device=weights.device)
    nearest = (groups / scales[..., None]).unsqueeze(-1).sub(codes).abs().argmin(-1)
    nearest = nearest.view(n, -1)[:, :k].to(torch.uint8)
    return nearest[:, 0::2] << 4 | nearest[:, 1::2], scales


def dequantise(packed: torch.Tensor, scales: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
    """The weights that the bytes stand for, in fp64."""
    nibbles = torch.stack([packed >> 4, packed & 0xF], -1).flatten(1)
    spread = scales.double().repeat_interleave(GROUP, 1)[:, : nibbles.size(1)]
    return codes.double()[nibbles.long()] * spread


def reference(
    x: torch.Tensor, packed: torch.Tensor, scales: torch.Tensor, codes: torch.Tensor
) -> torch.Tensor:
    return x.double() @ dequantise(packed, scales, codes).T


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    m, n, k = (16, 4096, 4096) if device == "cuda" else (16, 96, 320)
    x = torch.randn(m, k, device=device, dtype=torch.bfloat16)
    packed, scales = quantise(torch.randn(n, k, device=device))
    args = (x, packed, scales, torch.tensor(CODES, device=device))
    # Weights are rounded to bf16 before the product.
    report = check_against(
        nf4_matmul(*args), reference(*args), reduction_length=k, intermediate=torch.bfloat16
    )
    print(f"nf4_matmul: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
