"""The thread pool torch uses, for generated code: one pool, no oversubscription."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import torch

SYMBOLS = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
SERIAL = """
define void @GOMP_parallel(ptr %function, ptr %data, i32 %threads, i32 %flags) {
  call void %function(ptr %data)
  ret void
}
define i32 @omp_get_thread_num() {
  ret i32 0
}
define i32 @omp_get_num_threads() {
  ret i32 1
}
"""
"""Stands in where torch brings no OpenMP with these entry points: one thread."""


@cache
def openmp_addresses() -> Mapping[str, int] | None:
    """Where the functions of torch's OpenMP library stand in this process; None: it has none."""
    folder = Path(torch.__file__).parent / "lib"
    for path in sorted(folder.glob("libtorch_cpu.*")):
        found = find_addresses(path)
        if found is not None:
            return found
    return None


def find_addresses(library: Path) -> Mapping[str, int] | None:
    """The functions as a library that is already loaded sees them.

    A lookup through its handle also searches the libraries it was linked with.
    """
    try:
        handle = ctypes.CDLL(str(library))
        found = {name: ctypes.cast(getattr(handle, name), ctypes.c_void_p) for name in SYMBOLS}
    except (OSError, AttributeError):
        return None
    return {name: pointer.value or 0 for name, pointer in found.items()}
