"""Asks for huge pages under large fresh memory.

First writes to small pages can cost more than a kernel. One system call, and the system is free to
ignore it.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Callable
from functools import cache

import torch

WORTHWHILE_BYTES = 4 << 20
_HUGE = 14  # MADV_HUGEPAGE of Linux, where it has this number on every architecture


def inner_pages(address: int, size: int, page: int = mmap.PAGESIZE) -> tuple[int, int]:
    """Start and length of the whole pages in a piece of memory."""
    start = -(-address // page) * page
    return start, max(0, (address + size) // page * page - start)


@cache
def _madvise() -> Callable[[int, int, int], int] | None:
    if not sys.platform.startswith("linux"):
        return None
    function = getattr(ctypes.CDLL(None), "madvise", None)
    if function is not None:
        function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return function


def advise_huge_pages(tensor: torch.Tensor) -> None:
    """Ask for huge pages under a tensor's memory."""
    madvise = _madvise()
    storage = tensor.untyped_storage()
    start, size = inner_pages(storage.data_ptr(), storage.nbytes())
    if madvise is not None and size:
        madvise(start, size, _HUGE)
