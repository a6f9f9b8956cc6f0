"""Product of two fp8 matrices with one scale for each, accumulated in fp32 by `hl.dot(acc=)`."""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against

FP8 = torch.float8_e4m3fn


@helion.kernel(static_shapes=True)
def fp8_gemm(
    x: torch.Tensor, y: torch.Tensor, scale_x: torch.Tensor, scale_y: torch.Tensor
) -> torch.Tensor:
    m, k = x.size()
    k2, n = y.size()
    assert k == k2, f"cannot multiply [{m}, {k}] by [{k2}, {n}]"
    out = torch.empty([m, n], dtype=torch.float16, device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = hl.dot(x[tile_m, tile_k], y[tile_k, tile_n], acc=acc)
        scale = hl.load(scale_x, []) * hl.load(scale_y, [])
        out[tile_m, tile_n] = (acc * scale).to(torch.float16)
    return out


def quantise(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A tensor as fp8 and the scale that brings it back."""
    scale = x.abs().amax().float().clamp(min=1e-12) / torch.finfo(FP8).max
    return (x.float() / scale).to(FP8), scale


def reference(
    x: torch.Tensor, y: torch.Tensor, scale_x: torch.Tensor, scale_y: torch.Tensor
) -> torch.Tensor:
    return (x.double() @ y.double()) * (scale_x * scale_y).double()


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    m, n, k = (1024, 1024, 1024) if device == "cuda" else (128, 144, 256)
    x, scale_x = quantise(torch.randn(m, k, device=device))
    y, scale_y = quantise(torch.randn(n, k, device=device))
    args = (x, y.t(), scale_x, scale_y)
    # Hopper's fp8 tensor cores keep about 14 bits of a partial sum.
    report = check_against(
        fp8_gemm(*args), reference(*args), reduction_length=k, intermediate=torch.float16
    )
    print(f"fp8_gemm: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
