"""Rejects helpers that write to names outside themselves: they run once, at compile time."""

from __future__ import annotations

import dis
from types import CodeType, FunctionType
from typing import Any

from tilesmith.diagnostics import errors
from tilesmith.diagnostics.location import SourceLocation
from tilesmith.frontend.helper_globals import is_library, nested_codes
from tilesmith.frontend.names import read_names
from tilesmith.frontend.source import KernelSource


def check_named_helpers(source: KernelSource) -> None:
    """Check the functions that device code names and those they name in turn."""
    module = source.function.__globals__
    checked: set[CodeType] = set()
    for name in read_names(source.loops):
        check_helper(module.get(name), checked)


def check_helper(helper: Any, checked: set[CodeType] | None = None) -> None:
    """Raise if a function, or one that it names, rebinds a name outside itself."""
    checked = set() if checked is None else checked
    if not isinstance(helper, FunctionType) or helper.__code__ in checked or is_library(helper):
        return
    checked.add(helper.__code__)
    for code in nested_codes(helper.__code__):
        _check_stores(code, helper.__code__)
        for name in code.co_names:
            check_helper(helper.__globals__.get(name), checked)


def _check_stores(code: CodeType, helper: CodeType) -> None:
    line = code.co_firstlineno
    starts = dict(dis.findlinestarts(code))
    for instruction in dis.get_instructions(code):
        line = starts.get(instruction.offset) or line
        loc = SourceLocation(code.co_filename, line, code.co_name)
        if instruction.opname == "STORE_GLOBAL":
            raise errors.GlobalMutation(name=instruction.argval, loc=loc)
        # Cells of the helper's own locals are its business.
        if instruction.opname == "STORE_DEREF" and instruction.argval in helper.co_freevars:
            raise errors.ClosureMutation(name=instruction.argval, loc=loc)
