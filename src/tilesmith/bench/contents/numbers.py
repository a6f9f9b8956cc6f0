"""What is told of tensors, or kept of them, without memory of their size."""

from __future__ import annotations

from typing import Any

import torch

from tilesmith.frontend.containers import tensors_in

WORD = 8
"""Bytes."""


def content_number(tensor: torch.Tensor) -> int:
    """A number that is the same for the same content.

    Sums of all words and of every third one: the order of additions is no matter to integers, which
    wrap around. Sums of bytes would have to be made wider first: eight times the tensor.
    """
    elements = tensor.contiguous().reshape(-1)
    is_aligned = elements.storage_offset() * elements.itemsize % WORD == 0
    if not is_aligned or elements.stride() != (1,):
        elements = elements.new_empty(elements.shape).copy_(elements)
    flat = elements.view(torch.uint8)
    whole = flat.numel() // WORD * WORD
    words, rest = flat[:whole].view(torch.int64), flat[whole:].sum(dtype=torch.int64)
    return int(words.sum()) * 31 + int(words[::3].sum()) * 7 + int(rest)


def own_tensor(tensor: torch.Tensor, arguments: Any) -> torch.Tensor:
    """The same elements in memory that is theirs alone; a copy where it is not."""
    storage = tensor.untyped_storage()
    theirs = {other.untyped_storage().data_ptr() for other in tensors_in(arguments)}
    is_own = storage.data_ptr() not in theirs and storage.nbytes() == tensor.nbytes
    return tensor if is_own else tensor.clone()
