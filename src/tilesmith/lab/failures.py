"""Exceptions of building and launching to verdicts, each with one line that says why."""

from __future__ import annotations

import re

from tilesmith.store.outcome import Verdict

LONGEST_REASON = 300
"""Characters: a reason is one line of a table."""
_MEMORY = re.compile(r"out of memory|can't allocate memory|not enough memory", re.IGNORECASE)
_CONTROL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
"""Lone surrogates, which names of files may have, cannot be written to any file."""
_RESOURCES = re.compile(
    r"out of resource|too many resources|cooperative launch|register allocation failed"
    r"|exceeds triton maximum tensor numel",
    re.IGNORECASE,
)


def classify(error: BaseException, otherwise: Verdict) -> tuple[Verdict, str]:
    """The verdict on a candidate that raised, and the reason; what it was raised from counts."""
    cause: BaseException | None = error
    while cause is not None:
        # By name: the processes that build have no torch.
        name, text = type(cause).__name__, _text_of(cause)
        if name == "OutOfResources":
            return Verdict.OUT_OF_RESOURCES, _missing_resource(cause)
        is_memory_error = isinstance(cause, MemoryError) or name == "OutOfMemoryError"
        if is_memory_error or _MEMORY.search(text):
            return Verdict.OUT_OF_MEMORY, one_line(cause)
        if _RESOURCES.search(text):
            return Verdict.OUT_OF_RESOURCES, one_line(cause)
        error, cause = cause, cause.__cause__
    return otherwise, one_line(error)


def one_line(error: BaseException) -> str:
    """The kind of an exception and the line of its message that says most.

    Triton quotes source first and ends with what is wrong; LLVM has a line with ``error:``.
    """
    lines = [line.strip() for line in _text_of(error).splitlines() if line.strip()]
    name = type(error).__name__
    if not lines:
        return name
    marked = [line for line in lines if "error:" in line]
    line = lines[-1] if name == "CompilationError" else (marked or lines)[0]
    return f"{name}: {line}"[:LONGEST_REASON]


def _text_of(error: BaseException) -> str:
    """The message, whatever a class of somebody else makes of it; nothing that moves a cursor."""
    try:
        text = str(error)
    except Exception:
        return ""
    return _CONTROL.sub(" ", text)


def shared_memory_reason(needed: int, limit: int) -> str:
    """Why a kernel does not fit."""
    return f"needs {needed} bytes of shared memory, the device has {limit}"


def _missing_resource(error: BaseException) -> str:
    needed, limit = getattr(error, "required", None), getattr(error, "limit", None)
    name = str(getattr(error, "name", "resource"))
    if name == "shared memory" and isinstance(needed, int) and isinstance(limit, int):
        return shared_memory_reason(needed, limit)
    return f"needs {needed} {name}, the device has {limit}"
