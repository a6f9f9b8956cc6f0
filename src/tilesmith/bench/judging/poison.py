"""Memory that is no result before a call wrote it: what a call leaves out is seen.

Memory that was just freed often holds the very values that are expected.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from tilesmith.frontend.containers import tensors_in
from tilesmith.numerics.reference_setup import bytes_of

POISON = 0xFF
"""As every byte: NaN in all floating-point types, -1 in integers."""
COPIES = 3
"""Of each size: an allocator may hand out any of its free blocks."""
SMALL, SMALL_COPIES = 2048, 8
"""In bytes: the C library keeps up to seven such blocks of a size as they were freed."""
M_PERTURB = -6
"""The option of glibc's ``mallopt`` for the bytes of memory that is handed out or freed."""
PERTURB = 1
"""Memory that is handed out has the complement as every byte: -1.7e38 as float32, -2 as int8."""


@contextmanager
def poisoned_allocations() -> Iterator[None]:
    """Memory that the C library hands out inside is poisoned, where the C library can do that."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        yield
        return
    mallopt(M_PERTURB, PERTURB)
    try:
        yield
    finally:
        mallopt(M_PERTURB, 0)


def poison_free_memory(shapes: Sequence[torch.Tensor], element_sizes: Sequence[int]) -> None:
    """Fill and free blocks like the given tensors, of each element size: allocators reuse them."""
    filled = [
        torch.empty(like.numel() * size, dtype=torch.uint8, device=like.device).fill_(POISON)
        for like in shapes
        for size in element_sizes
        for _ in range(SMALL_COPIES if like.numel() * size <= SMALL else COPIES)
    ]
    del filled


def poison_results(returned: Any, arguments: Any) -> None:
    """Overwrite results, so that a second call cannot hand them out again as its own."""
    kept = {tensor.untyped_storage().data_ptr() for tensor in tensors_in(arguments)}
    for tensor in tensors_in(returned):
        # A result may be an argument, or a view of one.
        if tensor.untyped_storage().data_ptr() not in kept and tensor.numel():
            bytes_of(tensor.detach()).fill_(POISON)
