"""Globals that helper functions read: they are no arguments, yet a trace depends on them."""

from __future__ import annotations

import dis
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any

LIBRARIES = ("tilesmith", "torch", "triton")


@dataclass(frozen=True)
class GlobalRead:
    """One global that a function reads: the module's names, the name, the value now."""

    scope: dict[str, Any]
    name: str
    value: Any


def is_library(function: Any) -> bool:
    """Whether a function or module is torch's or ours: nothing of the user's stands in it."""
    owner = getattr(function, "__module__", None) or getattr(function, "__name__", "")
    return str(owner).split(".", 1)[0] in LIBRARIES


def nested_codes(code: CodeType) -> Iterator[CodeType]:
    """A code object and those of the functions defined in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from nested_codes(constant)


def globals_read(code: CodeType, scope: dict[str, Any]) -> Iterator[GlobalRead]:
    """Globals that code reads by name, and attributes of modules that it names."""
    for part in nested_codes(code):
        owner: ModuleType | None = None
        for instruction in dis.get_instructions(part):
            found: dict[str, Any] | None = None
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                found = scope
            elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD") and owner is not None:
                found = owner.__dict__
            owner = None
            if found is None or instruction.argval not in found:
                continue
            value = found[instruction.argval]
            if isinstance(value, ModuleType):
                owner = None if is_library(value) else value
            else:
                yield GlobalRead(found, instruction.argval, value)


def functions_read(function: FunctionType) -> Iterator[FunctionType]:
    """The user's functions that a function names."""
    for read in globals_read(function.__code__, function.__globals__):
        if isinstance(read.value, FunctionType) and not is_library(read.value):
            yield read.value
