"""Sum of the rows of each segment, given the sorted segment id of every row.

A scan over pairs of a running sum and an id adds up runs of equal ids inside a tile. The last row
of each run holds its sum and adds it to the segment; a segment that spans tiles gets one atomic
addition from each of them.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against


def add_within_segment(
    left_sum: torch.Tensor, left_id: torch.Tensor, right_sum: torch.Tensor, right_id: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums of equal ids are added; a new id begins anew."""
    return torch.where(left_id == right_id, left_sum + right_sum, right_sum), right_id


@helion.kernel
def segment_reduction(ids: torch.Tensor, x: torch.Tensor, num_segments: int) -> torch.Tensor:
    n, d = x.size()
    wide = torch.promote_types(x.dtype, torch.float32)
    out = torch.zeros([num_segments, d], dtype=wide, device=x.device)
    for tile_n, tile_d in hl.tile([n, d]):
        values = x[tile_n, tile_d].to(wide)
        own = ids[tile_n]
        following = hl.load(ids, [tile_n.index + 1], extra_mask=tile_n.index < n - 1)
        sums, _ = hl.associative_scan(
            add_within_segment, (values, own[:, None].expand_as(values)), dim=0
        )
        is_last = (own != following) | (tile_n.index == tile_n.end - 1)
        hl.atomic_add(out, [own, tile_d], torch.where(is_last[:, None], sums, 0.0))
    return out


def reference(ids: torch.Tensor, x: torch.Tensor, num_segments: int) -> torch.Tensor:
    zeros = torch.zeros(num_segments, x.size(1), dtype=torch.float64, device=x.device)
    return zeros.index_add(0, ids, x.double())


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    n, d, segments = 2000, 128, 100
    ids = torch.randint(segments, [n], device=device).sort().values
    x = torch.randn(n, d, device=device)
    out = segment_reduction(ids, x, segments)
    report = check_against(out, reference(ids, x, segments), reduction_length=n)
    print(f"segment_reduction: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
