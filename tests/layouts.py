"""The same values in awkward layouts."""

from __future__ import annotations

import math

import torch


def strided(values: torch.Tensor, step: int = 2) -> torch.Tensor:
    """The same values with ``step`` times the strides, the gaps filled with poison."""
    poison = math.nan if values.dtype.is_floating_point else 1
    size = [extent * step for extent in values.shape]
    storage = torch.full(size, poison, dtype=torch.float32).to(values.dtype).to(values.device)
    view = storage[tuple(slice(None, None, step) for _ in values.shape)]
    view.copy_(values)
    return view


def transposed(values: torch.Tensor) -> torch.Tensor:
    """The same values with the last two axes laid out the other way round in memory."""
    return values.transpose(-1, -2).contiguous().transpose(-1, -2)


def misaligned(values: torch.Tensor) -> torch.Tensor:
    """The same values, contiguous, starting one element into their storage."""
    storage = torch.empty(values.numel() + 1, dtype=values.dtype, device=values.device)
    view = storage[1:].view(values.shape)
    view.copy_(values)
    return view
