"""Rewrites ``a.add_(1)`` so that it rebinds ``a``: device values are immutable."""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence

UPDATED = "updated"
"""What the runtime side of device code calls the result of an in-place method."""


def rebind_updated_names(
    statements: Sequence[ast.stmt], local: Collection[str], runtime: str
) -> list[ast.stmt]:
    """The statements, with a binding of the name where one of ``local`` is updated in place."""
    return [_Rebinding(local, runtime).visit(statement) for statement in statements]


class _Rebinding(ast.NodeTransformer):
    def __init__(self, local: Collection[str], runtime: str) -> None:
        self._local, self._runtime = local, runtime

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """``a.add_(1)`` as a statement."""
        name = self._updated_name(node.value)
        return node if name is None else self._assign([], name, node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """``b = a.add_(1)`` binds ``a`` too."""
        name = self._updated_name(node.value)
        return node if name is None else self._assign(node.targets, name, node)

    def _updated_name(self, value: ast.expr) -> str | None:
        root, methods = value, 0
        while isinstance(root, ast.Call) and isinstance(root.func, ast.Attribute):
            if not root.func.attr.endswith("_") or root.func.attr.endswith("__"):
                return None
            root, methods = root.func.value, methods + 1
        is_local = isinstance(root, ast.Name) and root.id in self._local
        return root.id if methods and is_local and isinstance(root, ast.Name) else None

    def _assign(
        self, targets: list[ast.expr], name: str, node: ast.Expr | ast.Assign
    ) -> ast.Assign:
        text = f"{name} = {self._runtime}.{UPDATED}({name}, 0)"
        made = ast.parse(text).body[0]
        assert isinstance(made, ast.Assign)
        assert isinstance(made.value, ast.Call)
        for part in ast.walk(made):
            if "lineno" in part._attributes:
                ast.copy_location(part, node)
        made.value.args[1] = node.value
        made.targets = [*targets, *made.targets]
        return made
