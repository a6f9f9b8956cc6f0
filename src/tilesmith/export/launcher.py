"""Runs code that was compiled elsewhere. Every exported package has a copy of this file.

It needs torch and the standard library: no compiler, no Triton, not the package that made it.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import json
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from ctypes import byref
from functools import cache, cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import torch

FORMAT = 2
"""Of the manifest. A launcher reads its own format only."""
MANIFEST = "manifest.json"
PREFIXES = {"cuda": "cu", "hip": "hip"}
"""What names of the driver's functions begin with."""
LAUNCHES = {
    "cuda": ("cuLaunchKernel", "cuLaunchCooperativeKernel"),
    "hip": ("hipModuleLaunchKernel", "hipModuleLaunchCooperativeKernel"),
}
DESCRIPTOR = "D"
"""In a layout: a tensor map, which is not packed but pointed to."""
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


class PackageError(RuntimeError):
    """A package that was changed, or that has no code for this machine."""


def cdiv(a: int, b: int) -> int:
    """Division that rounds up."""
    return -(-a // b)


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is not below a number."""
    return 1 << max(0, n - 1).bit_length()


@cache
def num_sms(device: int) -> int:
    """How many multiprocessors a GPU has."""
    return torch.cuda.get_device_properties(device).multi_processor_count


def manifest_hash(manifest: dict[str, Any]) -> str:
    """Of everything in a manifest but this hash."""
    rest = {key: value for key, value in manifest.items() if key != "hash"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


@lru_cache(maxsize=1)
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


Reader = Callable[..., Any]
"""Of a function and the values at the launch point: checks them (ValueError), calls it with what
the code takes, and gives its answer: None, or why the code does not run here."""
Ready = dict[Any, tuple[Reader, Any]]
"""For sizes that were met before: the code that ran, and its reader."""


def load(
    module_file: str,
    readers: Mapping[str, Reader],
    sizes: Callable[..., Any],
    sources: Mapping[str, Reader],
) -> tuple[Ready, Callable[..., None]]:
    """A table of codes that have run, and a function of the values at a launch point that adds one.

    Args:
        module_file: a file of the package.
        readers: those of the codes of this launch point, by their names.
        sizes: of the values, those that tell codes apart: the key of the table.
        sources: from the same values to what source takes, for codes that Triton could compile.
    """
    codes = Codes(Path(module_file).parent, readers, sizes, sources)
    return codes.ready, codes.launch


class Codes:
    """The codes of a launch point. The first runs that was made for the values of a call."""

    def __init__(
        self,
        folder: Path,
        readers: Mapping[str, Reader],
        sizes: Callable[..., Any],
        sources: Mapping[str, Reader],
    ) -> None:
        manifest = read_manifest(folder)
        self._folder, self._kernel = folder, manifest["kernel"]
        self._sizes, self._sources = sizes, sources
        self.ready: Ready = {}
        self._all: list[tuple[str, str, tuple[Reader, Any]]] = []
        self._by_sizes: dict[Any, list[Any]] = {}
        for entry in manifest["code"]:
            if entry["name"] in readers:
                pair = readers[entry["name"]], make_code(folder, entry)
                self._all.append((entry["name"], entry["kind"], pair))
                self._by_sizes.setdefault(_as_key(entry["shapes"]), []).append(self._all[-1])

    def launch(self, *values: Any) -> None:
        """Run the first that fits; ValueError has what each was made for."""
        try:
            key = self._sizes(*values)
        except AttributeError:  # no tensor: each code says so
            key = None
        problems, elsewhere, kinds = list[str](), list[str](), set[str]()
        for name, kind, pair in self._by_sizes.get(key, self._all):
            try:
                problem = pair[0](pair[1].run, *values)
            except (ValueError, AttributeError) as error:
                problem = str(error)
            else:
                elsewhere.append(name)
            if problem is None:
                # Where another of its kind was refused, that one may fit the next call.
                self.ready |= {key: pair} if kind not in kinds else {}
                return
            problems.append(f"{name}: {problem}")
            kinds.add(kind)
        for name in filter(self._sources.__contains__, elsewhere):
            problem = self._compile(name, values)
            if not problem:
                return
            problems.append(f"{name}: {problem}")
        listed = "\n  ".join(problems)
        raise ValueError(f"{self._kernel}: no code for this call\n  {listed}")

    def _compile(self, name: str, values: tuple[Any, ...]) -> str:
        """Run what was made for such a call and for another GPU from its source; or why not."""
        given = self._sources[name](*values)
        return _sibling("_from_source").run(self._folder / "source" / f"{name}.py", given)


def _as_key(shapes: Sequence[Sequence[int]]) -> Any:
    """Sizes of a manifest as calls give them: of one tensor without a tuple around."""
    listed = tuple(map(tuple, shapes))
    return listed[0] if len(listed) == 1 else listed


def make_code(folder: Path, entry: dict[str, Any]) -> Any:
    """Code of the manifest, as an object with ``run``."""
    return (_sibling("_cpu").CpuCode if entry["kind"] == "cpu" else GpuCode)(folder, entry)


def _sibling(name: str) -> Any:
    """Another file of the package, when it is needed."""
    return importlib.import_module(f"{__package__}.{name}")


class GpuCode:
    """A cubin or hsaco with one kernel, launched by the driver on torch's current stream."""

    def __init__(self, folder: Path, entry: dict[str, Any]) -> None:
        self.name: str = entry["name"]
        is_here = torch.cuda.is_available() and (torch.version.hip is None) == (
            entry["kind"] == "cuda"
        )
        label = {"cuda": "CUDA", "hip": "ROCm"}[entry["kind"]]
        self.problem = None if is_here else f"torch sees no {label} device"
        """Why this machine cannot run it."""
        self._path, self._entry = folder / entry["binary"], entry
        self._functions: dict[int, ctypes.c_void_p] = {}
        """The kernel on each device."""
        self._lock = threading.Lock()
        self._arguments: list[Arguments] = []
        """Those that no launch uses now: each thread takes one and puts it back."""
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
        function = self._functions.get(device)
        if function is None or _current_device() != device:
            if self.problem is not None:
                return self.problem
            with torch.cuda.device(device):
                return self._load(device) or self.run(values, grid, device, *described)
        try:
            arguments = self._arguments.pop()
        except IndexError:
            arguments = Arguments(self._entry["layout"])
        try:
            arguments.pack(0, *values)
        except struct.error as error:
            return f"a number does not fit: {error}"
        if described:
            arguments.describe([d.find(key) for d, key in zip(self._descriptors, described)])
        given = function, *grid, _raw_stream(device), arguments.pointers
        code = self._launch(*given)
        if code == _INVALID_CONTEXT:
            # A thread of its own in which nothing has used the device yet.
            torch.cuda.current_stream(device).synchronize()
            code = self._launch(*given)
        check(self._entry["kind"], code)
        self._arguments.append(arguments)
        return None

    @cached_property
    def _launch(self) -> Callable[..., int]:
        """The driver's function of the kernel, a grid, a stream and arguments."""
        entry, library = self._entry, driver(self._entry["kind"])
        name = LAUNCHES[entry["kind"]][entry["is_cooperative"]]
        call, threads, each = library[name], entry["threads"], entry["cluster"]
        extra, shared = () if entry["is_cooperative"] else (None,), entry["shared_bytes"]
        pointers = [ctypes.c_void_p] * (2 + len(extra))
        call.argtypes = (ctypes.c_void_p, *[ctypes.c_uint] * 7, *pointers)

        def launch(function: Any, x: int, y: int, z: int, stream: int, pointers: Any) -> int:
            return call(function, x * each, y, z, threads, 1, 1, shared, stream, pointers, *extra)

        return launch

    def _load(self, device: int) -> str | None:
        """Have the kernel on a device; says why the device cannot run it. The device is current."""
        found, made = gpu_arch(device), self._entry["arch"]
        if found != made:
            return f"made for {made}, this GPU is {found}"
        with self._lock:
            if device not in self._functions:
                self._functions[device] = self._load_function()
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


class Arguments:
    """Memory for the arguments of one launch, and pointers to each of them."""

    def __init__(self, layout: str) -> None:
        packed = layout.replace(DESCRIPTOR, "")
        offsets = iter(parameter_offsets(packed))
        self._buffer = ctypes.create_string_buffer(max(1, struct.calcsize(f"@{packed}")))
        self._described = [i for i, code in enumerate(layout) if code == DESCRIPTOR]
        base = ctypes.addressof(self._buffer)
        places = [0 if code == DESCRIPTOR else base + next(offsets) for code in layout]
        self.pointers = (ctypes.c_void_p * len(places))(*places)
        self.pack = partial(struct.Struct(f"@{packed}").pack_into, self._buffer)
        self._kept: list[tuple[int, Any]] = []

    def describe(self, found: list[tuple[int, Any]]) -> None:
        """Point to descriptors, which are kept for as long as a launch may read them."""
        self._kept = found
        for position, (place, _) in zip(self._described, found):
            self.pointers[position] = place


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
    sizes = [struct.calcsize(f"@{layout[: i + 1]}") for i in range(len(layout))]
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
    raise PackageError(f"the driver says {(text.value or b'unknown error').decode()}")
