"""Tensors inside arguments and results, however nested: widened, counted, told apart."""

from __future__ import annotations

from typing import Any

import torch

from tilesmith.frontend.containers import map_tensors, tensors_in


def widen(value: Any) -> Any:
    """Floating-point tensors as float64, all else as it is."""
    return map_tensors(
        value, lambda tensor: tensor.double() if tensor.dtype.is_floating_point else tensor
    )


def fingerprint(value: Any) -> list[int]:
    """A number for each tensor that is the same for the same content, in any process."""
    return [_content(tensor.detach()) for tensor in tensors_in(value)]


def total_bytes(value: Any) -> int:
    """Bytes of all tensors, each element counted once."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_in(value))


def storage_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The whole memory behind a tensor, as bytes to read and write."""
    place = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return place.set_(tensor.untyped_storage())


def _content(tensor: torch.Tensor) -> int:
    flat = tensor.contiguous().reshape(-1).view(torch.uint8)
    if not flat.numel():
        return 0
    # Sums of whole and of every third byte: integers, so the order of addition does not matter.
    return int(flat.sum(dtype=torch.int64)) * 31 + int(flat[::3].sum(dtype=torch.int64))
