"""Sums of a matrix along either dimension.

Both are one torch call on a tile that spans the summed dimension; whether a program holds that span
at once or walks it in chunks is left to the config (`long_sum.py` has the forms written out).
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against


@helion.kernel
def sum_rows(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0)], dtype=x.dtype, device=x.device)
    for tile_m in hl.tile(x.size(0)):
        out[tile_m] = x[tile_m, :].sum(-1)
    return out


@helion.kernel
def sum_columns(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(1)], dtype=x.dtype, device=x.device)
    for tile_n in hl.tile(x.size(1)):
        out[tile_n] = x[:, tile_n].sum(0)
    return out


def reference(x: torch.Tensor) -> torch.Tensor:
    return x.double().sum(-1)


def reference_columns(x: torch.Tensor) -> torch.Tensor:
    return x.double().sum(0)


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.randn(1000, 1003, device=device, dtype=torch.bfloat16)
    for kernel, exact in ((sum_rows, reference(x)), (sum_columns, reference_columns(x))):
        report = check_against(kernel(x), exact, reduction_length=1003)
        print(f"{kernel.name}: {report.max_ulp:.2f} ulp")


if __name__ == "__main__":
    main()
