"""Elementwise addition of two tensors of any broadcastable shapes and dtypes.

Shows host code around a device loop (broadcasting, promotion, allocation) and an n-D `hl.tile`
whose tuple of tiles indexes a tensor as a whole.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against


@helion.kernel
def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x, y = torch.broadcast_tensors(x, y)
    out = torch.empty(x.shape, dtype=torch.promote_types(x.dtype, y.dtype), device=x.device)
    for tile in hl.tile(out.size()):
        out[tile] = x[tile] + y[tile]
    return out


def reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.double() + y.double()


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.randn(512, 512, device=device)
    y = torch.randn(512, device=device, dtype=torch.bfloat16)
    report = check_against(add(x, y), reference(x, y))
    print(f"add: {report.max_ulp:.2f} ulp")


if __name__ == "__main__":
    main()
