"""Softmax of the last of three dimensions: a 2-D tile of rows, each row whole."""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against


@helion.kernel
def batch_softmax(x: torch.Tensor) -> torch.Tensor:
    batch, m, _ = x.size()
    out = torch.empty_like(x)
    wide = torch.promote_types(x.dtype, torch.float32)
    for tile_b, tile_m in hl.tile([batch, m]):
        rows = x[tile_b, tile_m, :].to(wide)
        powers = torch.exp(rows - torch.amax(rows, dim=-1, keepdim=True))
        out[tile_b, tile_m, :] = powers / torch.sum(powers, dim=-1, keepdim=True)
    return out


def reference(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x.double(), dim=-1)


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    shape = (16, 512, 1024) if device == "cuda" else (4, 100, 1000)
    x = torch.randn(shape, device=device, dtype=torch.bfloat16)
    report = check_against(batch_softmax(x), reference(x), reduction_length=shape[-1])
    print(f"batch_softmax: {report.max_ulp:.2f} ulp")


if __name__ == "__main__":
    main()
