"""Files with one set of arguments a line, written as ``--args`` takes them; ``#`` is a comment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from tokenize import COMMENT, TokenError, generate_tokens
from typing import Any, TypeVar, cast

from tilesmith.cli.output import UsageError
from tilesmith.diagnostics.file_problems import file_problem
from tilesmith.lab.workload.argument_text import ArgumentTextError

Flags = TypeVar("Flags")
"""Those of a command: ``KernelFlags`` and more."""
_FLOATS = ("float64", "float32", "float16", "bfloat16")


def flags_of_lines(flags: Flags, path: str) -> list[Flags]:
    """The same flags for each line of a file; mistakes are told with their line."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--shapes: {file_problem(error, path)}") from None
    found: list[Flags] = []
    for number, line in enumerate(lines, 1):
        text = _without_comment(line)
        if text:
            one: Any = replace(cast("Any", flags), args=text, inputs="")
            found.append(_checked(one, f"{path}, line {number}"))
    if not found:
        raise UsageError(f"--shapes: {path} has no arguments")
    return found


def _without_comment(line: str) -> str:
    """What stands before a ``#`` that is in no string."""
    try:
        found = [t for t in generate_tokens(StringIO(line).readline) if t.type == COMMENT]
    except (TokenError, SyntaxError):  # a line that its reader will refuse
        return line.strip()
    return line[: found[0].start[1]].strip() if found else line.strip()


def _checked(flags: Any, place: str) -> Any:
    try:
        flags.load()
    except (ArgumentTextError, TypeError) as error:
        raise UsageError(f"{place}: {error}") from None
    return flags


def line_of(args: Sequence[Any]) -> str:
    """Arguments as a line; raises ValueError for what cannot be written."""
    return ", ".join(map(_text_of, args))


def _text_of(value: Any) -> str:
    if hasattr(value, "stride"):
        return _tensor_text(value)
    if value is None or type(value) in (bool, int, float, str):
        return repr(value)
    if type(value) in (list, tuple):
        inside = ", ".join(map(_text_of, value))
        comma = "," if type(value) is tuple and len(value) == 1 else ""
        return f"[{inside}]" if type(value) is list else f"({inside}{comma})"
    raise ValueError(f"a {type(value).__name__} has no text")


def _tensor_text(tensor: Any) -> str:
    """A call that makes a tensor of this type, these sizes and strides; indices become zeros."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    axes = sorted(range(tensor.dim()), key=lambda axis: -tensor.stride(axis))
    inside = [tensor.size(axis) for axis in axes]
    steps = [tensor.stride(axis) for axis in axes]
    dense = [1]
    for size in inside[:0:-1]:
        dense.insert(0, dense[0] * max(size, 1))
    if any(n > 1 and a != b for n, a, b in zip(inside, steps, dense)):
        raise ValueError(f"a tensor with strides {tensor.stride()} has gaps or repeats")
    make = "randn" if dtype in _FLOATS else "zeros"
    text = f"{make}({', '.join(map(str, inside))}, dtype={dtype})".replace("(, ", "((), ")
    if axes == sorted(axes):
        return text
    order = [axes.index(axis) for axis in range(tensor.dim())]
    return f"{text}.permute({', '.join(map(str, order))})"
