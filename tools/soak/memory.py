"""Where the memory of a process is: what malloc counts, what a GPU holds, which code is loaded."""

from __future__ import annotations

import ctypes
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from tilesmith.runtime.launchers import unloading

MOST_SHOWN = 12
_MALLOC_FIELDS = (
    *("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks"),
    *("fsmblks", "uordblks", "fordblks", "keepcost"),
)


class _MallocInfo(ctypes.Structure):
    """What glibc's ``mallinfo2`` tells of all arenas together; bytes."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in _MALLOC_FIELDS)


@dataclass(frozen=True)
class Memory:
    """MB, and how many modules."""

    malloc_used: float = 0.0
    """Without what malloc has mapped for one piece each."""
    malloc_free: float = 0.0
    """Kept by malloc for later: fragmentation shows here."""
    gpu_reserved: float = 0.0
    """By torch's allocator for this process."""
    gpu_free: float = 0.0
    """Of the whole device, which others may use, too."""
    loaded: int = 0
    """Modules that Triton has loaded so far."""
    unloaded: int = 0
    """Those of them that were unloaded again."""

    def line(self) -> str:
        """As it is printed."""
        text = f"malloc {self.malloc_used:6.1f} used {self.malloc_free:5.1f} free"
        if self.loaded or self.gpu_reserved:
            text += f"  gpu {self.gpu_reserved:6.1f} ours {self.gpu_free:8.1f} free"
            text += f"  modules {self.loaded} loaded {self.unloaded} unloaded"
        return text


UNKNOWN = Memory()


def malloc_mb() -> tuple[float, float]:
    """In use, and free within malloc's arenas; zeros where libc does not tell."""
    find: Any = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if find is None:
        return 0.0, 0.0
    find.restype = _MallocInfo
    found = find()
    return found.uordblks / 1e6, found.fordblks / 1e6


class Modules:
    """Counts what Triton loads from now on, by the hook that it offers."""

    def __init__(self, device: str) -> None:
        self.loaded = 0
        if device != "cpu":
            import_module("triton").knobs.runtime.kernel_load_end_hook.add(self._count)

    def _count(self, *_: object) -> None:
        self.loaded += 1

    def memory(self) -> Memory:
        """Now."""
        used, free = malloc_mb()
        reserved = available = 0.0
        if torch.cuda.is_available():
            reserved = torch.cuda.memory_reserved() / 1e6
            available = torch.cuda.mem_get_info()[0] / 1e6
        return Memory(
            used, free, reserved, available, self.loaded, sum(unloading.unloaded.values())
        )


def growth_by_file() -> Callable[[], list[str]]:
    """Begin to trace what Python allocates; the function tells by file what has grown since."""
    tracemalloc.start()
    before = tracemalloc.take_snapshot()

    def told() -> list[str]:
        found = tracemalloc.take_snapshot().compare_to(before, "filename")
        tracemalloc.stop()
        return [
            f"{item.size_diff / 1e3:9.1f} KB  {item.count_diff:7} pieces  "
            + "/".join(Path(item.traceback[0].filename).parts[-3:])
            for item in found[:MOST_SHOWN]
        ]

    return told
