"""`torch.cummax`: the largest value so far and its position, by a scan of pairs.

A tile is scanned at once; the best pair so far is carried from tile to tile. Of equal values the
last one counts, as torch has it, and NaN is larger than all.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against

Two = tuple[torch.Tensor, torch.Tensor]


def later_of_larger(
    left: torch.Tensor, left_place: torch.Tensor, right: torch.Tensor, right_place: torch.Tensor
) -> Two:
    """The larger value with its place, the right one where both are equal."""
    is_right = (right >= left) | torch.isnan(right)
    return torch.where(is_right, right, left), torch.where(is_right, right_place, left_place)


@helion.kernel
def running_max(x: torch.Tensor) -> Two:
    """Largest values so far along each row, and where they are."""
    m, n = x.size()
    values = torch.empty_like(x)
    places = torch.empty([m, n], dtype=torch.int64, device=x.device)
    for tile_m in hl.tile(m):
        best = hl.full([tile_m], float("-inf"), dtype=x.dtype)
        place = hl.zeros([tile_m], dtype=torch.int64)
        for tile_n in hl.tile(n):
            own = x[tile_m, tile_n]
            index = tile_n.index.to(torch.int64)[None, :].expand_as(own)
            scanned, found = hl.associative_scan(later_of_larger, (own, index), dim=1)
            scanned, found = later_of_larger(best[:, None], place[:, None], scanned, found)
            values[tile_m, tile_n] = scanned
            places[tile_m, tile_n] = found
            is_last = (tile_n.index == tile_n.end - 1)[None, :]
            best = torch.where(is_last, scanned, float("-inf")).amax(-1)
            place = torch.where(is_last, found, 0).sum(-1)
    return values, places


def reference(x: torch.Tensor) -> Two:
    values, places = torch.cummax(x.double(), dim=1)
    return values, places


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.randint(0, 1000, [64, 3000 if device == "cuda" else 300], device=device).float()
    values, places = running_max(x)
    exact, where = reference(x)
    check_against(values, exact)
    check_against(places, where)
    print(f"running_max: {int((places[:, -1] > 0).sum())} of {x.size(0)} rows rise")


if __name__ == "__main__":
    main()
