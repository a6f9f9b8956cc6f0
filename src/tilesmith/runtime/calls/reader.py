"""The native reader of tensors: compiled once by the machine's C compiler, then kept on the disk.

Where that is not possible (no compiler, no headers of Python, a torch without DLPack's C exchange
API) calls ask tensors one thing after the other in Python, with the same results.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any, Protocol, cast

import torch

from tilesmith.artifacts import LaunchParameter
from tilesmith.disk.entries import ObjectCache, object_key

NAME = "tensor_reader"
_FOLDER = Path(__file__).parent
_SOURCES = tuple(sorted(path.name for path in _FOLDER.glob("*.c")))
_FLAGS = ("-O2", "-shared", "-fPIC", "-fvisibility=hidden")
_TYPES = (torch.Tensor, torch.nn.Parameter)
"""Other classes of tensors may hide what they hold."""
_MAX_SECONDS = 60
_EXTENT = re.compile(r"(?P<tensor>.+)\.(?P<field>size|stride)\((?P<axis>\d+)\)")
_ADDRESS = 0
_FIELDS = {"size": 1, "stride": 2}


class ArgumentSignatures(Protocol):
    """A function of arguments that gives what was added for arguments like them."""

    otherwise: Callable[..., Any]
    """Called where nothing was."""
    anew: Callable[..., Any]
    """Runs a call for which there is no result."""
    watches: tuple[Callable[[], bool], ...]
    """Where one says true the result is None: torch traces the call."""
    slow_watches: tuple[Callable[[], bool], ...]
    """Likewise, of states that torch takes long to enter: not asked in each call."""
    calm: tuple[object, ...]
    """Dicts, each with a key and what it has there; where one has something else it is None."""
    are_recorded: Callable[[], bool]
    """Where it says true and a tensor requires a gradient the result is None."""
    is_observed: Callable[[], bool]
    """Asked like ``slow_watches``; where it says true ``run`` goes through ``observer``."""
    observer: Callable[..., Any]
    """Given a function and its arguments, calls it."""
    num_args: int  # of calls to which nothing needs to be added; -1: not known

    def __call__(self, *args: Any) -> Any:
        """What was added for such arguments, else the result of ``otherwise``."""
        ...

    def __len__(self) -> int: ...

    def run(self, *args: Any) -> Any:
        """Call ``call`` of the result with the arguments; ``anew`` where there is none."""
        ...

    def add(
        self,
        args: tuple[Any, ...],
        written: tuple[int, ...],
        result: object,
        is_read_once: bool = False,
        constants: tuple[int, ...] = (),
        is_exact: bool = False,
    ) -> None:
        """Give a result from now on; tensors at ``written`` must not overlap with others.

        Tensors count by sizes, strides, type and device, integers by whether they are short,
        floats not at all, everything else by equality. At positions of ``constants``, and in
        functions, numbers count by value; if exact, all sizes and strides do. Tensors that are read
        once reach the first ``Layout`` of the result as they were when ``run`` was called.
        """
        ...

    def clear(self) -> None:
        """Forget everything that was added."""
        ...


class Layout(Protocol):
    """Reads off tensors what was asked for; ValueError for one of elements without memory."""

    def values(self, *tensors: torch.Tensor) -> tuple[int, ...]:
        """The lowest four bits of all addresses, or-ed, and then each value."""
        ...

    def packed(self, *tensors: torch.Tensor) -> bytes:
        """The values as 64-bit numbers, one after the other."""
        ...


class TensorReader(Protocol):
    """What the compiled module has."""

    def Forms(  # noqa: N802
        self,
        otherwise: Callable[..., Any],
        are_sizes_fixed: bool,
        low: int,
        high: int,
        max_offset: int,
    ) -> ArgumentSignatures:
        """No forms yet.

        Where sizes are not fixed, forms hold of sizes and strides which are 0 or 1, and whether
        offsets exceed ``max_offset``; of integers whether they lie between ``low`` and ``high``.
        """
        ...

    def Layout(  # noqa: N802
        self, num_tensors: int, entries: tuple[tuple[int, int, int], ...], owner: int = 0
    ) -> Layout:
        """For each value a number of a tensor, 0 (address), 1 (size) or 2 (stride), an axis.

        ``owner``: the ``id`` of the result whose tensors are read once.
        """
        ...

    def Function(self, address: int) -> Callable[[bytes, int], None]:  # noqa: N802
        """The machine code at an address; ctypes takes 0.2 us to call it."""
        ...

    def answer_calls(self, kind: type, member: str) -> bool:
        """Signatures in this member run the calls that they recognise; of one class only."""
        ...

    FixedCall: Callable[..., Callable[..., Any]]
    """All of a call: what makes tensors, machine code, what is returned (``fixed_call.c``)."""


class CannotBuildError(Exception):
    """Why there is no native reader here."""


class ReaderStore:
    """The reader of this process: one serves all kernels, wherever their caches are."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_tried = False
        self._reader: TensorReader | None = None
        self.obstacle = ""  # why there is no reader; empty before the first attempt too

    def get(self, cache_dir: Path) -> TensorReader | None:
        """The reader, or None where it cannot be built."""
        with self._lock:
            if not self._is_tried:
                self._is_tried = True
                try:
                    self._reader = build_reader(cache_dir)
                except (CannotBuildError, OSError) as error:  # such as a disk without room
                    self.obstacle = str(error)
        return self._reader


@cache
def process_readers() -> ReaderStore:
    """The store of this process."""
    return ReaderStore()


