"""Softmax down the rows of each sequence of a ragged batch, column by column.

The first pass over a sequence keeps a running maximum and a running sum, the second writes. Both
end where the sequence ends: lanes beyond it neither count nor are written.
"""

from __future__ import annotations

from itertools import pairwise

import torch

import tilesmith as helion
import tilesmith.language as hl
from examples.jagged_sum import random_offsets
from tilesmith.numerics.compare import check_against


@helion.kernel
def jagged_softmax(values: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    sequences, features = offsets.size(0) - 1, values.size(1)
    out = torch.empty_like(values)
    for tile_s, tile_f in hl.tile([sequences, features]):
        starts = offsets[tile_s]
        lengths = offsets[tile_s.index + 1] - starts
        peak = hl.full([tile_s, tile_f], float("-inf"), dtype=torch.float32)
        total = hl.zeros([tile_s, tile_f], dtype=torch.float32)
        for tile_r in hl.jagged_tile(lengths):
            rows = starts[:, None] + tile_r.index[None, :]
            part = values[rows, tile_f].to(torch.float32)
            new_peak = torch.maximum(peak, part.amax(1))
            # A sequence that has ended keeps its peak; an empty one has none to subtract.
            anchor = torch.where(new_peak == float("-inf"), 0.0, new_peak)
            powers = torch.exp(part - anchor[:, None, :])
            total = total * torch.exp(peak - anchor) + powers.sum(1)
            peak = new_peak
        for tile_w in hl.jagged_tile(lengths):
            rows = starts[:, None] + tile_w.index[None, :]
            part = values[rows, tile_f].to(torch.float32)
            weights = torch.exp(part - peak[:, None, :]) / total[:, None, :]
            out[rows, tile_f] = weights.to(values.dtype)
    return out


def reference(values: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    parts = [torch.softmax(values[a:b].double(), 0) for a, b in pairwise(offsets.tolist())]
    return torch.cat(parts) if parts else values.double()


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    offsets = random_offsets(128, 64, device)
    values = torch.randn(int(offsets[-1]), 128, device=device)
    report = check_against(
        jagged_softmax(values, offsets), reference(values, offsets), reduction_length=64
    )
    print(f"jagged_softmax: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
