"""What is told of tensors, or kept of them, without memory of their size."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import torch

from tilesmith.frontend.containers import tensors_in

WORD = 8
"""Bytes."""
WIDTH = 4096
"""Words in a row."""
PIECES = {"cpu": 32}
"""Rows that are summed both ways while they are in a cache."""
LARGE_PIECE = 1 << 14
"""Of other devices, where a launch costs more than reading twice."""


def content_number(tensor: torch.Tensor) -> int:
    """A number that is the same for the same content.

    A digest of what is left of a whole number of rows, and of sums by rows and by columns: two
    words that change places differ in one of the two. The order of additions is no matter to
    integers, which wrap around. A digest of all of it would have to copy it from a device.
    """
    elements = tensor.contiguous().reshape(-1)
    is_aligned = elements.storage_offset() * elements.itemsize % WORD == 0
    if not is_aligned or elements.stride() != (1,):
        elements = elements.new_empty(elements.shape).copy_(elements)
    flat = elements.view(torch.uint8)
    whole = flat.numel() // (WORD * WIDTH) * (WORD * WIDTH)
    matrix = flat[:whole].view(torch.int64).view(-1, WIDTH)
    columns, rows = matrix.new_zeros(WIDTH), [matrix.new_empty(0)]
    for piece in matrix.split(PIECES.get(tensor.device.type, LARGE_PIECE)):
        columns += piece.sum(0)
        rows.append(piece.sum(1))
    sums = torch.cat([columns, *rows]).view(torch.uint8)
    digest = blake2b(torch.cat([sums, flat[whole:]]).cpu().numpy().tobytes(), digest_size=WORD)
    return int.from_bytes(digest.digest(), "little")


def own_tensor(tensor: torch.Tensor, arguments: Any) -> torch.Tensor:
    """The same elements in memory that is theirs alone; a copy where it is not."""
    storage = tensor.untyped_storage()
    theirs = {other.untyped_storage().data_ptr() for other in tensors_in(arguments)}
    is_own = storage.data_ptr() not in theirs and storage.nbytes() == tensor.nbytes
    return tensor if is_own else tensor.clone()
