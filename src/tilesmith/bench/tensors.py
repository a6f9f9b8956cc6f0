"""Tensors inside arguments and results, however nested: found, widened, told apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import torch


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """All tensors in a value, in order; containers are searched."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in cast("dict[Any, Any]", value).values():
            yield from tensors_in(item)
    elif isinstance(value, (list, tuple)):
        for item in cast("list[Any]", value):
            yield from tensors_in(item)


def map_tensors(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The same value with every tensor replaced."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {name: map_tensors(item, change) for name, item in items}
    if isinstance(value, (list, tuple)):
        changed = [map_tensors(item, change) for item in cast("list[Any]", value)]
        if hasattr(cast("Any", value), "_fields"):
            return type(cast("Any", value))(*changed)
        return changed if isinstance(value, list) else tuple(changed)
    return value


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
