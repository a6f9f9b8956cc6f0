"""What host code says, as what it comes to: comprehensions over tuples, views of tensors.

A comprehension over a tuple that stands in the source becomes the tuple of what it makes, and a
view that only hands an address on becomes the tensor itself.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
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


def loaded_names(statements: list[ast.stmt]) -> Iterator[str]:
    """Names that are read, each as often as it is."""
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                yield node.id


def also_called(names: Collection[str], statements: list[ast.stmt]) -> set[str]:
    """The names, and all from which they have what they stand for: ``x`` of ``y = x``."""
    found = set(names)
    while True:
        others = {
            value.id
            for assign in _assignments(statements)
            for target, value in _pairs(assign.targets[0], assign.value)
            if isinstance(target, ast.Name) and isinstance(value, ast.Name) and target.id in found
        }
        if others <= found:
            return found
        found |= others


def _assignments(statements: list[ast.stmt]) -> Iterator[ast.Assign]:
    return (n for s in statements for n in ast.walk(s) if isinstance(n, ast.Assign))


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        yield from zip(target.elts, value.elts)
    else:
        yield target, value


def skip_views(statements: list[ast.stmt], views: Mapping[str, str]) -> None:
    """Hand over the tensor itself: only the address counts, and that is the same."""

    def base_of(target: ast.expr, value: ast.expr) -> ast.expr:
        if not isinstance(target, ast.Name) or target.id not in views:
            return value
        return ast.copy_location(ast.Name(views[target.id], ast.Load()), value)

    for assign in _assignments(statements):
        target, value = assign.targets[0], assign.value
        assign.value = base_of(target, value)
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            value.elts = list(map(base_of, target.elts, value.elts))
