"""The runner's side of a workload: saved memory on the device, launch arguments, results.

Before each run ``restore`` gives written memory its initial state. Memory that the kernel writes
and never reads is poisoned instead (every byte 0xff, NaN as a float), so that what a kernel forgets
to write shows. What is no kernel of ours is compared and timed without a workload.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tilesmith.frontend.containers import tensors_in
from tilesmith.lab.workload.binding import ALIGNMENT, Binding, TensorRef
from tilesmith.measure.timer import Timing, time_on_cpu, time_on_device

POISON = 0xFF
"""As every byte: NaN in all floating-point types, -1 in integers."""
_CHUNK = 1 << 24
TOLERANCE = 1e-2
"""Of results of functions that are no kernels of ours."""
LaunchArgument = torch.Tensor | int | float | bool


class _LoadedRegion:
    """One region on the device, with what it takes to give it its initial state."""

    def __init__(self, saved: dict[str, Any], device: torch.device) -> None:
        self.is_read: bool = saved["is_read"]
        self.is_written: bool = saved["is_written"]
        self._fill: int | None = saved["fill"]
        self.content = _aligned_bytes(saved["nbytes"], device)
        self._initial: torch.Tensor | None = saved["content"]
        self._put_initial()
        keeps_initial = self.is_written and self.is_read and self._initial is not None
        self._initial = self.content[: saved["nbytes"]].clone() if keeps_initial else None

    def restore(self) -> None:
        if self.is_read:
            self._put_initial()
        else:
            self.content.fill_(POISON)

    def _put_initial(self) -> None:
        if self._initial is not None:
            self.content[: self._initial.numel()].copy_(self._initial)
        elif self._fill is not None and self.content.numel():
            self.content.view(torch.int64).fill_(self._fill)

    def view(self, reference: TensorRef) -> torch.Tensor:
        """A tensor over this memory."""
        return _view(self.content.view(getattr(torch, reference.dtype)), reference)


def _aligned_bytes(nbytes: int, device: torch.device) -> torch.Tensor:
    """Memory at an address as aligned as on a GPU, a whole number of times ``ALIGNMENT`` long."""
    length = -(-nbytes // ALIGNMENT) * ALIGNMENT
    buffer = torch.empty(length + ALIGNMENT, dtype=torch.uint8, device=device)
    shift = -buffer.data_ptr() % ALIGNMENT
    return buffer[shift : shift + length]


@dataclass(frozen=True)
class Snapshot:
    """The bytes of written memory at one time, by number of region."""

    regions: dict[int, torch.Tensor]

    def is_same(self, other: Snapshot) -> bool:
        """Whether all bits are equal."""
        return all(_same_bytes(self.regions[n], other.regions[n]) for n in self.regions)


class Workload:
    """What a launch needs, in this process, on its device."""

    def __init__(self, regions: Iterable[dict[str, Any]], device: torch.device | str) -> None:
        self.device = torch.device(device)
        self._regions = dict(enumerate(_LoadedRegion(region, self.device) for region in regions))
        self._extras: dict[Path, dict[int, _LoadedRegion]] = {}

    @classmethod
    def load(cls, path: Path, device: torch.device | str) -> Workload:
        """Put a saved workload onto a device."""
        return cls(_read(path)["regions"], device)

    def arguments(self, binding: Binding) -> dict[str, LaunchArgument]:
        """The launch arguments by name, in order."""
        values: dict[str, LaunchArgument] = {}
        for name, argument in binding.arguments:
            is_tensor = isinstance(argument, TensorRef)
            values[name] = self._region(argument, binding).view(argument) if is_tensor else argument
        return values

    def outputs(self, binding: Binding) -> dict[str, torch.Tensor]:
        """The tensors in memory that the kernel writes, by name."""
        return {
            name: self._region(reference, binding).view(reference)
            for name, reference in _references(binding)
            if self._region(reference, binding).is_written
        }

    def restore(self, binding: Binding) -> None:
        """Give the memory that a binding's kernel writes its initial state, or poison."""
        for region in self._written(binding).values():
            region.restore()

    def restore_read(self, binding: Binding) -> None:
        """The same for memory that the kernel also reads: all that a repeated run needs."""
        for region in self._written(binding).values():
            if region.is_read:
                region.restore()

    def must_restore(self, binding: Binding) -> bool:
        """Whether a second run without ``restore`` might give another result."""
        return any(region.is_read for region in self._written(binding).values())

    def snapshot(self, binding: Binding) -> Snapshot:
        """A copy of the memory that a binding's kernel writes."""
        return Snapshot({n: region.content.clone() for n, region in self._written(binding).items()})

    def describe_difference(self, binding: Binding, before: Snapshot, after: Snapshot) -> str:
        """Which elements of which tensor two snapshots differ in; "" where they do not."""
        for name, reference in _references(binding):
            if reference.storage not in before.regions:
                continue
            pair = [_bits(s.regions[reference.storage], reference) for s in (before, after)]
            differs = pair[0] != pair[1]
            count = int(differs.sum())
            if count:
                index = tuple(int(i) for i in differs.nonzero()[0])
                return f"{count} of {differs.numel()} elements of `{name}`, first at {list(index)}"
        return "" if before.is_same(after) else "memory beside the tensors"

    def forget(self, binding: Binding) -> None:
        """Drop the memory that only this binding has."""
        if binding.extra_storages is not None:
            self._extras.pop(binding.extra_storages, None)

    def _region(self, reference: TensorRef, binding: Binding) -> _LoadedRegion:
        own = self._regions.get(reference.storage)
        if own is not None:
            return own
        path = binding.extra_storages
        if path is None:
            raise ValueError("a binding refers to memory that the workload does not have")
        if path not in self._extras:
            saved = _read(path)
            regions = (_LoadedRegion(region, self.device) for region in saved["regions"])
            self._extras[path] = dict(enumerate(regions, saved["first"]))
        return self._extras[path][reference.storage]

    def _written(self, binding: Binding) -> dict[int, _LoadedRegion]:
        found = {r.storage: self._region(r, binding) for _, r in _references(binding)}
        return {number: region for number, region in found.items() if region.is_written}


