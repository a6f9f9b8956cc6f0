"""Product of two fp8 matrices with a scale for each row of the left and each column of the right.

Scales of rows and columns are constant along the contracted axis, so they wait until it is summed.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against

FP8 = torch.float8_e4m3fn


@helion.kernel(static_shapes=True)
def fp8_matmul(
    x: torch.Tensor, w: torch.Tensor, x_scale: torch.Tensor, w_scale: torch.Tensor
) -> torch.Tensor:
    m, k = x.size()
    n = w.size(1)
    assert k == w.size(0), "inner sizes must agree"
    out = torch.empty([m, n], dtype=torch.bfloat16, device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = hl.dot(x[tile_m, tile_k], w[tile_k, tile_n], acc=acc)
        scaled = acc * x_scale[tile_m][:, None] * w_scale[tile_n][None, :]
        out[tile_m, tile_n] = scaled.to(torch.bfloat16)
    return out


def quantise_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows as fp8 and the scale of each that brings it back."""
    scale = x.abs().amax(1).float().clamp(min=1e-12) / torch.finfo(FP8).max
    return (x.float() / scale[:, None]).to(FP8), scale


def reference(
    x: torch.Tensor, w: torch.Tensor, x_scale: torch.Tensor, w_scale: torch.Tensor
) -> torch.Tensor:
    return (x.double() @ w.double()) * x_scale.double()[:, None] * w_scale.double()


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    m, n, k = (64, 2048, 2048) if device == "cuda" else (64, 160, 192)
    x, x_scale = quantise_rows(torch.randn(m, k, device=device))
    w, w_scale = quantise_rows(torch.randn(n, k, device=device))
    args = (x, w.t(), x_scale, w_scale)
    # Hopper's fp8 tensor cores keep about 14 bits of a partial sum.
    report = check_against(
        fp8_matmul(*args), reference(*args), reduction_length=k, intermediate=torch.float16
    )
    print(f"fp8_matmul: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