def build_reader(cache_dir: Path, compiler: str | None = None) -> TensorReader:
    """The reader, built by that compiler if it is not on the disk.

    Raises CannotBuildError where that is not possible, OSError where no file can be written.
    """
    exchange = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if exchange is None:
        raise CannotBuildError(f"torch {torch.__version__} has no C exchange API of DLPack")
    texts = [(_FOLDER / name).read_text() for name in ("exchange.h", *_SOURCES)]
    # What machine code is for: the interpreter's version, its build, the machine.
    abi = f"{sys.implementation.cache_tag} {sysconfig.get_config_var('SOABI')} {sys.platform}"
    key = object_key([*texts, abi, *_FLAGS])
    content = ObjectCache(cache_dir).get(key, lambda: _compile(compiler))
    module: Any = _load(content)
    if not module.use(exchange, _TYPES, (torch.int8, torch.uint8), _sign_pairs()):
        raise CannotBuildError("DLPack's C exchange API has another version")
    _try_out(module)
    return cast("TensorReader", module)


def _sign_pairs() -> tuple[tuple[torch.Tensor, torch.Tensor], ...]:
    """Views that differ only in this: the sign of the second is flipped lazily."""
    parts = [torch.zeros(shape, dtype=torch.complex64) for shape in ((), (3,), (2, 5), (4, 1, 2))]
    pairs = [(z.imag, z.conj().imag) for part in parts for z in (part, part.to(torch.complex128))]
    return (*pairs, *((torch.nn.Parameter(x), torch.nn.Parameter(y)) for x, y in pairs))


def _try_out(reader: TensorReader) -> None:
    """Native code reads memory by a layout that torch promises: see that it is so."""
    base = torch.empty(64)
    for tensor in (base[3:].as_strided((2, 1, 3), (11, 7, 2)), base[0], base.bool()):
        entries = tuple((0, field, axis) for field in (1, 2) for axis in range(tensor.dim()))
        found = reader.Layout(1, ((0, 0, 0), *entries)).values(tensor)
        if found[1:] != (tensor.data_ptr(), *tensor.shape, *tensor.stride()):
            raise CannotBuildError("DLPack's C exchange API tells something else than torch")


def _compile(compiler: str | None) -> bytes:
    found = compiler or _find_compiler()
    headers = sysconfig.get_paths()["include"]
    # An extension finds the interpreter's functions when it is loaded; Apple's linker must be told.
    extra = ("-undefined", "dynamic_lookup") if sys.platform == "darwin" else ()
    sources = [str(_FOLDER / name) for name in _SOURCES]
    with TemporaryDirectory() as folder:
        result = Path(folder) / f"{NAME}.so"
        command = [found, *_FLAGS, *extra, f"-I{headers}", *sources, "-o", str(result)]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=_MAX_SECONDS)
            return result.read_bytes()
        except subprocess.CalledProcessError as error:
            first = error.stderr.decode(errors="replace").strip().splitlines()[:1]
            raise CannotBuildError(f"{found} failed: {''.join(first)}") from error
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CannotBuildError(f"{found} failed: {error}") from error


def _find_compiler() -> str:
    of_python = str(sysconfig.get_config_var("CC") or "").split()[:1]
    for path in filter(None, map(shutil.which, (*of_python, "cc", "gcc", "clang"))):
        return path
    raise CannotBuildError("no C compiler is installed")


def _load(content: bytes) -> ModuleType:
    """Import from a file that exists only meanwhile: what is on the disk is checked when read."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{NAME}.so"
        try:
            path.write_bytes(content)
            loader = ExtensionFileLoader(NAME, str(path))
            spec = spec_from_file_location(NAME, path, loader=loader)
            assert spec is not None
            module = module_from_spec(spec)
            loader.exec_module(module)
        except (OSError, ImportError) as error:
            raise CannotBuildError(f"the compiled reader cannot be loaded: {error}") from error
    return module


@dataclass(frozen=True)
class ReadingPlan:
    """What native code reads, by positions of parameters."""

    tensors: tuple[int, ...]  # those that are tensors
    positions: tuple[int, ...]
    """Those that are read: tensors, for their address, and their sizes and strides."""
    entries: tuple[tuple[int, int, int], ...]
    """For each position a number of a tensor, what of it, and an axis."""

    def make_layout(self, reader: TensorReader, owner: int = 0) -> Layout:
        """Native code that reads all of it at once."""
        return reader.Layout(len(self.tensors), self.entries, owner)


def plan_reading(parameters: Sequence[LaunchParameter]) -> ReadingPlan:
    """Tensors, and expressions such as ``x.size(0)`` where ``x`` is one of them."""
    tensors = [position for position, item in enumerate(parameters) if item.is_tensor]
    # Expressions that make a tensor may look alike: each tensor has a number of its own.
    order = {position: number for number, position in enumerate(tensors)}
    numbers = {parameters[position].source: number for position, number in order.items()}
    entries: dict[int, tuple[int, int, int]] = {}
    for position, item in enumerate(parameters):
        found = None if item.is_tensor else _EXTENT.fullmatch(item.source)
        if item.is_tensor:
            entries[position] = (order[position], _ADDRESS, 0)
        elif found is not None and found["tensor"] in numbers:
            tensor = numbers[found["tensor"]]
            entries[position] = (tensor, _FIELDS[found["field"]], int(found["axis"]))
    return ReadingPlan(tuple(tensors), tuple(entries), tuple(entries.values()))
