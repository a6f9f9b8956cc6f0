"""What may be a kernel: a plain function, named parameters, no closure, no reserved names."""

from __future__ import annotations

import inspect
import linecache
from types import CodeType, FunctionType, ModuleType
from typing import Any

from tilesmith.diagnostics import errors
from tilesmith.diagnostics.location import SourceLocation
from tilesmith.diagnostics.wording import kind_of

RESERVED_NAMES = frozenset(
    {"_source_module", "_launcher", "_default_launcher", "_NUM_SM", "_NUM_XCDS"}
)
MODULE_NAMES = frozenset(
    {"helion", "hl", "libdevice", "math", "operator", "tl", "tl_math", "torch", "triton"}
    | {"triton_helpers"}
)
"""Names that mean a module in every kernel, and in the code generated from it."""


def check_definition(function: Any) -> None:
    """Raise if an object cannot be a kernel."""
    if not isinstance(function, FunctionType):
        raise errors.NotAKernelFunction(kind=kind_of(function))
    code = function.__code__
    loc = SourceLocation(code.co_filename, _definition_line(code), function.__name__)
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD:
            raise errors.UnsupportedSignature(
                function=function.__name__, parameter=_spelling(parameter), loc=loc
            )
    if code.co_freevars:
        raise errors.ClosuresNotSupported(
            function=function.__name__, names=code.co_freevars, loc=loc
        )
    for name in _conflicts(function):
        raise errors.NamingConflict(name=name, loc=loc)


def _definition_line(code: CodeType) -> int:
    """The line of ``def``; Python counts the decorators above it to the function."""
    line = code.co_firstlineno
    while linecache.getline(code.co_filename, line).lstrip().startswith("@"):
        line += 1
    return line


def _spelling(parameter: inspect.Parameter) -> str:
    is_keyword_only = parameter.kind is inspect.Parameter.KEYWORD_ONLY
    return f"*, {parameter}" if is_keyword_only else str(parameter)


def _conflicts(function: FunctionType) -> list[str]:
    code, module = function.__code__, function.__globals__
    local = [*code.co_varnames, *code.co_cellvars]
    conflicts = [name for name in (*code.co_names, *local) if name in RESERVED_NAMES]
    conflicts += [name for name in local if name in MODULE_NAMES]
    # `co_names` holds attributes too: only what the module really binds is a global.
    named = [name for name in code.co_names if name in MODULE_NAMES and name in module]
    return conflicts + [name for name in named if not isinstance(module[name], ModuleType)]
