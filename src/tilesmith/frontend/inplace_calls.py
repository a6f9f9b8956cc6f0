"""Rewrites ``a.add_(1)`` so that it rebinds ``a``, or stores ``a[i]``: values are immutable."""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence

UPDATED = "updated"
"""What the runtime side of device code calls the result of an in-place method."""


def rebind_updated_names(
    statements: Sequence[ast.stmt], local: Collection[str], runtime: str
) -> list[ast.stmt]:
    """The statements, with a binding where an item or one of ``local`` is updated in place."""
    return [_Rebinding(local, runtime).visit(statement) for statement in statements]


class _Rebinding(ast.NodeTransformer):
    def __init__(self, local: Collection[str], runtime: str) -> None:
        self._local, self._runtime = local, runtime

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """``a.add_(1)`` as a statement."""
        target = self._updated(node.value)
        return node if target is None else self._assign([], target, node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """``b = a.add_(1)`` binds ``a`` too."""
        target = self._updated(node.value)
        return node if target is None else self._assign(node.targets, target, node)

    def _updated(self, value: ast.expr) -> str | None:
        """The name or item that in-place methods update."""
        root, methods = value, 0
        while isinstance(root, ast.Call) and isinstance(root.func, ast.Attribute):
            if not root.func.attr.endswith("_") or root.func.attr.endswith("__"):
                return None
            root, methods = root.func.value, methods + 1
        is_local = isinstance(root, ast.Name) and root.id in self._local
        is_updated = is_local or isinstance(root, ast.Subscript)
        return ast.unparse(root) if methods and is_updated else None

    def _assign(
        self, targets: list[ast.expr], target: str, node: ast.Expr | ast.Assign
    ) -> ast.Assign:
        text = f"{target} = {self._runtime}.{UPDATED}({target}, 0)"
        made = ast.parse(text).body[0]
        assert isinstance(made, ast.Assign)
        assert isinstance(made.value, ast.Call)
        for part in ast.walk(made):
            if "lineno" in part._attributes:
                ast.copy_location(part, node)
        made.value.args[1] = node.value
        made.targets = [*targets, *made.targets]
        return made
