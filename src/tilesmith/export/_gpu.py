"""Code for a GPU: a cubin or an hsaco, launched by the driver on torch's current stream.

Every exported package has a copy of this file. It needs torch and the standard library.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable
from ctypes import byref
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch

PREFIXES = {"cuda": "cu", "hip": "hip"}
"""What names of the driver's functions begin with."""
COOPERATIVE = {"cuda": "cuLaunchCooperativeKernel", "hip": "hipModuleLaunchCooperativeKernel"}
DESCRIPTOR = "D"
"""In a layout: a tensor map, which is not packed but pointed to."""
HEAD = "7I4xQ16x"
"""What stands before the arguments of a launch, as the driver's ``CUlaunchConfig`` has it: programs
and threads along three axes, shared memory, the stream, and no attributes."""
_NUM_HEAD = 8
_STREAM_OFFSET = struct.calcsize("@7I4x")
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_INVALID_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT
_STATIC_SHARED_BYTES = 48 << 10
_DESCRIPTOR_BYTES = 128
_PROMOTE_128_BYTES = 2  # CU_TENSOR_MAP_L2_PROMOTION_L2_128B, as Triton has it
_MAX_DESCRIPTORS = 512

# Torch's own functions below, without the objects that it makes around them; not in every build.
_plain: Callable[[int], int] = lambda device: torch.cuda.current_stream(device).cuda_stream  # noqa: E731
_raw_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", _plain)
_current_device = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)


class DriverError(RuntimeError):
    """What the driver says of a launch."""


class GpuCode:
    """A cubin or hsaco with one kernel."""

    def __init__(self, folder: Path, entry: dict[str, Any]) -> None:
        self.name: str = entry["name"]
        is_here = torch.cuda.is_available() and (torch.version.hip is None) == (
            entry["kind"] == "cuda"
        )
        label = {"cuda": "CUDA", "hip": "ROCm"}[entry["kind"]]
        self.problem = None if is_here else f"torch sees no {label} device"
        """Why this machine cannot run it."""
        self._path, self._entry = folder / entry["binary"], entry
        self._threads = entry["threads"], 1, 1, entry["shared_bytes"]
        self._cluster: int = entry["cluster"]
        """Programs that share what is copied; grids count clusters."""
        self._functions: dict[int, ctypes.c_void_p] = {}
        self._lock = threading.Lock()
        self._free: dict[int, list[Launch]] = {}
        """For each device that has the kernel those that no launch uses now: each thread takes one
        and puts it back."""
        self._is_only = False
        """Whether there is no other device that could be the current one."""
        self._descriptors = [Descriptors(form) for form in entry["descriptors"]]

    def run(
        self,
        values: tuple[Any, ...],
        grid: tuple[int, int, int],
        device: int,
        *described: tuple[int, ...],
    ) -> str | None:
        """Launch it; says why not if it was made for another GPU.

        ``described`` has the address and the sizes for each descriptor.
        """
        if 0 in grid:
            return None
        free = self._free.get(device)
        if free is None or not (self._is_only or _current_device() == device):
            return self._run_elsewhere(values, grid, device, *described)
        try:
            made = free.pop()
        except IndexError:
            made = Launch(self._entry, self._functions[device])
        if self._cluster != 1:
            grid = (grid[0] * self._cluster, *grid[1:])
        try:
            made.fill(0, *grid, *self._threads, _raw_stream(device), *values)
        except struct.error as error:
            return f"a number does not fit: {error}"
        if described != made.described:
            made.describe(described, self._descriptors)
        code = made.start()
        if code:
            if code == _INVALID_CONTEXT:
                # A thread of its own in which nothing has used the device yet.
                torch.cuda.current_stream(device).synchronize()
                code = made.start()
            check(self._entry["kind"], code)
        free.append(made)
        return None

    def _run_elsewhere(
        self, values: tuple[Any, ...], grid: tuple[int, int, int], device: int, *described: Any
    ) -> str | None:
        """Launch it on a device that is not the current one, or does not have the kernel yet."""
        if self.problem is not None:
            return self.problem
        with torch.cuda.device(device):
            return self._load(device) or self.run(values, grid, device, *described)

    def _load(self, device: int) -> str | None:
        """Have the kernel on a device; says why the device cannot run it. The device is current."""
        found, made = gpu_arch(device), self._entry["arch"]
        if found != made:
            return f"made for {made}, this GPU is {found}"
        with self._lock:
            if device not in self._free:
                self._functions[device] = self._load_function()
                self._is_only = torch.cuda.device_count() == 1
                self._free[device] = []
        return None

    def _load_function(self) -> ctypes.c_void_p:
        # Makes torch's context the current one of this thread.
        torch.cuda.current_stream().synchronize()
        kind = self._entry["kind"]
        library, prefix = driver(kind), PREFIXES[kind]
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        check(kind, library[f"{prefix}ModuleLoadData"](byref(module), self._path.read_bytes()))
        name = self._entry["entry"].encode()
        check(kind, library[f"{prefix}ModuleGetFunction"](byref(function), module, name))
        shared = self._entry["shared_bytes"]
        if shared > _STATIC_SHARED_BYTES and kind == "cuda":
            check(kind, library.cuFuncSetAttribute(function, _MAX_DYNAMIC_SHARED, shared))
        return function


def gpu_arch(device: int) -> str:
    """What compilers call a GPU."""
    if torch.version.hip is not None:
        return torch.cuda.get_device_properties(device).gcnArchName.partition(":")[0]
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


