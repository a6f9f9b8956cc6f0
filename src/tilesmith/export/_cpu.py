"""Code for a CPU: a shared library, called on torch's own threads.

Every exported package has a copy of this file. It needs torch and the standard library.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

OPENMP = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")


class CpuCode:
    """A shared library with one function of packed arguments and a number of threads."""

    def __init__(self, folder: Path, entry: dict[str, Any]) -> None:
        self.name: str = entry["name"]
        self._path, self._symbol = folder / entry["binary"], entry["entry"]
        self.problem = cpu_problem(entry["machine"], entry["features"])
        """Why this machine cannot run it."""
        self.run: Callable[[bytes, int], Any] = self._run_first
        """Of packed arguments and a number of threads: None, or why it does not run here."""

    def _run_first(self, packed: bytes, num_threads: int) -> str | None:
        if self.problem is None:
            self.run = self._load()
        return self.problem or self.run(packed, num_threads)

    def _load(self) -> Any:
        library = ctypes.CDLL(str(self._path))
        table = (ctypes.c_void_p * len(OPENMP)).in_dll(library, "tilesmith_openmp")
        for position, address in enumerate(openmp_addresses()):
            table[position] = address
        entry = library[self._symbol]
        entry.argtypes, entry.restype = (ctypes.c_char_p, ctypes.c_int64), None
        return entry


@lru_cache(maxsize=1)
def openmp_addresses() -> tuple[int, ...]:
    """Where the functions of torch's OpenMP library stand; none: code runs on one thread.

    Two thread pools would have more threads than there are cores.
    """
    for path in sorted((Path(torch.__file__).parent / "lib").glob("libtorch_cpu.*")):
        try:
            handle = ctypes.CDLL(str(path))
            found = [ctypes.cast(handle[name], ctypes.c_void_p).value or 0 for name in OPENMP]
        except (OSError, AttributeError):
            continue
        return tuple(found)
    return ()


def cpu_problem(machine: str, features: Sequence[str]) -> str | None:
    """Why code for such a machine does not run on this one; None: it does."""
    if machine != f"{sys.platform} {platform.machine()}":
        return f"made for {machine}, this is {sys.platform} {platform.machine()}"
    known = cpu_features()
    missing = [name for name in features if known and plain(name) not in known]
    return f"this CPU lacks {', '.join(missing)}" if missing else None


@lru_cache(maxsize=1)
def cpu_features() -> frozenset[str]:
    """What the system says this CPU has; empty where it does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return frozenset()
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return frozenset(map(plain, flags.partition(":")[2].split()))


def plain(feature: str) -> str:
    """A name as compilers and systems both write it, but for dots, dashes and underscores."""
    return feature.replace("-", "").replace("_", "").replace(".", "")
