"""Runs a kernel's host code up to the launch point: what a launch would get, without a launch.

Tensors become views of numbered regions of memory. A region is a storage, or of one that is mostly
unused the span in use. Regions start at multiples of ``ALIGNMENT``, so a copy that starts at one
too leaves every tensor aligned as it was. They keep the captured tensors alive, so addresses stay
theirs during a search. Another process loads them from a file: tensors and numbers, never code.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch

from tilesmith.analysis.effects import is_elsewhere, tensors_read, tensors_written
from tilesmith.artifacts import Artifact
from tilesmith.frontend.trace import HostReturnedError
from tilesmith.interpreter.torch_dtypes import from_torch
from tilesmith.ir.function import Function
from tilesmith.ir.traversal import walk_function
from tilesmith.ir.types import TensorType
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.jit.executables import CapturedLaunch
from tilesmith.lab.folders import temporary_folder
from tilesmith.lab.workload.binding import ALIGNMENT, Argument, Binding, TensorRef
from tilesmith.numerics.reference_setup import bytes_of
from tilesmith.schedule.config import Config

WORTHWHILE_SHARE = 0.5
"""A storage of which less is in use is not taken whole."""
_CHUNK = 1 << 20
_WORD = 8
_PREFIX = "tilesmith-workload-"
_MEMORY_DISK = Path("/dev/shm")
_HEADROOM = 2
"""A disk in memory must have room for that many times the workload."""


class CaptureError(Exception):
    """A launch that no other process can repeat; says why."""


@dataclass(frozen=True)
class Region:
    """Some bytes in a row."""

    start: int
    """An address, a multiple of ``ALIGNMENT``."""
    nbytes: int
    pieces: tuple[tuple[int, torch.Tensor], ...]
    """Where in the region bytes are known, and these bytes as a view of the memory itself."""

    @property
    def stop(self) -> int:
        """One past the last address."""
        return self.start + self.nbytes

    def read(self) -> torch.Tensor:
        """A copy of the bytes in host memory; 0 where they are not known."""
        content = torch.zeros(self.nbytes, dtype=torch.uint8)
        for offset, piece in self.pieces:
            content[offset : offset + piece.numel()] = piece.cpu()
        return content


_EMPTY = Region(0, 0, ())


class _Span(NamedTuple):
    """Addresses of one storage that must be kept."""

    start: int
    stop: int
    content: torch.Tensor


class Memory:
    """The regions behind some tensors, numbered after those of ``basis`` and without them."""

    def __init__(self, tensors: Iterable[torch.Tensor], basis: Memory | None = None) -> None:
        tensors = [x for x in tensors if basis is None or basis.reference(x) is None]
        for tensor in tensors:
            _check(tensor)
        by_storage: dict[int, list[torch.Tensor]] = {}
        for tensor in filter(torch.numel, tensors):
            by_storage.setdefault(tensor.untyped_storage().data_ptr(), []).append(tensor)
        spans = [_span_of(group) for group in by_storage.values()]
        occupied = _merge(sorted(spans, key=lambda span: (span.start, span.stop)))
        # Tensors without elements live in the first region, which has none either.
        self.regions = (_EMPTY, *occupied)
        self._starts = [region.start + region.pieces[0][0] for region in occupied]
        self._basis = basis
        self.first = 0 if basis is None else len(basis.regions)

    @property
    def nbytes(self) -> int:
        """Bytes of all regions."""
        return sum(region.nbytes for region in self.regions)

    def reference(self, tensor: torch.Tensor) -> TensorRef | None:
        """The tensor as a view of a region, also of the basis; None if it is not inside one."""
        known = None if self._basis is None else self._basis.reference(tensor)
        if known is not None:
            return known
        number, offset = 0, 0
        if tensor.numel():
            number = bisect_right(self._starts, tensor.data_ptr())
            region = self.regions[number]
            if not number or tensor.data_ptr() + span_bytes(tensor) > region.stop:
                return None
            offset, odd = divmod(tensor.data_ptr() - region.start, tensor.itemsize)
            if odd:
                raise CaptureError("a tensor starts in the middle of an element")
        dtype = str(tensor.dtype).removeprefix("torch.")
        size, stride = tuple(map(int, tensor.size())), tuple(map(int, tensor.stride()))
        return TensorRef(self.first + number, dtype, size, stride, offset)


def span_bytes(tensor: torch.Tensor) -> int:
    """Bytes from the first to the last element of a tensor that has some."""
    last = sum((n - 1) * stride for n, stride in zip(tensor.size(), tensor.stride()))
    return (last + 1) * tensor.itemsize


def _check(tensor: torch.Tensor) -> None:
    try:
        from_torch(tensor.dtype)
    except TypeError as error:
        raise CaptureError(f"a tensor has an element type that kernels lack: {error}") from None
    if tensor.layout is not torch.strided or tensor.is_meta:
        raise CaptureError(f"a tensor has no plain memory ({tensor.layout} on {tensor.device})")
    if tensor.is_neg():
        raise CaptureError("a tensor is a view with its sign flipped lazily: call .resolve_neg()")


def _span_of(tensors: Sequence[torch.Tensor]) -> _Span:
    content = bytes_of(tensors[0].detach())
    base = content.data_ptr()
    start = min(tensor.data_ptr() for tensor in tensors)
    stop = max(tensor.data_ptr() + span_bytes(tensor) for tensor in tensors)
    if stop - start >= WORTHWHILE_SHARE * content.numel():
        start, stop = base, base + content.numel()
    return _Span(start, stop, content[start - base : stop - base])


def _merge(spans: Sequence[_Span]) -> list[Region]:
    """Regions of spans in ascending order, one for those that overlap."""
    regions: list[Region] = []
    for span in spans:
        is_inside = bool(regions) and span.start < regions[-1].stop
        start = span.start // ALIGNMENT * ALIGNMENT
        last = regions.pop() if is_inside else Region(start, 0, ())
        stop = max(last.stop, span.stop)
        pieces = (*last.pieces, (span.start - last.start, span.content))
        regions.append(Region(last.start, stop - last.start, pieces))
    return regions


class Role(NamedTuple):
    """What a kernel does with a region of memory."""

    is_read: bool
    is_written: bool


def save_expected(results: Sequence[torch.Tensor], folder: Path) -> Path:
    """Write what the user's own function gives, for ``load_expected``."""
    plain = [result.detach().cpu().contiguous().clone() for result in results]
    return _write({"expected": plain}, "expected-", folder)


