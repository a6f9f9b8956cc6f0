"""Views that only hand an address on, as the tensor itself."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping


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
