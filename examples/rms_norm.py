"""RMS normalisation of rows, returning also the inverse root mean square the backward needs."""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against


@helion.kernel
def rms_norm(
    x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-5
) -> tuple[torch.Tensor, torch.Tensor]:
    m, n = x.size()
    assert weight.size(0) == n, "one weight per column"
    out = torch.empty_like(x)
    inverse_rms = torch.empty([m, 1], dtype=torch.float32, device=x.device)
    for tile_m in hl.tile(m):
        row = x[tile_m, :].to(torch.float32)
        inverse = torch.rsqrt(torch.mean(row * row, dim=-1, keepdim=True) + eps)
        out[tile_m, :] = (row * inverse * weight[:].to(torch.float32)).to(out.dtype)
        inverse_rms[tile_m, :] = inverse
    return out, inverse_rms


def reference(
    x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-5
) -> tuple[torch.Tensor, torch.Tensor]:
    x = x.double()
    inverse = torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)
    return x * inverse * weight.double(), inverse


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.randn(256, 4096, device=device, dtype=torch.bfloat16)
    weight = torch.randn(4096, device=device, dtype=torch.bfloat16)
    out, inverse = rms_norm(x, weight)
    exact_out, exact_inverse = reference(x, weight)
    report = check_against(out, exact_out, reduction_length=x.size(1))
    check_against(inverse, exact_inverse, reduction_length=x.size(1))
    print(f"rms_norm: {report.max_ulp:.2f} ulp")


if __name__ == "__main__":
    main()
