"""A packed FP4 matrix times one vector: all the time goes into reading the bytes.

Rows are read once, decoded in registers, scaled by group, multiplied and summed; with one column
there is nothing for matrix units to do.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from examples.nvfp4_gemm import GROUP, dequantise, quantise
from tilesmith.numerics.compare import check_against


@helion.kernel(static_shapes=True)
def nvfp4_gemv(
    w: torch.Tensor, scales: torch.Tensor, scale: float, x: torch.Tensor
) -> torch.Tensor:
    """``w @ x`` of packed `[n, k / 2]` bytes with scales `[n, k / 16]` and a vector of `k`."""
    n, groups = scales.size()
    w_bytes = w.view(n, groups, GROUP // 2)
    pairs = x.view(groups, GROUP // 2, 2)
    out = torch.empty([n], dtype=x.dtype, device=x.device)
    for tile_n in hl.tile(n):
        acc = hl.zeros([tile_n], dtype=torch.float32)
        for tile_g in hl.tile(groups):
            low, high = hl.float4_e2m1fn_x2_to_float32(w_bytes[tile_n, tile_g, :])
            even, odd = hl.split(pairs[tile_g, :, :].to(torch.float32))
            products = low * even[None, :, :] + high * odd[None, :, :]
            of_group = products.sum(-1) * scales[tile_n, tile_g].to(torch.float32)
            acc = acc + of_group.sum(-1)
        out[tile_n] = (acc * scale).to(x.dtype)
    return out


def reference(w: torch.Tensor, scales: torch.Tensor, scale: float, x: torch.Tensor) -> torch.Tensor:
    return dequantise(w, scales) @ x.double() * scale


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    n, k = (4096, 7168) if device == "cuda" else (256, 512)
    w, scales, scale = quantise(torch.randn(n, k, device=device))
    x = torch.randn(k, device=device, dtype=torch.bfloat16)
    args = (w, scales, scale, x)
    report = check_against(nvfp4_gemv(*args), reference(*args), reduction_length=k)
    print(f"nvfp4_gemv: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
