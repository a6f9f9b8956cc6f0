"""Whether two elements of one tensor are the same memory, as in what ``expand`` makes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from math import prod

MAX_COUNTED = 1 << 16
"""Elements that are looked at one by one; of larger tensors a part is."""


def may_overlap(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Quickly: False if every stride passes all that smaller ones reach."""
    if 0 in shape:
        return False
    reached = 0
    for stride, size in sorted((s, n) for s, n in zip(strides, shape) if n > 1):
        if stride <= reached:
            return True
        reached += stride * (size - 1)
    return False


@lru_cache(maxsize=4096)
def find_overlap(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether two elements are certain to be one; of many elements the first are looked at."""
    if not may_overlap(shape, strides):
        return False
    if any(stride == 0 and size > 1 for size, stride in zip(shape, strides)):
        return True
    sizes = list(shape)
    while prod(sizes) > MAX_COUNTED:
        longest = sizes.index(max(sizes))
        sizes[longest] = (sizes[longest] + 1) // 2
    positions = product(*(range(size) for size in sizes))
    offsets = {sum(i * s for i, s in zip(at, strides)) for at in positions}
    return len(offsets) < prod(sizes)