def _write(content: dict[str, Any], prefix: str, folder: Path) -> Path:
    """Write a new file; a disk without room is a reason not to search, no error of the caller."""
    try:
        handle, name = tempfile.mkstemp(".pt", prefix, folder)
        with os.fdopen(handle, "wb") as file:
            torch.save(content, file)
    except (OSError, RuntimeError) as error:
        # torch closes its archive after a failure, and then fails with less to say.
        cause = error.__context__ if isinstance(error.__context__, OSError) else error
        raise CaptureError(f"the arguments cannot be written to {folder}: {cause}") from error
    return Path(name)


@contextmanager
def workload_folder(nbytes: int) -> Iterator[Path]:
    """A temporary folder for files of so many bytes, in memory if there is room."""
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(temporary_folder(_PREFIX, _find_memory(nbytes)))
        except OSError:  # it may have bytes and no inodes; the disk is slower and does as well
            folder = stack.enter_context(_disk_folder())
        yield folder


def _find_memory(nbytes: int) -> Path | None:
    """The disk that is memory, if it has room."""
    has_disk = os.access(_MEMORY_DISK, os.W_OK)
    is_roomy = has_disk and shutil.disk_usage(_MEMORY_DISK).free > _HEADROOM * nbytes
    return _MEMORY_DISK if is_roomy else None


@contextmanager
def _disk_folder() -> Iterator[Path]:
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(temporary_folder(_PREFIX))
        except OSError as error:
            raise CaptureError(f"there is no place to write the arguments to: {error}") from error
        yield folder


def find_fill(region: Region) -> int | None:
    """The eight bytes that fill what is known of a region, as a signed integer."""
    if not region.pieces:
        return 0
    offset, content = region.pieces[0]
    is_odd = offset % _WORD or content.storage_offset() % _WORD
    if len(region.pieces) > 1 or content.numel() < _WORD or is_odd:
        return None
    count, rest = divmod(content.numel(), _WORD)
    words = content[: count * _WORD].view(torch.int64)
    first = words[:1]
    if not all(bool((chunk == first).all()) for chunk in words.split(_CHUNK)):
        return None
    is_same = torch.equal(content[count * _WORD :], first.view(torch.uint8)[:rest])
    return int(first) if is_same else None


