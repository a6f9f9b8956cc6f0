"""Runs code that was compiled elsewhere. Every exported package has a copy of this file.

It needs torch and the standard library: no compiler, no Triton, not the package that made it.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import platform
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

FORMAT = 1
"""Of the manifest. A launcher reads its own format only."""
MANIFEST = "manifest.json"
OPENMP = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_INVALID_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT
_STATIC_SHARED_BYTES = 48 << 10


class PackageError(RuntimeError):
    """A package that was changed, or that has no code for this machine."""


def cdiv(a: int, b: int) -> int:
    """Division that rounds up."""
    return -(-a // b)


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is not below a number."""
    return 1 << max(0, n - 1).bit_length()


def num_sms(tensor: torch.Tensor) -> int:
    """How many multiprocessors the GPU of a tensor has."""
    return torch.cuda.get_device_properties(tensor.device).multi_processor_count


def manifest_hash(manifest: dict[str, Any]) -> str:
    """Of everything in a manifest but this hash."""
    rest = {key: value for key, value in manifest.items() if key != "hash"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a package; raises if it, or a file that it lists, is not as it was made."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        made, found = manifest["format"], manifest["hash"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise PackageError(f"{folder / MANIFEST} cannot be read: {error}") from None
    if made != FORMAT:
        raise PackageError(
            f"{folder} has format {made}, made by tilesmith {manifest.get('tilesmith')}; its "
            f"launcher reads format {FORMAT}: export the kernel again"
        )
    if found != manifest_hash(manifest):
        raise PackageError(f"{folder / MANIFEST} was changed after export: export the kernel again")
    for name, expected in manifest["files"].items():
        path = folder / name
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != expected:
            raise PackageError(f"{path} is missing or was changed after export")
    return manifest


Reader = Callable[..., tuple[Any, ...]]
"""From the values at the launch point to what code is given; raises ValueError for others."""


def load(module_file: str, readers: Sequence[Reader]) -> Callable[..., None]:
    """A function of the values at the launch point: the first code that was made for them runs."""
    folder = Path(module_file).parent
    manifest = read_manifest(folder)
    made = {"cpu": CpuCode, "cuda": CudaCode}
    pairs = [
        (read, made[entry["kind"]](folder, entry)) for read, entry in zip(readers, manifest["code"])
    ]

    def launch(*values: Any) -> None:
        problems: list[str] = []
        for read, code in pairs:
            try:
                given = read(*values)
            except ValueError as error:
                problems.append(f"{code.name}: {error}")
                continue
            problem = code.problem or code.run(*given)
            if problem is None:
                return
            problems.append(f"{code.name}: {problem}")
        raise ValueError(f"{manifest['kernel']}: no code for this call\n  " + "\n  ".join(problems))

    return launch


class CpuCode:
    """A shared library with one function of packed arguments and a number of threads."""

    def __init__(self, folder: Path, entry: dict[str, Any]) -> None:
        self.name: str = entry["name"]
        self._path, self._symbol = folder / entry["binary"], entry["entry"]
        self.problem = cpu_problem(entry["machine"], entry["features"])
        """Why this machine cannot run it."""
        self._entry: Any = None

    def run(self, packed: bytes, _kept: object) -> str | None:
        """Run it; ``_kept`` are tensors that nobody else may hold."""
        if self._entry is None:
            self._entry = self._load()
        self._entry(packed, torch.get_num_threads())

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


class CudaCode:
    """A cubin with one kernel, launched by the CUDA driver on torch's current stream."""

    def __init__(self, folder: Path, entry: dict[str, Any]) -> None:
        self.name: str = entry["name"]
        self.problem = None if torch.cuda.is_available() else "torch sees no CUDA device"
        """Why this machine cannot run it."""
        self._path, self._entry = folder / entry["binary"], entry
        self._offsets = parameter_offsets(entry["layout"])
        self._functions: dict[int, Any] = {}
        self._lock = threading.Lock()

    def run(self, packed: bytes, _kept: object, grid: tuple[int, int, int], device: int) -> Any:
        """Launch it; says why not if it was made for another GPU."""
        if 0 in grid:
            return None
        with torch.cuda.device(device):
            function = self._functions.get(device) or self._load(device)
            if isinstance(function, str):
                return function
            buffer = ctypes.create_string_buffer(packed, len(packed))
            base = ctypes.addressof(buffer)
            pointers = (ctypes.c_void_p * len(self._offsets))(*[base + o for o in self._offsets])
            entry = self._entry
            stream = ctypes.c_void_p(torch.cuda.current_stream(device).cuda_stream)
            given = (
                function,
                *grid,
                entry["threads"],
                1,
                1,
                entry["shared_bytes"],
                stream,
                pointers,
            )
            code = self._launch(given)
            if code == _INVALID_CONTEXT:
                # A thread of its own in which nothing has used the device yet.
                torch.cuda.current_stream(device).synchronize()
                code = self._launch(given)
            check(code)
        return None

    def _launch(self, given: tuple[Any, ...]) -> int:
        if self._entry["is_cooperative"]:
            return driver().cuLaunchCooperativeKernel(*given)
        return driver().cuLaunchKernel(*given, None)

    def _load(self, device: int) -> Any:
        """The kernel on a device, or why the device cannot run it; the device is current."""
        major, minor = torch.cuda.get_device_capability(device)
        if 10 * major + minor != self._entry["capability"]:
            made = self._entry["capability"]
            return f"made for capability {made}, this GPU has {10 * major + minor}"
        with self._lock:
            if device not in self._functions:
                self._functions[device] = self._load_function()
            return self._functions[device]

    def _load_function(self) -> Any:
        torch.cuda.current_stream().synchronize()  # makes torch's context the current one
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        check(driver().cuModuleLoadData(ctypes.byref(module), self._path.read_bytes()))
        name = self._entry["entry"].encode()
        check(driver().cuModuleGetFunction(ctypes.byref(function), module, name))
        shared = self._entry["shared_bytes"]
        if shared > _STATIC_SHARED_BYTES:
            check(driver().cuFuncSetAttribute(function, _MAX_DYNAMIC_SHARED, shared))
        return function


def parameter_offsets(layout: str) -> list[int]:
    """Where each parameter stands in memory that ``struct`` packed with this native layout."""
    sizes = [struct.calcsize(f"@{layout[: i + 1]}") for i in range(len(layout))]
    return [end - struct.calcsize(f"@{code}") for end, code in zip(sizes, layout)]


@lru_cache(maxsize=1)
def driver() -> Any:
    """The CUDA driver, which torch has loaded."""
    return ctypes.CDLL("libcuda.so.1")


def check(code: int) -> None:
    """Raise for an error of the driver."""
    if code:
        text = ctypes.c_char_p()
        driver().cuGetErrorString(code, ctypes.byref(text))
        raise PackageError(f"the CUDA driver says {(text.value or b'unknown error').decode()}")
