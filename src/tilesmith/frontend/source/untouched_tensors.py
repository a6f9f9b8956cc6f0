"""Whether host code leaves its tensors as they are until the launch: calls then read each once."""

from __future__ import annotations

import ast
from types import ModuleType
from typing import Any

from tilesmith.frontend.source.kernel_source import KernelSource, called_name
from tilesmith.frontend.source.names import parameter_names
from tilesmith.frontend.source.rewriting.quiet_host import package_of

_LEAVING = frozenset({
    "broadcast_tensors", "cdiv", "contiguous", "dim", "empty", "empty_like", "full", "full_like",
    "new_empty", "new_full", "new_ones", "new_zeros", "next_power_of_2", "numel", "ones",
    "ones_like", "promote_types", "register_block_size", "reshape", "size", "specialize", "sqrt",
    "stride", "transpose", "view", "zeros", "zeros_like",
})  # fmt: skip
"""Functions of torch and of the language, and methods, that change no tensor there is."""
_LEAVING_PLAIN = frozenset({"float", "int", "len", "max", "min"})
_MODULES = frozenset({"math", "tilesmith", "torch"})


def leaves_tensors(source: KernelSource) -> bool:
    """Whether host code leaves memory and sizes of all arguments as they are until the launch."""
    nodes = [node for statement in source.before for node in ast.walk(statement)]
    names = [n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    module = source.function.__globals__
    own = {*parameter_names(source.tree), *names, *(n for n in module if _is_library(module[n]))}
    assigned = [node for node in nodes if isinstance(node, (ast.Attribute, ast.Subscript))]
    return all(isinstance(node.ctx, ast.Load) for node in assigned) and all(
        _is_leaving(node, own) for node in nodes if isinstance(node, ast.Call)
    )


def _is_library(value: Any) -> bool:
    return isinstance(value, ModuleType) and package_of(value) in _MODULES


def _is_leaving(call: ast.Call, own: set[str]) -> bool:
    if any(keyword.arg in ("out", None) for keyword in call.keywords):
        return False  # may be an argument, which is resized
    if isinstance(call.func, ast.Name):
        return call.func.id in _LEAVING_PLAIN and call.func.id not in own
    root: ast.expr = call.func
    while isinstance(root, (ast.Attribute, ast.Subscript, ast.Call)):
        root = root.func if isinstance(root, ast.Call) else root.value
    return isinstance(root, ast.Name) and root.id in own and called_name(call) in _LEAVING