@dataclass(frozen=True)
class Captured:
    """A launch that did not happen, and the memory that it would have used."""

    launch: CapturedLaunch
    memory: Memory
    """All of it, or what this launch uses besides that of the capture of another Config."""

    @property
    def function(self) -> Function:
        """The IR of the trace that the values fit."""
        return self.launch.variant.function

    @property
    def depends_on_config(self) -> bool:
        """Whether each Config needs a capture of its own."""
        return self.launch.depends_on_config

    def bind_function(self, extra: Path | None = None) -> Binding:
        """The arguments of the IR function."""
        return self._bind(((p.value.name, p.source) for p in self.function.parameters), extra)

    def bind_artifact(self, artifact: Artifact, extra: Path | None = None) -> Binding:
        """The arguments of an artifact, made for the Config of this capture."""
        own = (p for p in artifact.parameters if not p.is_made_at_launch)
        return self._bind(((p.name, p.source) for p in own), extra)

    @cached_property
    def roles(self) -> tuple[Role, ...]:
        """What the kernel does with each region of ``memory``, in order."""
        read, written = set(tensors_read(self.function)), set(tensors_written(self.function))
        names: dict[int, set[str]] = {}
        for name, tensor in _tensor_parameters(self.launch):
            found = self.memory.reference(tensor)
            names.setdefault(-1 if found is None else found.storage, set()).add(name)
        touching = [
            names.get(n, set()) for n, _ in enumerate(self.memory.regions, self.memory.first)
        ]
        return tuple(Role(bool(some & read), bool(some & written)) for some in touching)

    def save(self, folder: Path) -> Path:
        """Write the regions that the basis lacks and give the file's name."""
        saved: list[dict[str, Any]] = []
        for region, role in zip(self.memory.regions, self.roles):
            fill = find_fill(region)
            content = region.read() if fill is None else None
            values = {"nbytes": region.nbytes, "fill": fill, "content": content}
            saved.append({**values, **role._asdict()})
        first = self.memory.first
        return _write({"first": first, "regions": saved}, f"regions-{first}-", folder)

    def _bind(self, parameters: Iterable[tuple[str, str]], extra: Path | None) -> Binding:
        named = list(parameters)
        values = self.launch.read([source for _, source in named])
        arguments = ((name, self._argument(name, value)) for (name, _), value in zip(named, values))
        return Binding(tuple(arguments), extra)

    def _argument(self, name: str, value: Any) -> Argument:
        if isinstance(value, torch.Tensor):
            found = self.memory.reference(value)
            if found is None:
                raise CaptureError(f"`{name}` is not in captured memory")
            return found
        return _plain_number(name, value)


def capture(
    bound: BoundKernel, args: tuple[Any, ...], config: Config, basis: Captured | None = None
) -> Captured:
    """Capture a launch; with a ``basis``, only memory that it does not have already is new."""
    try:
        launch = bound.capture_launch(args, config)
    except HostReturnedError:
        raise CaptureError("host code returned before the first device loop") from None
    if any(map(is_elsewhere, walk_function(launch.variant.function))):
        raise CaptureError(
            "the kernel reads addresses (hl.stacktensor_like), which mean nothing elsewhere"
        )
    if basis is not None and not launch.depends_on_config:
        return basis
    tensors: list[torch.Tensor] = []
    for name, tensor in _tensor_parameters(launch):
        if tensor.device.type != launch.device.type:
            raise CaptureError(f"`{name}` is on {tensor.device}, the kernel on {launch.device}")
        tensors.append(tensor)
    return Captured(launch, Memory(tensors, None if basis is None else basis.memory))


def _tensor_parameters(launch: CapturedLaunch) -> Iterator[tuple[str, torch.Tensor]]:
    found = [p for p in launch.variant.function.parameters if isinstance(p.value.type, TensorType)]
    values = launch.read([parameter.source for parameter in found])
    for parameter, value in zip(found, values):
        yield parameter.value.name, value.detach()


def _plain_number(name: str, value: Any) -> Argument:
    """Numbers of host code may be subclasses of Python's; they travel as plain ones."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float(value)
    if hasattr(value, "item"):
        return value.item()
    raise CaptureError(f"`{name}` is no number but {type(value).__name__}")
