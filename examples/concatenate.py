"""Two matrices side by side, written in two ways.

`concatenate_rows` stores each into its own slice of the columns; `concatenate` tiles the output and
lets a mask say from which matrix a lane reads, so that its tiles may be of any width.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against


@helion.kernel
def concatenate(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    assert x.size(0) == y.size(0), "as many rows in both"
    dtype = torch.promote_types(x.dtype, y.dtype)
    border = x.size(1)
    out = torch.empty([x.size(0), border + y.size(1)], dtype=dtype, device=x.device)
    for tile_m, tile_n in hl.tile(out.size()):
        is_left = (tile_n.index < border)[None, :]
        left = hl.load(x, [tile_m, tile_n], extra_mask=is_left)
        right = hl.load(y, [tile_m, tile_n.index - border], extra_mask=~is_left)
        out[tile_m, tile_n] = torch.where(is_left, left, right)
    return out


@helion.kernel
def concatenate_rows(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    assert x.size(0) == y.size(0), "as many rows in both"
    dtype = torch.promote_types(x.dtype, y.dtype)
    border, rest = hl.specialize((x.size(1), y.size(1)))
    out = torch.empty([x.size(0), border + rest], dtype=dtype, device=x.device)
    for tile_m in hl.tile(out.size(0)):
        out[tile_m, :border] = x[tile_m, :]
        out[tile_m, border:] = y[tile_m, :]
    return out


def reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.cat([x.double(), y.double()], dim=1)


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.randn(1500, 400, device=device)
    y = torch.randn(1500, 600, device=device)
    for kernel in (concatenate, concatenate_rows):
        report = check_against(kernel(x, y), reference(x, y))
        assert report.max_abs == 0
        print(f"{kernel.name}: exact")


if __name__ == "__main__":
    main()
