"""Globals that helper functions read: they are no arguments, yet a trace depends on them."""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, ModuleType
from typing import Any

LIBRARIES = frozenset({"torch", "triton", *sys.stdlib_module_names})
OWN_PARTS = frozenset({"", "frontend", "schedule", "language", "autotuner", "runtime", "jit"})
"""Our folders that kernels name functions of. Others may hold kernels, like a user's module."""


@dataclass(frozen=True)
class GlobalRead:
    """One global that a function reads: the module's names, the name, the value now."""

    scope: dict[str, Any]
    name: str
    value: Any


def is_library(function: Any) -> bool:
    """Whether a function or module is torch's, Python's or ours: not code of the user's."""
    attribute = "__name__" if isinstance(function, ModuleType) else "__module__"
    package, _, rest = str(getattr(function, attribute, "")).partition(".")
    part = rest.partition(".")[0]
    return package in LIBRARIES or (package == "tilesmith" and part in OWN_PARTS)


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
