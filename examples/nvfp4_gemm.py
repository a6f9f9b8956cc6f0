"""FP4 times FP4 with a scale for every 16 elements: block-scaled products from packed bytes.

Two e2m1 numbers share a byte; every 16 along the contracted axis share an e4m3 scale, and each
matrix has one fp32 scale. Bytes are decoded and scaled in registers, tile by tile; the product runs
in bf16, which holds every scaled number exactly: two significant bits times four fit into eight.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against

GROUP = 16
FP4_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


@helion.kernel(static_shapes=True)
def nvfp4_gemm(
    x: torch.Tensor,
    w: torch.Tensor,
    x_scales: torch.Tensor,
    w_scales: torch.Tensor,
    x_scale: float,
    w_scale: float,
) -> torch.Tensor:
    """``x @ w.T`` of packed `[m, k / 2]` and `[n, k / 2]` bytes, scales `[m, k / 16]` and so on."""
    m, n, groups = x.size(0), w.size(0), x_scales.size(1)
    out = torch.empty([m, n], dtype=torch.bfloat16, device=x.device)
    x_bytes, w_bytes = x.view(m, groups, GROUP // 2), w.view(n, groups, GROUP // 2)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_g in hl.tile(groups):
            left = decode(x_bytes[tile_m, tile_g, :], x_scales[tile_m, tile_g])
            right = decode(w_bytes[tile_n, tile_g, :], w_scales[tile_n, tile_g])
            size = tile_g.block_size * GROUP
            left, right = left.reshape(tile_m, size), right.reshape(tile_n, size)
            acc = hl.dot(left, right.T, acc=acc)
        out[tile_m, tile_n] = (acc * (x_scale * w_scale)).to(torch.bfloat16)
    return out


def decode(packed: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Groups of bytes `[rows, groups, 8]` and their scales as bf16 `[rows, groups, 8, 2]`."""
    low, high = hl.float4_e2m1fn_x2_to_float32(packed)
    scale = scales.to(torch.float32)[:, :, None]
    return hl.join(low * scale, high * scale).to(torch.bfloat16)


def quantise(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Rows as packed fp4, e4m3 scales of groups, and one fp32 scale."""
    whole = float(x.abs().amax().clamp(min=1e-6)) / (6.0 * 448.0)
    groups = x.float().view(x.size(0), -1, GROUP)
    scales = (groups.abs().amax(-1) / (6.0 * whole)).to(torch.float8_e4m3fn)
    values = groups / (scales.float()[..., None] * whole).clamp(min=1e-12)
    table = torch.tensor(FP4_VALUES, device=x.device)
    codes = (values.abs()[..., None] - table).abs().argmin(-1) + 8 * (values < 0)
    flat = codes.view(x.size(0), -1)
    return (flat[:, 0::2] | (flat[:, 1::2] << 4)).to(torch.uint8), scales, whole


def dequantise(packed: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """The numbers that packed bytes and group scales stand for, in fp64."""
    codes = torch.stack([packed & 15, packed >> 4], -1).flatten(1).long()
    table = torch.tensor(FP4_VALUES, dtype=torch.double, device=packed.device)
    signs = 1.0 - 2.0 * (codes >= 8).double()
    return table[codes & 7] * signs * scales.double().repeat_interleave(GROUP, 1)


def reference(
    x: torch.Tensor,
    w: torch.Tensor,
    x_scales: torch.Tensor,
    w_scales: torch.Tensor,
    x_scale: float,
    w_scale: float,
) -> torch.Tensor:
    product = dequantise(x, x_scales) @ dequantise(w, w_scales).T
    return product * (x_scale * w_scale)


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    m, n, k = (512, 1024, 2048) if device == "cuda" else (48, 64, 256)
    x, x_scales, x_scale = quantise(torch.randn(m, k, device=device))
    w, w_scales, w_scale = quantise(torch.randn(n, k, device=device))
    args = (x, w, x_scales, w_scales, x_scale, w_scale)
    report = check_against(nvfp4_gemm(*args), reference(*args), reduction_length=k)
    print(f"nvfp4_gemm: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
