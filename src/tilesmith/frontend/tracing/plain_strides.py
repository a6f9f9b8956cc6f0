"""Strides that follow from sizes that are constants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import torch


def plain_strides(tensor: torch.Tensor, sizes: Sequence[Any]) -> Iterator[int]:
    """The axes whose strides are products of plain numbers among the sizes of a new tensor.

    ``torch.empty([n, 3])`` has rows that are three elements apart, however many there are.
    """
    if len(sizes) != tensor.dim():
        return
    for axis in range(tensor.dim()):
        inner = sizes[axis + 1 :]
        are_plain = all(type(size) is int for size in inner)
        if are_plain and tensor.stride(axis) == prod(inner):
            yield axis
