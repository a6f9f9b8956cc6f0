"""`F.grid_sample`, bilinear with zeros outside: images read at points that are not on their grid.

Points come as `(x, y)` from -1 to 1. Each output pixel reads the four pixels around its point;
positions are flat indices into a plane, and pixels outside are masked.
"""

from __future__ import annotations

import torch
from torch.nn import functional

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against


@helion.kernel
def grid_sample(image: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
    """Images `[n, c, h, w]` at the points `[n, rows, columns, 2]`, corners not aligned."""
    n, c, h, w = image.size()
    _, rows, columns, _ = grid.size()
    out = torch.empty([n, c, rows, columns], dtype=image.dtype, device=image.device)
    planes, points = image.view(n, c, h * w), grid.view(n, rows * columns, 2)
    flat_out = out.view(n, c, rows * columns)
    for tile_n, tile_c, tile_p in hl.tile([n, c, rows * columns], block_size=[1, None, None]):
        i = tile_n.begin
        x = ((points[i, tile_p, 0].to(torch.float32) + 1) * w - 1) * 0.5
        y = ((points[i, tile_p, 1].to(torch.float32) + 1) * h - 1) * 0.5
        left, top = torch.floor(x), torch.floor(y)
        acc = hl.zeros([tile_c, tile_p], dtype=torch.float32)
        for down in hl.static_range(2):
            for right in hl.static_range(2):
                column, row = left + right, top + down
                weight = (1 - (x - column).abs()) * (1 - (y - row).abs())
                is_inside = (column >= 0) & (column < w) & (row >= 0) & (row < h)
                place = row.to(torch.int32) * w + column.to(torch.int32)
                pixels = hl.load(planes, [i, tile_c, place], extra_mask=is_inside[None, :])
                acc = acc + pixels.to(torch.float32) * weight[None, :]
        flat_out[i, tile_c, tile_p] = acc.to(out.dtype)
    return out


def reference(image: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
    return functional.grid_sample(image.double(), grid.double(), align_corners=False)


def random_inputs(
    image: tuple[int, int, int, int], points: tuple[int, int], dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """An image of that shape and points, some of them outside."""
    generator = torch.Generator().manual_seed(0)
    grid = torch.rand(image[0], *points, 2, generator=generator) * 2.4 - 1.2
    return torch.randn(*image, generator=generator).to(dtype), grid


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    image, points = (
        ((8, 64, 256, 256), (256, 256)) if device == "cuda" else ((2, 5, 20, 30), (9, 8))
    )
    args = tuple(x.to(device) for x in random_inputs(image, points, torch.float32))
    # A point is a position of up to `w` with fp32's rounding; weights cancel near whole positions.
    report = check_against(grid_sample(*args), reference(*args), reduction_length=4 * image[3])
    print(f"grid_sample: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
