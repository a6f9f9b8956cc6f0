"""Mean over rows of different lengths, each with its own number of features.

Sequence `i` holds rows `offsets[i]` to `offsets[i + 1]` of `values`; of its columns only the first
`feature_counts[i]` are data. Shows a loop bound read from memory and loads with an extra mask.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against


@helion.kernel
def jagged_mean(
    values: torch.Tensor, offsets: torch.Tensor, feature_counts: torch.Tensor
) -> torch.Tensor:
    num_sequences, num_features = feature_counts.size(0), values.size(1)
    out = torch.empty([num_sequences, num_features], dtype=values.dtype, device=values.device)
    for tile_s in hl.tile(num_sequences):
        starts = offsets[tile_s]
        lengths = offsets[tile_s.index + 1] - starts
        longest = lengths.amax()
        counts = feature_counts[tile_s]
        for tile_f in hl.tile(num_features):
            is_feature = tile_f.index[None, :] < counts[:, None]
            total = hl.zeros([tile_s, tile_f], dtype=torch.float32)
            for tile_r in hl.tile(0, longest):
                rows = starts[:, None] + tile_r.index[None, :]
                is_row = tile_r.index[None, :] < lengths[:, None]
                mask = is_row[:, :, None] & is_feature[:, None, :]
                total = total + hl.load(values, [rows, tile_f], extra_mask=mask).to(
                    torch.float32
                ).sum(dim=1)
            # An empty sequence has mean zero: its total is zero, whatever it is divided by.
            divisor = torch.clamp(lengths, min=1).to(torch.float32)
            out[tile_s, tile_f] = total / divisor[:, None]
    return out


def reference(
    values: torch.Tensor, offsets: torch.Tensor, feature_counts: torch.Tensor
) -> torch.Tensor:
    bounds, counts = offsets.tolist(), feature_counts.tolist()
    out = torch.zeros([len(counts), values.size(1)], dtype=torch.float64, device=values.device)
    for i, (begin, end, count) in enumerate(zip(bounds, bounds[1:], counts)):
        if end > begin:
            out[i, :count] = values[begin:end, :count].double().mean(0)
    return out


def random_sequences(
    num_sequences: int, max_length: int, num_features: int, device: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Offsets and feature counts of sequences of random lengths (zero included)."""
    lengths = torch.randint(max_length + 1, [num_sequences])
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    counts = torch.randint(num_features + 1, [num_sequences])
    return offsets.to(device), counts.to(device)


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    offsets, counts = random_sequences(32, 64, 40, device)
    values = torch.randn(int(offsets[-1]), 40, device=device)
    report = check_against(
        jagged_mean(values, offsets, counts),
        reference(values, offsets, counts),
        reduction_length=64,
    )
    print(f"jagged_mean: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
