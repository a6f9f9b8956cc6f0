"""One access to a tensor, resolved to either a slice or a gather of its elements.

Integer tiles that are a start plus a step along one axis are known without being stored; tile
indices are such tiles, and accesses through them are slices. An access knows lanes and indices but
no tensor, so it applies as well to the race detector's shadow of one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from tilesmith.dtypes import DType
from tilesmith.interpreter.torch_dtypes import as_movable, to_torch


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


class SliceAccess:
    """Every tensor dimension is indexed by a start plus a step along one axis of the tile."""

    __slots__ = ("_terms", "lengths", "mask")

    def __init__(
        self, tiles: list[AffineTile | int], lengths: tuple[int, ...], mask: torch.Tensor | None
    ) -> None:
        self.lengths = lengths
        self.mask = mask
        self._terms = [_term(tile, len(lengths)) for tile in tiles]

    @property
    def ranges(self) -> list[tuple[int, int | None, int]]:
        """Of every tensor dimension the start, the axis of the tile along it, and the step."""
        return self._terms

    @property
    def is_ascending(self) -> bool:
        """Whether torch can express it as a view: it has no negative strides."""
        return all(step >= 0 for _, _, step in self._terms)

    @property
    def has_duplicates(self) -> bool:
        """Whether two lanes mean the same element."""
        varied = {axis for _, axis, step in self._terms if step}
        return any(n > 1 and axis not in varied for axis, n in enumerate(self.lengths))

    def find_outside(self, shape: torch.Size) -> tuple[int, int] | None:
        """The first dimension and index out of bounds."""
        for dimension, (size, (start, axis, step)) in enumerate(zip(shape, self._terms)):
            last = start if axis is None else start + step * (self.lengths[axis] - 1)
            if start < 0:
                return dimension, start
            if last >= size:
                return dimension, last if start < size else start
        return None

    def view(self, tensor: torch.Tensor) -> torch.Tensor:
        """The accessed elements of the tensor itself."""
        offset = tensor.storage_offset()
        strides = [0] * len(self.lengths)
        for stride, (start, axis, step) in zip(tensor.stride(), self._terms):
            offset += start * stride
            if axis is not None:
                strides[axis] += step * stride
        return tensor.as_strided(self.lengths, strides, offset)

    def read(self, tensor: torch.Tensor) -> torch.Tensor:
        """The accessed elements, masked-off ones as 0: a view where there is no mask."""
        view = self.view(tensor)
        return view if self.mask is None else _masked(view, self.mask)

    def write(self, tensor: torch.Tensor, value: torch.Tensor) -> None:
        """Replace the accessed elements."""
        view, value = as_movable(self.view(tensor)), as_movable(value)
        view.copy_(value if self.mask is None else torch.where(self.mask, value, view))


def _term(tile: AffineTile | int, rank: int) -> tuple[int, int | None, int]:
    """Start, axis of the accessed shape (index tiles of lower rank align at the right) and step."""
    if isinstance(tile, int):
        return tile, None, 0
    # Along an axis of length 1 the step never counts, and other indices may well vary along it.
    if tile.axis is None or tile.shape[tile.axis] == 1:
        return tile.start, None, 0
    return tile.start, tile.axis + rank - len(tile.shape), tile.step


@dataclass(eq=False, slots=True)
class RowSelection:
    """A gather where a list along an axis of its own indexes one dimension; the others are slices.

    ``whole`` is the slice with all of that dimension along the axis. torch copies whole rows then.
    """

    whole: SliceAccess
    axis: int
    index: torch.Tensor

    def read(self, tensor: torch.Tensor) -> torch.Tensor:
        """The accessed elements; never a view."""
        source = as_movable(self.whole.view(tensor))
        return source.index_select(self.axis, self.index).view(tensor.dtype)

    def write(self, tensor: torch.Tensor, value: torch.Tensor) -> None:
        """Replace the accessed elements."""
        target = as_movable(self.whole.view(tensor))
        target.index_copy_(self.axis, self.index, as_movable(value))


def find_row_selection(
    tiles: list[torch.Tensor | AffineTile | int], lengths: tuple[int, ...], shape: torch.Size
) -> RowSelection | None:
    """The access as a selection of rows of a tensor of that shape, if it is one."""
    listed = [(d, tile) for d, tile in enumerate(tiles) if isinstance(tile, torch.Tensor)]
    if len(listed) != 1:
        return None
    dimension, index = listed[0]
    varied = [axis for axis, length in enumerate(index.shape) if length > 1]
    if len(varied) != 1:
        return None
    axis = varied[0] + len(lengths) - index.dim()
    others = [tile for tile in tiles if not isinstance(tile, torch.Tensor)]
    if any(_term(tile, len(lengths))[1] == axis for tile in others):
        return None
    whole_lengths = (*lengths[:axis], shape[dimension], *lengths[axis + 1 :])
    others.insert(dimension, AffineTile(whole_lengths, 0, axis))
    whole = SliceAccess(others, whole_lengths, None)
    if whole.has_duplicates or not whole.is_ascending or whole.find_outside(shape) is not None:
        return None
    return RowSelection(whole, axis, index.reshape(-1).to(torch.int64))


@dataclass(eq=False, slots=True)
class GatherAccess:
    """Index tensors, one for each tensor dimension, that broadcast to the accessed shape.

    Indices of masked-off lanes must be valid all the same: such lanes are read but not used.
    """

    indices: tuple[torch.Tensor, ...]
    lengths: tuple[int, ...]
    mask: torch.Tensor | None
    rows: RowSelection | None = None

    def read(self, tensor: torch.Tensor) -> torch.Tensor:
        """The accessed elements, masked-off ones as 0; never a view."""
        if self.rows is not None:
            return self.rows.read(tensor)
        found = as_movable(tensor)[self.indices].expand(self.lengths).view(tensor.dtype)
        return found if self.mask is None else _masked(found, self.mask)

    def write(self, tensor: torch.Tensor, value: torch.Tensor, *, accumulate: bool = False) -> None:
        """Replace the accessed elements, or add to them one after the other."""
        if self.rows is not None and not accumulate:
            self.rows.write(tensor, value)
            return
        target, value = as_movable(tensor), as_movable(value.expand(self.lengths))
        value = value.reshape(-1) if self.mask is None else value[self.mask]
        target.index_put_(self.lanes(), value, accumulate=accumulate)

    def lanes(self) -> tuple[torch.Tensor, ...]:
        """The index of every lane that is not masked off, as flat tensors."""
        full = [index.expand(self.lengths) for index in self.indices]
        if self.mask is None:
            return tuple(index.reshape(-1) for index in full)
        return tuple(index[self.mask] for index in full)

    def has_duplicates(self, tensor: torch.Tensor) -> bool:
        """Whether two lanes mean the same element."""
        offsets = self._offsets(tensor)
        return torch.unique(offsets).numel() < offsets.numel()

    def find_duplicate(self, tensor: torch.Tensor) -> tuple[int, ...] | None:
        """The index of the first element that two lanes mean."""
        offsets = self._offsets(tensor)
        found, counts = torch.unique(offsets, return_counts=True)
        if found.numel() == offsets.numel():
            return None
        lane = int((offsets == found[counts > 1][0]).nonzero()[0])
        return tuple(int(index[lane]) for index in self.lanes())

    def _offsets(self, tensor: torch.Tensor) -> torch.Tensor:
        lanes = self.lanes()
        offsets = torch.zeros_like(lanes[0])
        for lane, stride in zip(lanes, tensor.stride()):
            offsets += lane * stride
        return offsets


def _masked(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The values with 0, whose bits are 0 in every type, where the mask is false."""
    bits = as_movable(values)
    return torch.where(mask, bits, bits.new_zeros(())).view(values.dtype)


Access = SliceAccess | GatherAccess
