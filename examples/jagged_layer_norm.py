"""Layer normalisation of each sequence of a ragged batch, over all its rows and columns at once.

Three passes over a sequence: its mean, its variance, the result. A program owns a tile of sequences
and all their columns; the loops over rows end where each sequence ends.
"""

from __future__ import annotations

from itertools import pairwise

import torch

import tilesmith as helion
import tilesmith.language as hl
from examples.jagged_sum import random_offsets
from tilesmith.numerics.compare import check_against


@helion.kernel
def jagged_layer_norm(
    values: torch.Tensor, offsets: torch.Tensor, eps: float = 1e-6
) -> torch.Tensor:
    sequences, features = offsets.size(0) - 1, values.size(1)
    features = hl.specialize(features)
    out = torch.empty_like(values)
    for tile_s in hl.tile(sequences):
        starts = offsets[tile_s]
        lengths = offsets[tile_s.index + 1] - starts
        # An empty sequence has nothing to write; any divisor will do.
        count = torch.clamp(lengths * features, min=1).to(torch.float32)
        total = hl.zeros([tile_s], dtype=torch.float32)
        for tile_r in hl.jagged_tile(lengths):
            rows = starts[:, None] + tile_r.index[None, :]
            total = total + values[rows, :].to(torch.float32).sum(-1).sum(-1)
        mean = total / count
        squares = hl.zeros([tile_s], dtype=torch.float32)
        for tile_v in hl.jagged_tile(lengths):
            rows = starts[:, None] + tile_v.index[None, :]
            centred = values[rows, :].to(torch.float32) - mean[:, None, None]
            squares = squares + (centred * centred).sum(-1).sum(-1)
        inverse = torch.rsqrt(squares / count + eps)
        for tile_w in hl.jagged_tile(lengths):
            rows = starts[:, None] + tile_w.index[None, :]
            centred = values[rows, :].to(torch.float32) - mean[:, None, None]
            out[rows, :] = (centred * inverse[:, None, None]).to(values.dtype)
    return out


def reference(values: torch.Tensor, offsets: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    parts: list[torch.Tensor] = []
    for begin, end in pairwise(offsets.tolist()):
        part = values[begin:end].double()
        centred = part - part.mean()
        parts.append(centred * torch.rsqrt((centred * centred).mean() + eps))
    return torch.cat(parts) if parts else values.double()


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    offsets = random_offsets(32, 40, device)
    values = torch.randn(int(offsets[-1]), 64, device=device)
    report = check_against(
        jagged_layer_norm(values, offsets), reference(values, offsets), reduction_length=40 * 64
    )
    print(f"jagged_layer_norm: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
