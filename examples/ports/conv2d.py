"""Direct 2-d convolution: for each tap of the filter a product of channels.

A program owns some output channels and some output pixels of one image. The pixels are one flat
axis; for every tap they become flat positions in the input, masked where they lie in the padding.
"""

from __future__ import annotations

import torch
from torch.nn import functional

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against


@helion.kernel
def conv2d(x: torch.Tensor, weight: torch.Tensor, stride: int, padding: int) -> torch.Tensor:
    """Images `[n, c, h, w]` and filters `[o, c, kh, kw]`, stride and padding equal both ways."""
    n, c, h, w = x.size()
    o, _, kh, kw = weight.size()
    kh, kw = hl.specialize(kh), hl.specialize(kw)
    rows = (h + 2 * padding - kh) // stride + 1
    columns = (w + 2 * padding - kw) // stride + 1
    out = torch.empty([n, o, rows, columns], dtype=x.dtype, device=x.device)
    planes, flat_out = x.view(n, c, h * w), out.view(n, o, rows * columns)
    for tile_n, tile_o, tile_p in hl.tile([n, o, rows * columns], block_size=[1, None, None]):
        i = tile_n.begin
        top = tile_p.index // columns * stride - padding
        left = tile_p.index % columns * stride - padding
        acc = hl.zeros([tile_o, tile_p], dtype=torch.float32)
        for tap in range(kh * kw):
            row, column = top + tap // kw, left + tap % kw
            is_inside = (row >= 0) & (row < h) & (column >= 0) & (column < w)
            place = row * w + column
            for tile_c in hl.tile(c):
                pixels = hl.load(planes, [i, tile_c, place], extra_mask=is_inside[None, :])
                acc = hl.dot(weight[tile_o, tile_c, tap // kw, tap % kw], pixels, acc=acc)
        flat_out[i, tile_o, tile_p] = acc.to(out.dtype)
    return out


def reference(x: torch.Tensor, weight: torch.Tensor, stride: int, padding: int) -> torch.Tensor:
    return functional.conv2d(x.double(), weight.double(), stride=stride, padding=padding)


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    n, c, o, side = (16, 128, 128, 56) if device == "cuda" else (2, 20, 24, 15)
    x = torch.randn(n, c, side, side, device=device, dtype=torch.float16)
    weight = torch.randn(o, c, 3, 3, device=device, dtype=torch.float16)
    args = (x, weight, 2, 1)
    report = check_against(conv2d(*args), reference(*args), reduction_length=9 * c)
    print(f"conv2d: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
