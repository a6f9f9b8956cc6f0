"""Arrays with forbidden pages on both sides: touching anything next to them ends the process."""

from __future__ import annotations

import ctypes
import mmap

import torch

_NO_ACCESS = 0
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class GuardedArray:
    """Elements that end where a forbidden page begins, or begin where one ends."""

    def __init__(self, count: int, dtype: torch.dtype, *, at_end: bool = True) -> None:
        size = count * dtype.itemsize
        inner = max(-(-size // mmap.PAGESIZE), 1) * mmap.PAGESIZE
        self._memory = mmap.mmap(-1, inner + 2 * mmap.PAGESIZE)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        for page in (self._base, self._base + mmap.PAGESIZE + inner):
            assert _libc.mprotect(page, mmap.PAGESIZE, _NO_ACCESS) == 0
        start = mmap.PAGESIZE + (inner - size if at_end else 0)
        self.address = self._base + start
        self.elements = torch.frombuffer(
            self._memory, dtype=dtype, count=count or 1, offset=start if count else mmap.PAGESIZE
        )[:count]
