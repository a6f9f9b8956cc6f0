"""The memory behind tensors as numbered regions, and tensors as views of them.

Tensors that share memory refer to one region, also where torch knows several storages there. Of a
storage that is mostly unused, only the span in use becomes a region. Regions start at multiples of
``ALIGNMENT``, so a copy that starts at one too leaves every tensor aligned as it was.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from tilesmith.interpreter.torch_dtypes import from_torch
from tilesmith.lab.workload.binding import TensorRef
from tilesmith.numerics.scratch_tensors import bytes_of

ALIGNMENT = 512
"""Of what torch allocates on a GPU."""
WORTHWHILE_SHARE = 0.5
"""A storage of which less is in use is not taken whole."""


class CaptureError(Exception):
    """A launch that no other process can repeat; says why."""


@dataclass(frozen=True)
class Region:
    """Some bytes in a row."""

    start: int
    """An address, a multiple of ``ALIGNMENT``."""
    nbytes: int
    pieces: tuple[tuple[int, torch.Tensor], ...]
    """Where in the region bytes are known, and these bytes as a view of the memory itself."""

    @property
    def stop(self) -> int:
        """One past the last address."""
        return self.start + self.nbytes

    @property
    def first(self) -> int:
        """The first address that is known."""
        return self.start + self.pieces[0][0]

    def read(self) -> torch.Tensor:
        """A copy of the bytes in host memory; 0 where they are not known."""
        content = torch.zeros(self.nbytes, dtype=torch.uint8)
        for offset, piece in self.pieces:
            content[offset : offset + piece.numel()] = piece.cpu()
        return content


_EMPTY = Region(0, 0, ())


@dataclass(frozen=True)
class _Span:
    """Addresses of one storage that must be kept."""

    start: int
    stop: int
    content: torch.Tensor


class Memory:
    """The regions behind some tensors, numbered from ``first``."""

    def __init__(self, tensors: Iterable[torch.Tensor], first: int = 0) -> None:
        tensors = list(tensors)
        for tensor in tensors:
            _check(tensor)
        occupied = _merge(_spans(tensor for tensor in tensors if tensor.numel()))
        # Tensors without elements live in the first region, which has none either.
        self.regions = (_EMPTY, *occupied)
        self._starts = [region.first for region in occupied]
        self._first = first

    @property
    def nbytes(self) -> int:
        """Bytes of all regions."""
        return sum(region.nbytes for region in self.regions)

    def reference(self, tensor: torch.Tensor) -> TensorRef | None:
        """The tensor as a view of a region; None if it is not inside one."""
        number, offset = 0, 0
        if tensor.numel():
            number = bisect_right(self._starts, tensor.data_ptr())
            region = self.regions[number]
            if not number or tensor.data_ptr() + span_bytes(tensor) > region.stop:
                return None
            offset, odd = divmod(tensor.data_ptr() - region.start, tensor.itemsize)
            if odd:
                raise CaptureError("a tensor starts in the middle of an element")
        dtype = str(tensor.dtype).removeprefix("torch.")
        size, stride = tuple(map(int, tensor.size())), tuple(map(int, tensor.stride()))
        return TensorRef(self._first + number, dtype, size, stride, offset)


def span_bytes(tensor: torch.Tensor) -> int:
    """Bytes from the first to the last element of a tensor that has some."""
    last = sum((n - 1) * stride for n, stride in zip(tensor.size(), tensor.stride()))
    return (last + 1) * tensor.itemsize


def _check(tensor: torch.Tensor) -> None:
    try:
        from_torch(tensor.dtype)
    except TypeError as error:
        raise CaptureError(f"a tensor has an element type that kernels lack: {error}") from None
    if tensor.layout is not torch.strided or tensor.is_meta:
        raise CaptureError(f"a tensor has no plain memory ({tensor.layout} on {tensor.device})")
    if tensor.is_neg():
        raise CaptureError("a tensor is a view with its sign flipped lazily: call .resolve_neg()")


def _spans(tensors: Iterable[torch.Tensor]) -> list[_Span]:
    """For each storage what is kept of it, by ascending address."""
    by_storage: dict[int, list[torch.Tensor]] = {}
    for tensor in tensors:
        by_storage.setdefault(tensor.untyped_storage().data_ptr(), []).append(tensor)
    spans = [_span_of(group) for group in by_storage.values()]
    return sorted(spans, key=lambda span: (span.start, span.stop))


def _span_of(tensors: Sequence[torch.Tensor]) -> _Span:
    content = bytes_of(tensors[0].detach())
    base = content.data_ptr()
    start = min(tensor.data_ptr() for tensor in tensors)
    stop = max(tensor.data_ptr() + span_bytes(tensor) for tensor in tensors)
    if stop - start >= WORTHWHILE_SHARE * content.numel():
        start, stop = base, base + content.numel()
    return _Span(start, stop, content[start - base : stop - base])


def _merge(spans: Sequence[_Span]) -> list[Region]:
    """Regions of spans, one for those that overlap."""
    groups: list[list[_Span]] = []
    stop = -1
    for span in spans:
        if span.start >= stop:
            groups.append([])
        groups[-1].append(span)
        stop = max(stop, span.stop)
    return [_region(group) for group in groups]


def _region(spans: Sequence[_Span]) -> Region:
    start = spans[0].start // ALIGNMENT * ALIGNMENT
    stop = max(span.stop for span in spans)
    pieces = tuple((span.start - start, span.content) for span in spans)
    return Region(start, stop - start, pieces)
