"""Column sums of rows of different lengths, with a loop that ends where each sequence ends.

Sequence `i` holds rows `offsets[i]` to `offsets[i + 1]` of `values`. `hl.jagged_tile(lengths)` runs
to the longest sequence of the tile; lanes beyond the end of their own sequence count for nothing.
"""

from __future__ import annotations

from itertools import pairwise

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against


@helion.kernel
def jagged_sum(values: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    sequences, features = offsets.size(0) - 1, values.size(1)
    out = torch.empty([sequences, features], dtype=values.dtype, device=values.device)
    for tile_s, tile_f in hl.tile([sequences, features]):
        starts = offsets[tile_s]
        lengths = offsets[tile_s.index + 1] - starts
        total = hl.zeros([tile_s, tile_f], dtype=torch.float32)
        for tile_r in hl.jagged_tile(lengths):
            rows = starts[:, None] + tile_r.index[None, :]
            total = total + values[rows, tile_f].to(torch.float32).sum(1)
        out[tile_s, tile_f] = total.to(values.dtype)
    return out


def reference(values: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    sums = [values[a:b].double().sum(0) for a, b in pairwise(offsets.tolist())]
    return torch.stack(sums) if sums else values.new_empty([0, values.size(1)]).double()


def random_offsets(sequences: int, longest: int, device: str) -> torch.Tensor:
    """Offsets of sequences of random lengths, empty ones included."""
    lengths = torch.randint(longest + 1, [sequences])
    return torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]).to(device)


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    offsets = random_offsets(64, 128, device)
    values = torch.randn(int(offsets[-1]), 64, device=device)
    report = check_against(
        jagged_sum(values, offsets), reference(values, offsets), reduction_length=128
    )
    print(f"jagged_sum: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
