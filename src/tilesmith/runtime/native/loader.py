"""Object code to a function of this process: linked with torch's thread pool, libm and libc.

One pool for torch and for generated code: two would have more threads than there are cores.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch

import tilesmith.exc as errors
from tilesmith.artifacts import Artifact
from tilesmith.runtime.native.host_cpu import can_run, host_target
from tilesmith.runtime.native.machine_code import code_maker, compile_artifact, llvm

Entry = Callable[[bytes, int], None]
_ENTRY_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_int64)
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


MOST_LINKED = 64
"""Objects that one linker takes: it keeps some 10 KiB of each that is gone, until it goes too."""


class Loader:
    """Links objects into this process.

    A linker goes when it is full and all of its functions have gone.
    """

    def __init__(self) -> None:
        self._linker: Any = None
        self._num_linked = 0
        self._lock = threading.Lock()

    def load(self, content: bytes, name: str) -> Entry:
        """The function of that name in an object; its code lives as long as the function."""
        builder = llvm().JITLibraryBuilder().add_object_img(content).add_current_process()
        addresses = openmp_addresses()
        if addresses is None:
            builder.add_object_img(code_maker(host_target()).make_object(SERIAL))
        for symbol, address in (addresses or {}).items():
            builder.import_symbol(symbol, address)
        linker, number = self._next_place()
        try:
            library = builder.export_symbol(name).link(linker, f"kernel_{number}")
        except RuntimeError as error:
            raise errors.InternalError(problem=f"cannot link `{name}`: {error}") from error
        entry: Any = _ENTRY_TYPE(library[name])
        entry.library, entry.linker = library, linker
        return entry

    def _next_place(self) -> tuple[Any, int]:
        """A linker with room, and the number of the object in it: a name is used only once."""
        with self._lock:
            number = self._num_linked % MOST_LINKED
            if number == 0:
                self._linker = llvm().create_lljit_compiler(use_jit_link=True)
            self._num_linked += 1
            return self._linker, number


@cache
def process_loader() -> Loader:
    """The loader of this process."""
    return Loader()


def load_artifact(artifact: Artifact, cache_dir: Path) -> Entry:
    """The artifact's function, ready to call with packed arguments and a number of threads."""
    host = host_target()
    if not can_run(artifact.target, host):
        raise errors.BackendUnsupported(
            operation=f"running code for {artifact.target} on a machine with {host.arch}",
            backend="cpu",
        )
    try:
        return process_loader().load(compile_artifact(artifact, cache_dir), artifact.name)
    except errors.InternalError:  # what is on the disk may be whole and still not fit
        content = compile_artifact(artifact, cache_dir, is_new=True)
        return process_loader().load(content, artifact.name)


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
