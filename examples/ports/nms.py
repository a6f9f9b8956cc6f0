"""Non-maximum suppression (torchvision's `nms`): boxes that overlap a better one are dropped.

Boxes are sorted by score. The first kernel finds all pairs that overlap too much, in parallel. The
second walks the boxes in order, one program: a box that is still kept drops those it overlaps.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl


@helion.kernel
def find_overlaps(boxes: torch.Tensor, threshold: float) -> torch.Tensor:
    """Whether box `j`, after `i`, shares more than ``threshold`` of their union; `[i, j]`."""
    n = boxes.size(0)
    out = torch.empty([n, n], dtype=torch.bool, device=boxes.device)
    for tile_i, tile_j in hl.tile([n, n]):
        left = torch.maximum(boxes[tile_i, 0][:, None], boxes[tile_j, 0][None, :])
        top = torch.maximum(boxes[tile_i, 1][:, None], boxes[tile_j, 1][None, :])
        right = torch.minimum(boxes[tile_i, 2][:, None], boxes[tile_j, 2][None, :])
        bottom = torch.minimum(boxes[tile_i, 3][:, None], boxes[tile_j, 3][None, :])
        shared = torch.clamp(right - left, min=0) * torch.clamp(bottom - top, min=0)
        areas_i = area(boxes, tile_i)[:, None]
        areas_j = area(boxes, tile_j)[None, :]
        is_after = tile_j.index[None, :] > tile_i.index[:, None]
        out[tile_i, tile_j] = is_after & (shared > threshold * (areas_i + areas_j - shared))
    return out


def area(boxes: torch.Tensor, tile: hl.Tile) -> torch.Tensor:
    """Areas of the boxes of a tile; corners are left, top, right, bottom."""
    return (boxes[tile, 2] - boxes[tile, 0]) * (boxes[tile, 3] - boxes[tile, 1])


@helion.kernel
def keep_first(overlaps: torch.Tensor) -> torch.Tensor:
    """Which boxes remain when each remaining box drops those it overlaps."""
    n = overlaps.size(0)
    keep = torch.ones([n], dtype=torch.bool, device=overlaps.device)
    for _ in hl.grid(1):
        for i in range(n):
            if not keep[i]:
                continue
            for tile_j in hl.tile(i + 1, n):
                keep[tile_j] = keep[tile_j] & ~overlaps[i, tile_j]
    return keep


def nms(boxes: torch.Tensor, scores: torch.Tensor, threshold: float) -> torch.Tensor:
    """Numbers of the boxes that remain, best first."""
    order = torch.argsort(scores, descending=True, stable=True)
    return order[keep_first(find_overlaps(boxes[order], threshold))]


def reference_overlaps(boxes: torch.Tensor, threshold: float) -> torch.Tensor:
    exact = boxes.double()
    corner = torch.maximum(exact[:, None, :2], exact[None, :, :2])
    other = torch.minimum(exact[:, None, 2:], exact[None, :, 2:])
    shared = (other - corner).clamp(min=0).prod(-1)
    areas = (exact[:, 2:] - exact[:, :2]).prod(-1)
    union = areas[:, None] + areas - shared
    return (shared > threshold * union).triu(1)


def reference_keep(overlaps: torch.Tensor) -> torch.Tensor:
    keep = torch.ones(overlaps.size(0), dtype=torch.bool)
    for i, row in enumerate(overlaps.cpu()):
        if keep[i]:
            keep &= ~row
    return keep.to(overlaps.device)


def reference(boxes: torch.Tensor, scores: torch.Tensor, threshold: float) -> torch.Tensor:
    order = torch.argsort(scores, descending=True, stable=True)
    return order[reference_keep(reference_overlaps(boxes[order], threshold))]


def random_boxes(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Boxes on a grid of eighths, where areas are exact, and their scores."""
    generator = torch.Generator().manual_seed(0)
    corners = torch.randint(0, 200, [n, 2], generator=generator)
    sides = torch.randint(8, 80, [n, 2], generator=generator)
    boxes = torch.cat([corners, corners + sides], 1).float() / 8
    return boxes, torch.rand(n, generator=generator)


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    boxes, scores = (x.to(device) for x in random_boxes(2000 if device == "cuda" else 150))
    kept = nms(boxes, scores, 0.5)
    assert torch.equal(kept, reference(boxes, scores, 0.5))
    print(f"nms: {kept.numel()} of {boxes.size(0)} boxes remain, as they should")


if __name__ == "__main__":
    main()
