"""What a simulated GPU program works on: barriers, buffers, products in flight, tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

Tensor = torch.Tensor


class ProtocolError(AssertionError):
    """A role did what another one's state forbids."""


@dataclass
class Barrier:
    """Ends a phase after so many arrivals and all bytes that were announced."""

    name: str
    slot: int
    count: int = 0
    completed: int = 0
    arrived: int = 0
    bytes_left: int = 0

    def arrive(self, num_bytes: int = 0) -> None:
        self.bytes_left += num_bytes
        self.arrived += 1
        if self.arrived > self.count:
            raise ProtocolError(f"{self.name}[{self.slot}] has an arrival too many")
        self.end_phase()

    def end_phase(self) -> None:
        if self.arrived == self.count and self.bytes_left == 0:
            self.completed, self.arrived = self.completed + 1, 0

    def passes(self, parity: int) -> bool:
        return self.completed & 1 != parity


@dataclass(eq=False)
class Buffer:
    """One tile in shared memory."""

    name: str
    slot: int
    data: Tensor
    readers: int = 0
    """Products in flight that read it."""
    is_filling: bool = False
    is_unfenced: bool = False

    def write(self, what: str) -> None:
        if self.readers or self.is_filling:
            raise ProtocolError(f"{what} {self.name}[{self.slot}], which is in use")


@dataclass(frozen=True)
class View:
    """A tile as a product or a store sees it."""

    buffer: Buffer
    shape: tuple[int, ...]
    is_turned: bool = False

    def reshape(self, shape: Sequence[int]) -> View:
        return View(self.buffer, tuple(shape))

    def permute(self, order: Sequence[int]) -> View:
        assert tuple(order) == (1, 0)
        return View(self.buffer, self.shape, not self.is_turned)

    @property
    def tile(self) -> Tensor:
        tile = self.buffer.data.view(self.shape)
        return tile.T if self.is_turned else tile


@dataclass
class Ring:
    """What is allocated at once: buffers or barriers."""

    items: list[Any]
    name: str = ""

    def index(self, i: int) -> Any:
        if not 0 <= i < len(self.items):
            raise ProtocolError(f"{self.name}[{i}] of {len(self.items)}")
        item = self.items[i]
        return item if isinstance(item, Barrier) else View(item, tuple(item.data.shape))


@dataclass(eq=False)
class Product:
    """A product in flight: it has no value before it was waited for."""

    lhs: Any
    rhs: View
    acc: Any
    value: Tensor | None = None

    @property
    def buffers(self) -> list[Buffer]:
        return [view.buffer for view in (self.lhs, self.rhs) if isinstance(view, View)]

    def start(self) -> None:
        for buffer in self.buffers:
            if buffer.is_filling:
                raise ProtocolError(f"a product reads {buffer.name} before the tile has arrived")
            buffer.readers += 1

    def finish(self) -> None:
        lhs = self.lhs.tile if isinstance(self.lhs, View) else self.lhs
        acc: Any = self.acc.value if isinstance(self.acc, Product) else self.acc
        self.value = acc + lhs.float() @ self.rhs.tile.float()
        for buffer in self.buffers:
            buffer.readers -= 1


class Descriptor:
    """A tensor as the copy engine sees it: zeros outside of it, nothing is stored there."""

    def __init__(
        self,
        base: Tensor,
        shape: Sequence[int],
        strides: Sequence[int],
        block: Sequence[int],
        *_: Any,
    ) -> None:
        assert strides[-1] == 1
        assert all(stride * base.element_size() % 16 == 0 for stride in strides[:-1])
        self.tensor = torch.as_strided(base, shape, strides)
        self.block = tuple(block)

    @property
    def num_bytes(self) -> int:
        return math.prod(self.block) * self.tensor.element_size()

    def _overlap(self, start: Sequence[int]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        triples = list(zip(start, self.tensor.shape, self.block))
        assert all(first >= 0 for first in start)
        theirs = tuple(slice(a, max(a, min(a + size, end))) for a, end, size in triples)
        return theirs, tuple(slice(0, piece.stop - piece.start) for piece in theirs)

    def read(self, start: Sequence[int]) -> Tensor:
        theirs, ours = self._overlap(start)
        tile = torch.zeros(self.block, dtype=self.tensor.dtype)
        tile[ours] = self.tensor[theirs]
        return tile

    def write(self, start: Sequence[int], tile: Tensor) -> None:
        theirs, ours = self._overlap(start)
        self.tensor[theirs] = tile.view(self.block)[ours]


@dataclass(frozen=True)
class Scattered:
    """Rows along a sum that threads bring, each step of it to a row of its own; zeros past ends."""

    base: Pointer
    block: tuple[int, ...]
    num_rows: int
    num_steps: int
    stride: int

    @property
    def num_bytes(self) -> int:
        return math.prod(self.block) * self.base.tensor.element_size()

    def read(self, start: Sequence[int]) -> Tensor:
        depth, size = self.block
        rows, steps = (
            start[0] + torch.arange(size)[None, :],
            start[1] + torch.arange(depth)[:, None],
        )
        is_inside = (rows < self.num_rows) & (steps < self.num_steps)
        return (self.base + (rows * self.stride + steps)).load(is_inside)


@dataclass(frozen=True)
class Pointer:
    """The first element of a tensor, or elements at offsets from it."""

    tensor: Tensor
    offsets: Any = 0

    def __add__(self, offsets: Any) -> Pointer:
        return Pointer(self.tensor, self.offsets + offsets)

    def _places(self, mask: Any) -> tuple[Tensor, Tensor, Tensor]:
        flat = torch.as_strided(self.tensor, (_extent(self.tensor),), (1,))
        offsets = torch.as_tensor(self.offsets)
        kept = torch.ones(()).bool() if mask is None else torch.as_tensor(mask)
        offsets, kept = torch.broadcast_tensors(offsets, kept)
        used = offsets[kept]
        if used.numel() and not (int(used.min()) >= 0 and int(used.max()) < flat.numel()):
            raise ProtocolError("an access outside of its tensor")
        return flat, offsets, kept

    def load(self, mask: Any = None, other: Any = 0.0, **_: Any) -> Tensor:
        flat, offsets, kept = self._places(mask)
        found = flat[torch.where(kept, offsets, 0)]
        return torch.where(kept, found, torch.full_like(found, other))

    def store(self, value: Tensor, mask: Any = None, **_: Any) -> None:
        flat, offsets, kept = self._places(mask)
        values = torch.as_tensor(value).to(flat.dtype).expand(offsets.shape)
        flat[offsets[kept]] = values[kept]


def _extent(tensor: Tensor) -> int:
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))


def allocate(dtype: Any, shape: Sequence[int], *_: Any) -> Ring:
    """Barriers where they are words of 64 bits, else tiles of nothing."""
    count, *block = shape
    if dtype is torch.int64:
        return Ring([Barrier("", i) for i in range(count)])
    return Ring([Buffer("", i, torch.full(block, math.nan, dtype=dtype)) for i in range(count)])
