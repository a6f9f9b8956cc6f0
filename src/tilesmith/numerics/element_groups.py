"""Elements of a tensor in groups that share a scale: rows, or more where rows are short.

Errors scale with what was summed, which differs from row to row; a group must be large enough for
its largest error to tell what errors to expect. Work on many elements goes part by part.
"""

from __future__ import annotations

import math

import torch

SMALLEST_GROUP = 32
PART_ON_HOST, PART_ON_DEVICE = 1 << 14, 1 << 24
"""Elements at a time: so few that torch uses one thread and a cache holds them, or so many that a
device is busy."""


class ElementGroups:
    """The groups of chosen elements of a tensor; statistics come out one per element."""

    def __init__(self, shape: torch.Size, chosen: torch.Tensor | None, *, is_on_host: bool) -> None:
        """``chosen``: positions in the flattened tensor, in ascending order; None: all."""
        self._count = math.prod(shape) if chosen is None else chosen.numel()
        row = max(1, shape[-1] if shape else 1)
        self._length = self._group_length(row if chosen is None else _first_run(chosen, row))
        step = PART_ON_HOST if is_on_host else PART_ON_DEVICE
        self._step = max(1, step // self._length) * self._length

    def parts(self) -> list[slice]:
        """All elements in parts, none of which divides a group."""
        starts = range(0, self._count, self._step)
        slices = [slice(start, min(start + self._step, self._count)) for start in starts]
        if not slices:
            return []
        last = slices.pop()
        middle = last.stop - self._count % self._length
        ends = (slice(last.start, middle), slice(middle, last.stop))
        return [*slices, *(part for part in ends if part.stop > part.start)]

    def largest(self, values: torch.Tensor) -> torch.Tensor:
        """The largest of non-negative values of a part in each element's group."""
        return _repeat(self._rows(values).amax(1), values)

    def root_mean_square(self, magnitude: torch.Tensor) -> torch.Tensor:
        """Root of the mean square in each element's group, safe against overflow."""
        rows = self._rows(magnitude)
        highest = rows.amax(1, keepdim=True)
        mean = (rows / torch.where(highest > 0, highest, 1.0)).square().mean(1)
        return _repeat(highest[:, 0] * mean.sqrt(), magnitude)

    def _rows(self, values: torch.Tensor) -> torch.Tensor:
        """One group per row; what is left over in the end is a group too."""
        is_rest = values.numel() % self._length
        return values.view(1 if is_rest else -1, values.numel() if is_rest else self._length)

    def _group_length(self, row: int) -> int:
        """As many rows as it takes."""
        return min(max(1, self._count), row * -(-SMALLEST_GROUP // row))


def _first_run(chosen: torch.Tensor, row: int) -> int:
    """How many chosen elements the first row has that has some; tiles take as many of each."""
    if not chosen.numel():
        return 1
    end = (int(chosen[0]) // row + 1) * row
    return max(1, int(torch.searchsorted(chosen, end)))


def _repeat(statistics: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    rows = statistics.numel()
    return statistics[:, None].expand(-1, values.numel() // max(1, rows)).reshape(-1)
