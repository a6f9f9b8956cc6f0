"""Tensors in memory: any strides, and poison around them that nobody may read or write."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from tests.fuzzing.program import TensorSpec
from tilesmith.numerics.tolerance import smallest_spacing

GUARD = 64
"""Elements before and after a tensor."""
POISON = {torch.bool: 1, torch.int8: 99, torch.uint8: 99}
WILD = (-1, -7, 2**31 - 1, -(2**31), 1 << 20, 70)
"""Indices that no tensor here has."""
LOWEST, HIGHEST = -4, 4
WIDE = 2**31 + 7
"""A factor that takes integers beyond 32 bits."""
WIDEST = 2**20
"""Where all that a type holds would be too much."""


@dataclass(frozen=True)
class Placed:
    """A tensor and the whole memory it lies in."""

    view: torch.Tensor
    memory: torch.Tensor

    def copy(self, device: str) -> Placed:
        """The same in memory of its own."""
        memory = self.memory.to(device, copy=True)
        view = memory.as_strided(self.view.size(), self.view.stride(), self.view.storage_offset())
        return Placed(view, memory)


def contents(spec: TensorSpec, sizes: Mapping[str, int], seed: str, data: str = "") -> torch.Tensor:
    """The data of a tensor; ``data`` as in ``Program``."""
    found = _contents(spec, sizes, seed)
    if not data or not spec.is_data or spec.dtype == torch.bool:
        return found
    generator = torch.Generator().manual_seed(hash_of(seed + spec.name + data))
    ends = _special(spec.dtype) if data == "special" else _ends(spec.dtype)
    chosen = ends[torch.randint(0, len(ends), found.shape, generator=generator)]
    is_kept = torch.rand(found.shape, generator=generator) < 0.7
    wide = torch.float64 if spec.dtype.is_floating_point else torch.int64
    return torch.where(is_kept, found.to(wide), chosen.to(wide)).to(spec.dtype)


def _special(dtype: torch.dtype) -> torch.Tensor:
    """NaN, infinities, and numbers that are not normal, where the type has them."""
    if not dtype.is_floating_point:
        return torch.tensor([0, 1])
    limits = torch.finfo(dtype)
    least = smallest_spacing(dtype)
    numbers = [math.nan, math.inf, -math.inf, -0.0, least, -3 * least, limits.smallest_normal]
    wanted = torch.tensor(numbers, dtype=torch.float64)
    kept = wanted.to(dtype).double()
    return kept[(kept == wanted) | wanted.isnan() & kept.isnan()]


def _ends(dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_floating_point:
        return torch.tensor([0.0, 1.0])
    limits = torch.iinfo(dtype)
    return torch.tensor([limits.min, limits.max, limits.max - 1, limits.min + 1])


def _places(content: str, limit: int, shape: list[int], generator: torch.Generator) -> torch.Tensor:
    if content == "order":
        return torch.randperm(limit, generator=generator)
    found = _indices(limit, shape, generator)
    if content == "index":
        return found
    wild = torch.tensor(WILD)[torch.randint(0, len(WILD), shape, generator=generator)]
    return torch.where(torch.rand(shape, generator=generator) < 0.4, wild, found)


def _indices(limit: int, shape: list[int], generator: torch.Generator) -> torch.Tensor:
    """Below ``limit``; often a few of them again and again."""
    found = torch.randint(0, max(1, limit), shape, generator=generator)
    is_narrow = bool(torch.rand([], generator=generator) < 0.3)
    return found % min(2, max(1, limit)) if is_narrow else found


def _contents(spec: TensorSpec, sizes: Mapping[str, int], seed: str) -> torch.Tensor:
    shape, limit = spec.shape(sizes), spec.bound(sizes)
    generator = torch.Generator().manual_seed(hash_of(seed + spec.name))
    if spec.content == "fill":
        return torch.full(shape, limit).to(spec.dtype)
    if not spec.is_data:
        return _places(spec.content, limit, shape, generator).to(spec.dtype)
    if spec.dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).to(torch.bool)
    if spec.dtype == torch.int64 and spec.content == "numbers":
        return torch.randint(LOWEST, HIGHEST + 1, shape, generator=generator) * WIDE
    if spec.content == "wide":
        return _wide(spec.dtype, shape, generator)
    if spec.content == "low":
        low = 1 if spec.dtype == torch.uint8 else 2 * LOWEST
        return torch.randint(low, max(low + 1, 0), shape, generator=generator).to(spec.dtype)
    if spec.content == "integers" or not spec.dtype.is_floating_point:
        low = 0 if spec.dtype == torch.uint8 else LOWEST
        return torch.randint(low, HIGHEST + 1, shape, generator=generator).to(spec.dtype)
    return (2 * torch.randn(shape, generator=generator, dtype=torch.float64)).to(spec.dtype)


def _wide(dtype: torch.dtype, shape: list[int], generator: torch.Generator) -> torch.Tensor:
    if dtype.is_floating_point:
        powers = torch.randint(-6, 7, shape, generator=generator)
        whole = torch.randint(LOWEST, HIGHEST + 1, shape, generator=generator)
        return torch.ldexp(whole.double(), powers).to(dtype)
    limits = torch.iinfo(dtype)
    low, high = max(limits.min, -WIDEST), min(limits.max, WIDEST)
    return torch.randint(low, high + 1, shape, generator=generator).to(dtype)


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
    mine, other = bits_of(before.memory), bits_of(after.memory.cpu())
    is_around = torch.ones(mine.shape, dtype=torch.bool)
    view = before.view
    is_around.as_strided(view.size(), view.stride(), view.storage_offset()).fill_(False)
    return bool(torch.equal(mine[is_around], other[is_around]))


def bits_of(memory: torch.Tensor) -> torch.Tensor:
    """The same bits as integers: they are equal even where they are NaN."""
    views = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return memory.view(views[memory.element_size()])
