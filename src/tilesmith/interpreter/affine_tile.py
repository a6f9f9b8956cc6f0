"""Integer tiles that are known without being stored: a start plus a step along one axis.

Tile indices are such tiles, and accesses through them become slices instead of gathers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from tilesmith.dtypes import DType
from tilesmith.interpreter.torch_dtypes import to_torch


@dataclass(eq=False, slots=True)
class AffineTile:
    """Element ``p`` is ``start + step * p[axis]``; the same everywhere when ``axis`` is None."""

    shape: tuple[int, ...]
    start: int
    axis: int | None = None
    step: int = 1
    _tensor: torch.Tensor | None = field(default=None, init=False)

    @property
    def last(self) -> int:
        """The value at the far end of the axis."""
        if self.axis is None:
            return self.start
        return self.start + self.step * max(0, self.shape[self.axis] - 1)

    def fits(self, dtype: DType) -> bool:
        """Whether every element is a value of that integer type."""
        low, high = min(self.start, self.last), max(self.start, self.last)
        return dtype.lowest <= low and high <= dtype.highest

    def with_shape(self, shape: tuple[int, ...]) -> AffineTile:
        """The same rule over other lengths."""
        return AffineTile(shape, self.start, self.axis, self.step)

    def expand_dims(self, axes: tuple[int, ...], shape: tuple[int, ...]) -> AffineTile:
        """With axes of length 1 inserted at ``axes`` of the result."""
        if self.axis is None:
            return AffineTile(shape, self.start)
        kept = [axis for axis in range(len(shape)) if axis not in axes]
        return AffineTile(shape, self.start, kept[self.axis], self.step)

    def permute(self, order: tuple[int, ...]) -> AffineTile:
        """With axes reordered."""
        shape = tuple(self.shape[axis] for axis in order)
        axis = None if self.axis is None else order.index(self.axis)
        return AffineTile(shape, self.start, axis, self.step)

    def tensor(self, dtype: DType, device: torch.device) -> torch.Tensor:
        """The stored elements; made once for each type that casts have given the tile."""
        wanted = to_torch(dtype)
        if self._tensor is None or self._tensor.dtype is not wanted:
            self._tensor = self._materialize(wanted, device)
        return self._tensor

    def _materialize(self, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        if self.axis is None:
            return torch.full((), self.start, dtype=dtype, device=device).expand(self.shape)
        length = self.shape[self.axis]
        line = torch.arange(length, device=device).mul_(self.step).add_(self.start).to(dtype)
        lengths = [1] * len(self.shape)
        lengths[self.axis] = length
        return line.view(lengths).expand(self.shape)


def combine(fn: str, lhs: AffineTile, rhs: AffineTile, dtype: DType) -> AffineTile | None:
    """``fn`` of two tiles of one shape where that is affine and does not overflow, else None."""
    result = None
    if fn in ("add", "sub"):
        result = _add(lhs, rhs, 1 if fn == "add" else -1)
    elif fn == "mul":
        result = _scale(lhs, rhs) if rhs.axis is None else _scale(rhs, lhs)
    return result if result is not None and result.fits(dtype) else None


def _add(lhs: AffineTile, rhs: AffineTile, sign: int) -> AffineTile | None:
    start = lhs.start + sign * rhs.start
    if rhs.axis is None:
        return AffineTile(lhs.shape, start, lhs.axis, lhs.step)
    if lhs.axis is None:
        return AffineTile(lhs.shape, start, rhs.axis, sign * rhs.step)
    if lhs.axis == rhs.axis:
        return AffineTile(lhs.shape, start, lhs.axis, lhs.step + sign * rhs.step)
    return None


def _scale(tile: AffineTile, factor: AffineTile) -> AffineTile | None:
    if factor.axis is not None:
        return None
    return AffineTile(tile.shape, tile.start * factor.start, tile.axis, tile.step * factor.start)
