"""Host loops over a literal tuple or list that hold device loops, written out turn by turn.

Device loops must stand directly in the function body; after this rewriting those in such loops do.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy

from tilesmith.frontend.names import bound_names

IsDeviceLoop = Callable[[ast.stmt], bool]


def unroll_host_loops(
    statements: Sequence[ast.stmt], is_device_loop: IsDeviceLoop
) -> list[ast.stmt]:
    """The statements with each such loop replaced by copies of its body.

    Items that are no names or constants are computed once, before the first turn, as Python does.
    """
    result: list[ast.stmt] = []
    for statement in statements:
        if _is_unrollable(statement, is_device_loop):
            assert isinstance(statement, ast.For)
            result.extend(_unroll(statement, is_device_loop, len(result)))
        else:
            result.append(statement)
    return result


def _is_unrollable(statement: ast.stmt, is_device_loop: IsDeviceLoop) -> bool:
    if not isinstance(statement, ast.For) or not isinstance(statement.iter, (ast.Tuple, ast.List)):
        return False
    holds_loops = any(isinstance(n, ast.stmt) and is_device_loop(n) for n in ast.walk(statement))
    targets = bound_names([statement.target])
    is_rebound = any(name in targets for name in bound_names(statement.body))
    has_stars = any(isinstance(item, ast.Starred) for item in statement.iter.elts)
    return holds_loops and not is_rebound and not has_stars and not statement.orelse


def _unroll(loop: ast.For, is_device_loop: IsDeviceLoop, number: int) -> Iterator[ast.stmt]:
    assert isinstance(loop.iter, (ast.Tuple, ast.List))
    items: list[ast.expr] = []
    for position, item in enumerate(loop.iter.elts):
        named = _Naming(f"__item_{number}_{position}")
        items.append(named.name_parts(item))
        yield from named.assignments
    for item in items:
        values = _Substitution(dict(_pair(loop.target, item)))
        body = [values.visit(deepcopy(statement)) for statement in loop.body]
        yield from unroll_host_loops(body, is_device_loop)


class _Naming:
    """Gives names to the parts of an item that are computed."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.assignments: list[ast.stmt] = []

    def name_parts(self, item: ast.expr) -> ast.expr:
        if isinstance(item, (ast.Name, ast.Constant)):
            return item
        if isinstance(item, ast.Tuple):
            return ast.copy_location(ast.Tuple([*map(self.name_parts, item.elts)], item.ctx), item)
        name = f"{self._prefix}_{len(self.assignments)}"
        target = ast.copy_location(ast.Name(name, ast.Store()), item)
        self.assignments.append(ast.copy_location(ast.Assign([target], item), item))
        return ast.copy_location(ast.Name(name, ast.Load()), item)


def _pair(target: ast.expr, item: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """What each name of a loop target stands for."""
    if isinstance(target, ast.Name):
        yield target.id, item
    elif isinstance(target, (ast.Tuple, ast.List)):
        for position, part in enumerate(target.elts):
            yield from _pair(part, _item_at(item, position, len(target.elts)))


def _item_at(item: ast.expr, position: int, count: int) -> ast.expr:
    if isinstance(item, ast.Tuple) and len(item.elts) == count:
        return item.elts[position]
    index = ast.copy_location(ast.Constant(position), item)
    return ast.copy_location(ast.Subscript(item, index, ast.Load()), item)


class _Substitution(ast.NodeTransformer):
    """Puts items in place of the names that stood for them."""

    def __init__(self, values: dict[str, ast.expr]) -> None:
        self._values = values

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """A name that is read."""
        if node.id not in self._values:
            return node
        return _placed(deepcopy(self._values[node.id]), node)


def _placed(value: ast.expr, origin: ast.expr) -> ast.expr:
    for part in ast.walk(value):
        if "lineno" in part._attributes:
            ast.copy_location(part, origin)
    return value
