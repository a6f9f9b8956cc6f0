"""A product on a mesh of ranks: rows are split over one axis, the contracted axis over the other.

Rank `(r, c)` holds a block of the left matrix and a slice of the right one. It multiplies them, and
the ranks of a mesh row add up their parts. Position and width in the mesh are compile-time values.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from examples.distributed.matmul_reduce_scatter import multiply_slice
from examples.distributed.ranks import random_buffers
from tilesmith.numerics.compare import check_against


@helion.kernel(static_shapes=True)
def add_mesh_row(
    peers: tuple[torch.Tensor, ...], row: hl.constexpr, width: hl.constexpr, dtype: torch.dtype
) -> torch.Tensor:
    """The sum of the buffers of one row of the mesh; ranks count along rows."""
    out = torch.empty(peers[0].size(), dtype=dtype, device=peers[0].device)
    for tile_m, tile_n in hl.tile(out.size()):
        total = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for column in hl.static_range(width):
            total = total + peers[row * width + column][tile_m, tile_n]
        out[tile_m, tile_n] = total.to(dtype)
    return out


def reference(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x.double() @ w.double()


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    height, width, m, k, n = 2, 2, 96, 128, 80
    x = random_buffers(1, [m, k], torch.bfloat16, device)[0]
    w = random_buffers(1, [k, n], torch.bfloat16, device, seed=1)[0]
    rows, depth = m // height, k // width
    blocks = x.view(height, rows, width, depth)
    slices = w.view(width, depth, n)
    buffers = tuple(
        multiply_slice(blocks[r, :, c], slices[c]) for r in range(height) for c in range(width)
    )
    parts = [add_mesh_row(buffers, r, width, torch.bfloat16) for r in range(height)]
    report = check_against(torch.cat(parts), reference(x, w), reduction_length=k)
    print(f"two_dim_parallel_matmul: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
