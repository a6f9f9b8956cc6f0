"""Calls native code: one generated function reads the captured values, packs and calls.

Nothing else runs between host code and machine code, so a call costs about a microsecond.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, cast

import torch

from tilesmith.artifacts import Artifact, LaunchParameter
from tilesmith.diagnostics.logs import topic_log
from tilesmith.runtime.arguments import CPU, NOT_READ, LaunchOptions, refuse, refuse_without_memory
from tilesmith.runtime.calls.reader import ReadingPlan, plan_reading
from tilesmith.runtime.native.loader import Entry, load_artifact

LAUNCH = topic_log("launch")
WORTHWHILE_BYTES = 4 << 20
"""From here on huge pages are asked for: first writes to small ones can cost more than a kernel."""
_HUGE = 14  # MADV_HUGEPAGE of Linux, where it has this number on every architecture


def native_launcher(
    artifact: Artifact, captured: Sequence[str], constants: Sequence[Any], options: LaunchOptions
) -> Callable[..., None]:
    """A function of the captured values that runs the artifact on them."""
    threads = options.num_threads or torch.get_num_threads()
    name, target = artifact.kernel_name, artifact.target
    LAUNCH.info("%s: runs natively for %s, threads %d", name, target, threads)
    entry = load_artifact(artifact, options.cache_dir)
    launch: Any = make_caller(artifact, quick_entry(entry, options), captured, constants, options)
    launch.code = entry  # to be kept for as long as it may be called
    launch.artifact, launch.options = artifact, options
    return launch


def quick_entry(entry: Entry, options: LaunchOptions) -> Entry:
    """The same function, called by native code where that can be had."""
    return entry if options.reader is None else options.reader.Function(address_of(entry))


def address_of(entry: Entry) -> int:
    """Where its machine code begins."""
    return ctypes.cast(cast("Any", entry), ctypes.c_void_p).value or 0


def make_caller(
    artifact: Artifact,
    entry: Entry,
    captured: Sequence[str],
    constants: Sequence[Any],
    options: LaunchOptions,
) -> Callable[..., None]:
    """The same around any function with the native calling convention."""
    parameters = artifact.parameters
    text = "\n".join(_caller_lines(artifact, captured, options))
    layout = "".join("d" if _is_float(parameter) else "q" for parameter in parameters)
    reader = options.reader
    plan = plan_reading(parameters)
    reading = None if reader is None else plan.make_layout(reader, options.owner)
    scope: dict[str, Any] = {
        "__constants__": tuple(constants),
        "torch": torch,
        "__entry": entry,
        "__values": reading and reading.values,
        "__packed": reading and reading.packed,
        "__pack": struct.Struct(f"={layout}").pack,
        "__threads": torch.get_num_threads,
        "__huge": advise_huge_pages,
        "__refuse": lambda *values: refuse(parameters, values, CPU),
        "__check_memory": lambda *values: refuse_without_memory(parameters, values, CPU),
        "__Unfit": (struct.error, *NOT_READ),
    }
    exec(text, scope)
    return scope["__launch"]


def _is_float(parameter: LaunchParameter) -> bool:
    return not parameter.is_tensor and parameter.dtype[0] in "bf" and parameter.dtype != "bool"


def _caller_lines(
    artifact: Artifact, captured: Sequence[str], options: LaunchOptions
) -> Iterator[str]:
    parameters = artifact.parameters
    names = [f"__{position}" for position in range(len(parameters))]
    plan = plan_reading(parameters)
    read = set(plan.positions) - set(plan.tensors) if options.reader is not None else set[int]()
    refusal = f"__refuse({', '.join(parameter.source for parameter in parameters)})"
    yield f"def __launch({', '.join(captured)}):"
    for position, parameter in enumerate(parameters):
        if position not in read:
            yield f"    {names[position]} = {parameter.source}"
    yield from _check_lines(artifact, names, options, refusal)
    yield "    try:"
    yield from _packing_lines(plan, names, options)
    yield "    except __Unfit:"
    yield f"        {refusal}"
    yield f"    __entry(__arguments, {options.num_threads or '__threads()'})"


def _check_lines(
    artifact: Artifact, names: Sequence[str], options: LaunchOptions, refusal: str
) -> Iterator[str]:
    """Refuse what native code cannot take; ask for huge pages where they pay."""
    pairs = list(zip(names, artifact.parameters))
    fresh = {n for n, p in pairs if not options.is_argument(p.source)}
    # Where arguments are is part of the specialization; host code may have taken others anywhere.
    doubts = [f"not {n}.is_cpu" for n, p in pairs if p.is_tensor and n in fresh]
    if doubts:
        yield f"    if {' or '.join(doubts)}:"
        yield f"        {refusal}"
    written = artifact.options.get("written", ())
    for name, parameter in pairs:
        if parameter.name in written and name in fresh:
            yield f"    if {name}.nbytes >= {WORTHWHILE_BYTES}:"
            yield f"        __huge({name})"


def _packing_lines(
    plan: ReadingPlan, names: Sequence[str], options: LaunchOptions
) -> Iterator[str]:
    """Lay the values out one after the other; a number may be too large for its slot."""
    tensors = [names[position] for position in plan.tensors]
    if options.reader is None:
        slots = [f"{name}_address" if name in tensors else name for name in names]
        for name in tensors:
            yield f"        {name}_address = {name}.data_ptr()"
        if tensors:
            held = [f"{name}_address and not {name}.is_neg()" for name in tensors]
            yield f"        if not ({' and '.join(held)}):"
            yield f"            __check_memory({', '.join(names)})"
    elif len(plan.positions) == len(names):
        yield f"        __arguments = __packed({', '.join(tensors)})"
        return
    else:
        read = {position: f"__read{position}" for position in plan.positions}
        yield f"        {', '.join(['_', *read.values()])} = __values({', '.join(tensors)})"
        slots = [read.get(position, name) for position, name in enumerate(names)]
    yield f"        __arguments = __pack({', '.join(slots)})"


def inner_pages(address: int, size: int, page: int = mmap.PAGESIZE) -> tuple[int, int]:
    """Start and length of the whole pages in a piece of memory."""
    start = -(-address // page) * page
    return start, max(0, (address + size) // page * page - start)


@cache
def _madvise() -> Callable[[int, int, int], int] | None:
    if not sys.platform.startswith("linux"):
        return None
    function = getattr(ctypes.CDLL(None), "madvise", None)
    if function is not None:
        function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return function


def advise_huge_pages(tensor: torch.Tensor) -> None:
    """Ask for huge pages under a tensor's memory; the system is free to ignore it."""
    madvise = _madvise()
    storage = tensor.untyped_storage()
    start, size = inner_pages(storage.data_ptr(), storage.nbytes())
    if madvise is not None and size:
        madvise(start, size, _HUGE)
