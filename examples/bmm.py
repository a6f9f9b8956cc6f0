"""Batched matrix product: three-dimensional tiles and `torch.baddbmm`."""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against


@helion.kernel(static_shapes=True)
def bmm(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    b, m, k = x.size()
    b2, k2, n = y.size()
    assert (b, k) == (b2, k2), "batch and inner sizes must agree"
    out = torch.empty([b, m, n], dtype=torch.promote_types(x.dtype, y.dtype), device=x.device)
    for tile_b, tile_m, tile_n in hl.tile([b, m, n]):
        acc = hl.zeros([tile_b, tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.baddbmm(acc, x[tile_b, tile_m, tile_k], y[tile_b, tile_k, tile_n])
        out[tile_b, tile_m, tile_n] = acc
    return out


def reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.bmm(x.double(), y.double())


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    b, m, n, k = 8, 128, 192, 256
    x = torch.randn(b, m, k, device=device, dtype=torch.float16)
    y = torch.randn(b, k, n, device=device, dtype=torch.float16)
    report = check_against(bmm(x, y), reference(x, y), reduction_length=k)
    print(f"bmm: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
