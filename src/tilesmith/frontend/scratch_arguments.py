"""Arguments for a trial run of host code: it must leave no mark on the user's tensors.

Tracing runs host code once more than the user asked for. Host code that may change its arguments
in place gets copies, which share memory where the originals do.
"""

from __future__ import annotations

import ast
from typing import Any

import torch

from tilesmith.frontend.containers import items_of, rebuilt
from tilesmith.frontend.source import KernelSource


def may_change_arguments(source: KernelSource) -> bool:
    """Whether host code before the loops has anything that looks like a change in place."""
    nodes = [node for statement in source.before for node in ast.walk(statement)]
    counters = {
        target.id
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return any(_is_change(node, counters) for node in nodes)


def copy_if_changed(source: KernelSource, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments for a trial run: copies where host code may change them."""
    if not may_change_arguments(source):
        return arguments
    copier = ArgumentCopier()
    return tuple(map(copier.copy, arguments))


def _is_change(node: ast.AST, counters: set[str]) -> bool:
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        has_output = any(keyword.arg == "out" for keyword in node.keywords)
        return has_output or (name.endswith("_") and not name.endswith("__"))
    if isinstance(node, ast.AugAssign):
        return not (isinstance(node.target, ast.Name) and node.target.id in counters)
    return isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)


class ArgumentCopier:
    """Copies tensors, one copy of each storage."""

    def __init__(self) -> None:
        self._storages: dict[int, torch.UntypedStorage] = {}

    def copy(self, argument: Any) -> Any:
        """The argument with all tensors in it copied."""
        if isinstance(argument, torch.Tensor):
            return self._copy_tensor(argument)
        items = items_of(argument)
        if items is None:
            return argument
        return rebuilt(argument, [self.copy(item.value) for item in items])

    def _copy_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        if address not in self._storages:
            self._storages[address] = storage.clone()
        with torch.no_grad():
            empty = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
            return empty.set_(
                self._storages[address],  # type: ignore[arg-type]
                tensor.storage_offset(),
                tensor.size(),
                tensor.stride(),
            )
