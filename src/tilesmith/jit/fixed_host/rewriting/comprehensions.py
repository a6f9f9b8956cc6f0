"""A comprehension over a tuple that stands in the source, as the tuple of what it makes."""

from __future__ import annotations

import ast
from copy import deepcopy

from typing_extensions import override

_INNER = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.NamedExpr)
"""What may bind the same name again, or keep it for later."""


def written_out(value: ast.expr) -> ast.expr:
    """``(f(x), f(y))`` for ``(f(a) for a in (x, y))``; anything else as it is.

    Only where the items are names or constants: these are the same whenever they are read.
    """
    if not isinstance(value, (ast.GeneratorExp, ast.ListComp)) or len(value.generators) > 1:
        return value
    part = value.generators[0]
    if part.ifs or part.is_async or not isinstance(part.target, ast.Name):
        return value
    if any(isinstance(node, _INNER) for node in ast.walk(value.elt)):
        return value
    items = part.iter.elts if isinstance(part.iter, (ast.Tuple, ast.List)) else []
    if not items or not all(isinstance(item, (ast.Name, ast.Constant)) for item in items):
        return value
    made = [_Replaced(part.target.id, item).visit(deepcopy(value.elt)) for item in items]
    return ast.copy_location(ast.Tuple(made, ast.Load()), value)


class _Replaced(ast.NodeTransformer):
    def __init__(self, name: str, item: ast.expr) -> None:
        self._name, self._item = name, item

    @override
    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.copy_location(deepcopy(self._item), node) if node.id == self._name else node