def load_expected(path: Path, device: torch.device | str) -> list[torch.Tensor]:
    """What ``save_expected`` has written."""
    return [tensor.to(device) for tensor in _read(path)["expected"]]


def _read(path: Path) -> dict[str, Any]:
    return torch.load(path, map_location="cpu", mmap=True, weights_only=True)


def _references(binding: Binding) -> Iterator[tuple[str, TensorRef]]:
    for name, argument in binding.arguments:
        if isinstance(argument, TensorRef):
            yield name, argument


def _bits(content: torch.Tensor, reference: TensorRef) -> torch.Tensor:
    """The elements of a tensor as integers."""
    dtype: torch.dtype = getattr(torch, reference.dtype)
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    return _view(content.view(integers), reference)


def _view(flat: torch.Tensor, reference: TensorRef) -> torch.Tensor:
    # Torch counts offsets from the start of the storage.
    offset = flat.storage_offset() + reference.offset
    return flat.as_strided(reference.size, reference.stride, offset)


def _same_bytes(left: torch.Tensor, right: torch.Tensor) -> bool:
    # In parts: torch compares into a tensor as large as both.
    pairs = zip(left.split(_CHUNK), right.split(_CHUNK))
    return left.numel() == right.numel() and all(torch.equal(*pair) for pair in pairs)


def find_difference(actual: Any, expected: Any, atol: float | None, rtol: float | None) -> str:
    """In words how the tensors of two results differ; empty when they agree."""
    found, wanted = list(tensors_in(actual)), list(tensors_in(expected))
    if len(found) != len(wanted):
        return f"{len(found)} tensors instead of {len(wanted)}"
    limits = (TOLERANCE if atol is None else atol, TOLERANCE if rtol is None else rtol)
    pairs = enumerate(zip(found, wanted))
    differences = ((n, _difference(a, b, *limits)) for n, (a, b) in pairs)
    return next((f"result {n}: {text}" for n, text in differences if text), "")


def _difference(actual: torch.Tensor, expected: torch.Tensor, atol: float, rtol: float) -> str:
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        kinds = [f"{tuple(t.shape)} {t.dtype}" for t in (actual, expected)]
        return f"{kinds[0]} instead of {kinds[1]}"
    a, b = actual.double(), expected.double()
    is_bad = ~torch.isclose(a, b, rtol, atol, equal_nan=True)
    if not is_bad.any():
        return ""
    worst = (a - b).abs()[is_bad].max().item()
    return f"{int(is_bad.sum())} of {is_bad.numel()} elements differ, by up to {worst:.3g}"


def find_device(args: tuple[Any, ...]) -> str:
    """The device of the first tensor."""
    return next((str(tensor.device) for tensor in tensors_in(args)), "cpu")


def time_calls(
    works: Mapping[str, Callable[[], Any]], repeats: int, device: str
) -> dict[str, Timing]:
    """Times of callables in this process, interleaved."""
    if torch.device(device).type == "cpu":
        return time_on_cpu(works, repeats=repeats, warmup=1)
    return time_on_device(works, device=device, repeats=repeats, warmup=1)


def time_function(function: Callable[..., Any], args: tuple[Any, ...], device: str) -> float:
    """Median milliseconds of one function in this process."""
    return time_calls({"function": lambda: function(*args)}, 10, device)["function"].median_ms


def synchronize(device: str) -> None:
    """Wait for the device, so that its errors show now."""
    if torch.device(device).type != "cpu":
        torch.cuda.synchronize(device)
