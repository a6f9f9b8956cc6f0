"""Globals that functions read, found in their bytecode.

They are no arguments, yet a trace depends on them.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, ModuleType
from typing import Any

from tilesmith.frontend.source.names import is_library, nested_codes


@dataclass(frozen=True)
class GlobalRead:
    """One global that a function reads: the module's names, the name, the value now."""

    scope: dict[str, Any]
    name: str
    value: Any


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


def place_of(scope: object, scopes: list[Any]) -> int:
    """Where names of a module stand among those that a trace depends on; at the end if new."""
    known = [position for position, other in enumerate(scopes) if other is scope]
    if not known:
        scopes.append(scope)
    return known[0] if known else len(scopes) - 1
