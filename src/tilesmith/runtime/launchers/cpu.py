"""Calls native code: one generated function reads the captured values, packs and calls.

Nothing else runs between host code and machine code, so a call costs about a microsecond.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tilesmith.artifacts import Artifact, LaunchParameter
from tilesmith.diagnostics import errors
from tilesmith.runtime.native.huge_pages import WORTHWHILE_BYTES, advise_huge_pages
from tilesmith.runtime.native.loader import Entry, load_artifact

INT64_LIMIT = 1 << 63


@dataclass(frozen=True)
class NativeOptions:
    """What a launcher needs besides the artifact."""

    cache_dir: Path
    num_threads: int = 0
    """0: as many as torch uses at the time of the call."""
    arguments: frozenset[str] = frozenset()
    """Captured names that are the kernel's own arguments: their memory is not fresh."""


def native_launcher(
    artifact: Artifact, captured: Sequence[str], constants: Sequence[Any], options: NativeOptions
) -> Callable[..., None]:
    """A function of the captured values that runs the artifact on them."""
    return make_caller(
        artifact, load_artifact(artifact, options.cache_dir), captured, constants, options
    )


def make_caller(
    artifact: Artifact,
    entry: Entry,
    captured: Sequence[str],
    constants: Sequence[Any],
    options: NativeOptions,
) -> Callable[..., None]:
    """The same around any function with the native calling convention."""
    parameters = artifact.parameters
    text = "\n".join(_caller_lines(artifact, captured, options))
    layout = "".join("d" if _is_float(parameter) else "q" for parameter in parameters)
    scope: dict[str, Any] = {
        "__constants__": tuple(constants),
        "torch": torch,
        "__entry": entry,
        "__pack": struct.Struct(f"={layout}").pack,
        "__threads": torch.get_num_threads,
        "__huge": advise_huge_pages,
        "__refuse": lambda *values: _refuse(parameters, values),
        "__Overflow": struct.error,
    }
    exec(text, scope)
    return scope["__launch"]


def _is_float(parameter: LaunchParameter) -> bool:
    return not parameter.is_tensor and parameter.dtype[0] in "bf" and parameter.dtype != "bool"


def _caller_lines(
    artifact: Artifact, captured: Sequence[str], options: NativeOptions
) -> Iterator[str]:
    """The source of the launch function."""
    parameters = artifact.parameters
    names = [f"__{position}" for position in range(len(parameters))]
    tensors = [name for name, parameter in zip(names, parameters) if parameter.is_tensor]
    slots = [f"{name}.data_ptr()" if name in tensors else name for name in names]
    written = artifact.options.get("written", ())
    yield f"def __launch({', '.join(captured)}):"
    for name, parameter in zip(names, parameters):
        yield f"    {name} = {parameter.source}"
    fresh = {n for n, p in zip(names, parameters) if _root(p.source) not in options.arguments}
    # Where arguments are is part of the specialization; host code may have taken others anywhere.
    doubts = [f"{name}.is_neg()" for name in tensors]
    doubts += [f"not {name}.is_cpu" for name in tensors if name in fresh]
    if doubts:
        yield f"    if {' or '.join(doubts)}:"
        yield f"        __refuse({', '.join(names)})"
    for name, parameter in zip(names, parameters):
        if parameter.name in written and name in fresh:
            yield f"    if {name}.nbytes >= {WORTHWHILE_BYTES}:"
            yield f"        __huge({name})"
    yield "    try:"
    yield f"        __arguments = __pack({', '.join(slots)})"
    yield "    except __Overflow:"
    yield f"        __refuse({', '.join(names)})"
    yield f"    __entry(__arguments, {options.num_threads or '__threads()'})"


def _root(source: str) -> str:
    """The captured name that an expression such as ``xs[1]`` starts from."""
    match = re.match(r"\w+", source)
    return match[0] if match else ""


def _refuse(parameters: Sequence[LaunchParameter], values: Sequence[Any]) -> None:
    """Say which value cannot be handed to native code, and why."""
    for parameter, value in zip(parameters, values):
        problem = _problem_of(value)
        if problem:
            expected = "a dense tensor on the CPU, or a number of at most 64 bits"
            raise errors.UnsupportedArgumentType(
                argument=parameter.source, kind=problem, expected=expected, fix=""
            )
    raise errors.InternalError(problem="arguments of native code cannot be packed")


def _problem_of(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        if not value.is_cpu:
            return f"a tensor on {value.device}"
        return "a view with its sign flipped lazily (call .resolve_neg())" if value.is_neg() else ""
    is_wide = isinstance(value, int) and not -INT64_LIMIT <= value < INT64_LIMIT
    return "an integer of more than 64 bits" if is_wide else ""
