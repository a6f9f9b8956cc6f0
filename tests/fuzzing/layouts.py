"""Tensors in memory: any strides, and poison around them that nobody may read or write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from tests.fuzzing.program import TensorSpec

GUARD = 64
"""Elements before and after a tensor."""
POISON = {torch.bool: 1, torch.int8: 99}
LOWEST, HIGHEST = -4, 4
WIDE = 2**31 + 7
"""A factor that takes integers beyond 32 bits."""


@dataclass(frozen=True)
class Placed:
    """A tensor and the whole memory it lies in."""

    view: torch.Tensor
    memory: torch.Tensor

    def copy(self, device: str) -> Placed:
        """The same in memory of its own."""
        memory = self.memory.clone().to(device)
        view = memory.as_strided(self.view.size(), self.view.stride(), self.view.storage_offset())
        return Placed(view, memory)


def contents(spec: TensorSpec, sizes: Mapping[str, int], seed: str) -> torch.Tensor:
    """The data of a tensor."""
    shape = spec.shape(sizes)
    generator = torch.Generator().manual_seed(hash_of(seed + spec.name))
    if spec.content == "fill":
        return torch.full(shape, spec.limit).to(spec.dtype)
    if spec.content == "index":
        return torch.randint(0, spec.limit, shape, generator=generator).to(spec.dtype)
    if spec.dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).to(torch.bool)
    if spec.dtype == torch.int64 and spec.content == "numbers":
        return torch.randint(LOWEST, HIGHEST + 1, shape, generator=generator) * WIDE
    if spec.content == "low":
        return torch.randint(2 * LOWEST, 0, shape, generator=generator).to(spec.dtype)
    if spec.content == "integers" or not spec.dtype.is_floating_point:
        return torch.randint(LOWEST, HIGHEST + 1, shape, generator=generator).to(spec.dtype)
    return (2 * torch.randn(shape, generator=generator, dtype=torch.float64)).to(spec.dtype)


def hash_of(text: str) -> int:
    """The same number for the same text in every process."""
    total = 0
    for character in text:
        total = (total * 131 + ord(character)) % 2**31
    return total


def place(values: torch.Tensor, layout: str) -> Placed:
    """Lay out values; a layout that needs more dimensions or elements falls back."""
    shape, rank = list(values.shape), values.dim()
    steps = [1] * rank
    order = list(range(rank))
    offset = GUARD
    if layout == "transposed":
        order.reverse()
    elif layout == "gaps":
        steps = [2 + (n % 2) for n in range(rank)]
    elif layout == "offset":
        offset = GUARD + 1
    strides, size = [0] * rank, 1
    for dim in reversed(order):
        strides[dim] = size * steps[dim]
        size *= max(1, shape[dim]) * steps[dim]
    if layout == "expanded" and rank and values.numel():
        strides[0] = 0
        values = values[:1].expand(shape)
    memory = torch.full([size + 2 * GUARD], POISON.get(values.dtype, 1000)).to(values.dtype)
    if values.dtype.is_floating_point:
        memory.fill_(torch.nan)
    view = memory.as_strided(shape, strides, offset)
    for index in _first_of_expanded(view):
        view[index].copy_(values[index])
    return Placed(view, memory)


def _first_of_expanded(view: torch.Tensor) -> list[Any]:
    """What to write: all of it, or one element of a dimension of stride 0."""
    return [slice(0, 1)] if view.dim() and view.stride(0) == 0 and view.size(0) > 1 else [...]


def is_untouched(before: Placed, after: Placed) -> bool:
    """Whether the memory around a tensor is as it was."""
    mine, other = before.copy("cpu"), after.copy("cpu")
    for placed in (mine, other):
        if placed.view.numel():
            placed.view.fill_(0)
    same = mine.memory == other.memory
    if same.dtype == torch.bool and mine.memory.dtype.is_floating_point:
        same |= mine.memory.isnan() & other.memory.isnan()
    return bool(same.all())
