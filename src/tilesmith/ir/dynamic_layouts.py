"""What a kernel with runtime sizes still depends on: sizes and strides of 0 and 1, index width."""

from __future__ import annotations

from functools import lru_cache

INT32_LIMIT = 2**31 - 1

DynamicForm = tuple[tuple[int, ...], tuple[int, ...], bool]


@lru_cache(maxsize=4096)
def dynamic_form(shape: tuple[int, ...], strides: tuple[int, ...]) -> DynamicForm:
    """Sizes and strides with 2 for all but 0 and 1, and whether offsets need 64 bits."""
    span = sum((n - 1) * abs(s) for n, s in zip(shape, strides) if n)
    return plain_extents(shape), plain_extents(strides), span > INT32_LIMIT


def plain_extents(extents: tuple[object, ...]) -> tuple[int, ...]:
    """Each extent if it is 0 or 1, else 2; symbols stand for runtime values."""
    return tuple(2 if extent not in (0, 1) else int(extent == 1) for extent in extents)
