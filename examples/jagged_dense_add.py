"""A ragged matrix plus a dense one: row `i` has `offsets[i + 1] - offsets[i]` elements of its own.

The loop over columns is split where the longest row of the tile ends: before it the ragged elements
are added under a mask, behind it the dense ones are copied.
"""

from __future__ import annotations

from itertools import pairwise

import torch

import tilesmith as helion
import tilesmith.language as hl
from examples.jagged_sum import random_offsets
from tilesmith.numerics.compare import check_against


@helion.kernel
def jagged_dense_add(
    values: torch.Tensor, offsets: torch.Tensor, dense: torch.Tensor
) -> torch.Tensor:
    rows, columns = dense.size()
    assert offsets.size(0) == rows + 1, "one row of each"
    out = torch.empty_like(dense)
    for tile_r in hl.tile(rows):
        starts = offsets[tile_r]
        lengths = offsets[tile_r.index + 1] - starts
        longest = lengths.amax()
        for tile_c in hl.tile(0, longest):
            own = hl.load(
                values,
                [starts[:, None] + tile_c.index[None, :]],
                extra_mask=tile_c.index[None, :] < lengths[:, None],
            )
            out[tile_r, tile_c] = dense[tile_r, tile_c] + own
        for tile_c in hl.tile(longest, columns):
            out[tile_r, tile_c] = dense[tile_r, tile_c]
    return out


def reference(values: torch.Tensor, offsets: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
    out = dense.double()
    for row, (begin, end) in enumerate(pairwise(offsets.tolist())):
        out[row, : end - begin] += values[begin:end].double()
    return out


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows, columns = (256, 5000) if device == "cuda" else (64, 500)
    offsets = random_offsets(rows, columns, device)
    values = torch.randn(int(offsets[-1]), device=device)
    dense = torch.randn(rows, columns, device=device)
    args = (values, offsets, dense)
    report = check_against(jagged_dense_add(*args), reference(*args))
    print(f"jagged_dense_add: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