class Launch:
    """Memory for what the driver is given at one launch of a function, and the call.

    Every number is packed into one buffer, and what the driver's function takes are objects that
    were made once: ``ctypes`` takes longer to convert a number than all else of a launch does.
    """

    def __init__(self, entry: dict[str, Any], function: ctypes.c_void_p) -> None:
        layout: str = entry["layout"]
        packed, fixed = layout.replace(DESCRIPTOR, ""), entry["fixed"]
        num_given = len(packed) - len(fixed)
        whole = struct.Struct(f"@{HEAD}{packed}")
        offsets = iter(parameter_offsets(packed))
        self._buffer = ctypes.create_string_buffer(whole.size)
        self._positions = [i for i, code in enumerate(layout) if code == DESCRIPTOR]
        base = ctypes.addressof(self._buffer)
        places = [0 if code == DESCRIPTOR else base + next(offsets) for code in layout]
        self._pointers = (ctypes.c_void_p * max(1, len(places)))(*places)
        whole.pack_into(self._buffer, 0, *[0] * (_NUM_HEAD + num_given), *fixed)
        given = struct.Struct(f"@{HEAD}{packed[:num_given]}")
        self.fill: Callable[..., None] = partial(given.pack_into, self._buffer)
        """Of 0, the grid, threads along its axes, shared memory, the stream, and the arguments but
        for the last ones, if they are always the same."""
        self.start: Callable[[], int] = self._bind(entry, function)
        """Has the driver launch it; a number other than 0 says what is wrong."""
        self.described: tuple[Any, ...] = ()
        """What its descriptors are of."""
        self._kept: list[Any] = []

    def _bind(self, entry: dict[str, Any], function: ctypes.c_void_p) -> Callable[[], int]:
        kind, pointers = entry["kind"], self._pointers
        library = driver(kind)
        if kind == "cuda" and not entry["is_cooperative"]:
            return partial(library["cuLaunchKernelEx"], self._buffer, function, pointers, None)
        numbers = [ctypes.c_uint.from_buffer(self._buffer, 4 * i) for i in range(7)]
        stream = ctypes.c_void_p.from_buffer(self._buffer, _STREAM_OFFSET)
        given = function, *numbers, stream, pointers
        if entry["is_cooperative"]:
            return partial(library[COOPERATIVE[kind]], *given)
        return partial(library["hipModuleLaunchKernel"], *given, None)

    def describe(self, described: tuple[Any, ...], descriptors: list[Descriptors]) -> None:
        """Point to descriptors, which are kept for as long as a launch may read them."""
        found = [each.find(key) for each, key in zip(descriptors, described)]
        for position, (place, _) in zip(self._positions, found):
            self._pointers[position] = place
        self.described, self._kept = described, found


class Descriptors:
    """Tensors as the GPU's copy engine knows them; the driver writes each once."""

    def __init__(self, form: dict[str, Any]) -> None:
        self._form = form
        self._known: dict[tuple[int, ...], tuple[int, Any]] = {}

    def find(self, described: tuple[int, ...]) -> tuple[int, Any]:
        """The descriptor of an address and sizes: where it lies, and its memory."""
        known = self._known.get(described)
        if known is None:
            # Addresses repeat, since allocators reuse memory; a table that still grows is emptied.
            if len(self._known) >= _MAX_DESCRIPTORS:
                self._known = {}
            known = self._known[described] = self._encode(*described)
        return known

    def _encode(self, address: int, *sizes: int) -> tuple[int, Any]:
        form, rank = self._form, len(sizes)
        memory = ctypes.create_string_buffer(2 * _DESCRIPTOR_BYTES)
        # The driver wants it at a multiple of 64 bytes.
        place = -(-ctypes.addressof(memory) // 64) * 64
        steps = [stride * form["element_bytes"] for stride in form["strides"][:-1]]
        given = (
            ctypes.c_void_p(place), form["type"], rank, ctypes.c_void_p(address),
            (ctypes.c_uint64 * rank)(*sizes[::-1]), (ctypes.c_uint64 * rank)(*steps[::-1]),
            (ctypes.c_uint32 * rank)(*form["box"][::-1]), (ctypes.c_uint32 * rank)(*[1] * rank),
            0, form["swizzle"], _PROMOTE_128_BYTES, 0,
        )  # fmt: skip
        check("cuda", driver("cuda").cuTensorMapEncodeTiled(*given))
        return place, memory


def parameter_offsets(layout: str) -> list[int]:
    """Where each parameter stands in memory that ``struct`` packed with this native layout."""
    sizes = [struct.calcsize(f"@{HEAD}{layout[: i + 1]}") for i in range(len(layout))]
    return [end - struct.calcsize(f"@{code}") for end, code in zip(sizes, layout)]


@lru_cache(maxsize=2)
def driver(kind: str) -> Any:
    """The driver's library, which torch has loaded."""
    if kind == "cuda":
        return ctypes.CDLL("libcuda.so.1")
    # Another copy than torch's would know nothing of its streams.
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    paths = [line.split()[-1] for line in lines if "libamdhip64.so" in line]
    return ctypes.CDLL(paths[0] if paths else "libamdhip64.so")


def check(kind: str, code: int) -> None:
    """Raise for an error of the driver."""
    if not code:
        return
    text = ctypes.c_char_p()
    if kind == "cuda":
        driver(kind).cuGetErrorString(code, byref(text))
    else:
        driver(kind).hipGetErrorString.restype = ctypes.c_char_p
        text.value = driver(kind).hipGetErrorString(code)
    raise DriverError(f"the driver says {(text.value or b'unknown error').decode()}")
