"""Rejects decorators between the kernel decorator and the function: they would never run."""

from __future__ import annotations

import ast
from typing import Any

from tilesmith.diagnostics import errors
from tilesmith.frontend.source import KernelSource


def check_decorators(source: KernelSource) -> None:
    """Raise if anything stands below the kernel decorator."""
    decorators = source.tree.decorator_list
    ours = [_is_kernel_decorator(node, source.function.__globals__) for node in decorators]
    if not any(ours) or ours[-1]:
        return
    below = decorators[ours.index(True) + 1]
    raise errors.DecoratorAfterHelionKernelDecorator(
        decorator=ast.unparse(below), function=source.tree.name, loc=source.location(below)
    )


def _is_kernel_decorator(node: ast.expr, module: dict[str, Any]) -> bool:
    target = node.func if isinstance(node, ast.Call) else node
    found = _resolve(target, module)
    return str(getattr(found, "__module__", "")).startswith("tilesmith.")


def _resolve(node: ast.expr, module: dict[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        return module.get(node.id)
    if isinstance(node, ast.Attribute):
        return getattr(_resolve(node.value, module), node.attr, None)
    return None
