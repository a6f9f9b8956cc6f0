"""Factory calls of host code that name no device: they make tensors on the kernel's device.

``torch.empty([m])`` becomes ``torch.empty([m], device=...)``, written into the code, so that a call
costs nothing more and nothing around it changes.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from typing_extensions import override

FACTORIES = frozenset(
    {
        "arange", "empty", "empty_strided", "eye", "full", "linspace", "logspace", "ones", "rand",
        "randint", "randn", "randperm", "tensor", "zeros",
    }
)  # fmt: skip


def on_device(
    statements: Sequence[ast.stmt], module: Mapping[str, Any], device: str
) -> list[ast.stmt]:
    """The statements (changed in place) with ``device`` in factory calls that have none."""
    filler = _DeviceFiller(module, device)
    return [filler.visit(statement) for statement in statements]


class _DeviceFiller(ast.NodeTransformer):
    def __init__(self, module: Mapping[str, Any], device: str) -> None:
        self._torch = {name for name, value in module.items() if value is torch}
        self._device = device

    @override
    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        function = node.func
        is_factory = (
            isinstance(function, ast.Attribute)
            and function.attr in FACTORIES
            and isinstance(function.value, ast.Name)
            and function.value.id in self._torch
        )
        # Unpacked keywords may hold a device.
        if is_factory and not {None, "device"} & {keyword.arg for keyword in node.keywords}:
            device = ast.parse(self._device, mode="eval").body
            for part in ast.walk(device):
                ast.copy_location(part, node)
            node.keywords.append(ast.keyword("device", device))
        return node
