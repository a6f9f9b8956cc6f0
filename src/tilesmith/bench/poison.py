"""Calls an implementation over memory that holds no old right values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tilesmith.bench.tensors import storage_bytes
from tilesmith.frontend.containers import tensors_in
from tilesmith.measure.timer import Work

POISON = 0xFF
"""As every byte: NaN in all floating-point types, -1 in integers."""
COPIES = 3


def poison_free_memory(shapes: Sequence[torch.Tensor], element_sizes: Sequence[int]) -> None:
    """Fill and free blocks like the given tensors, of each element size: allocators reuse them."""
    filled = [
        torch.empty(like.numel() * size, dtype=torch.uint8, device=like.device).fill_(POISON)
        for like in shapes
        for size in element_sizes
        for _ in range(COPIES)
    ]
    del filled


def poison_results(returned: Any, arguments: Any) -> None:
    """Overwrite results, so that a second call cannot hand them out again as its own."""
    kept = {tensor.untyped_storage().data_ptr() for tensor in tensors_in(arguments)}
    for tensor in tensors_in(returned):
        # A result may be an argument, or a view of one.
        if tensor.untyped_storage().data_ptr() not in kept and tensor.numel():
            storage_bytes(tensor.detach()).fill_(POISON)


def call_twice(work: Work, arguments: Any) -> tuple[Any, Any]:
    """The results of two calls, the second after those of the first were overwritten."""
    first = work()
    kept = [tensor.detach().clone() for tensor in tensors_in(first)]
    poison_results(first, arguments)
    del first
    return kept, work()
