"""A kernel's source as an AST, split into host code and top-level device loops."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilesmith.diagnostics import errors, location
from tilesmith.diagnostics.location import SourceLocation

LOOP_FUNCTIONS = ("tile", "grid")


@dataclass(frozen=True)
class KernelSource:
    """The parsed function. Line numbers are those of the user's file."""

    function: Callable[..., Any]
    tree: ast.FunctionDef
    before: tuple[ast.stmt, ...]
    loops: tuple[ast.For, ...]
    after: tuple[ast.stmt, ...]

    @property
    def file(self) -> str:
        """The user's file."""
        return self.function.__code__.co_filename

    def location(self, node: ast.AST) -> SourceLocation:
        """Where a node stands."""
        return location_of_node(node, self.function)


def location_of_node(node: ast.AST, function: Callable[..., Any]) -> SourceLocation:
    """Where a node of a function's source stands."""
    return location.location_of_node(node, function.__code__.co_filename, function.__name__)


def parse_kernel(function: Callable[..., Any]) -> KernelSource:
    """Read, parse and split the source of a kernel function."""
    tree = _parse(function)
    body = list(tree.body)
    is_loop = [_is_device_loop(statement, function) for statement in body]
    first = next((i for i, loop in enumerate(is_loop) if loop), None)
    if first is None:
        _find_nested_loop(body, function)
        raise errors.NoDeviceLoopsInKernel(
            function=function.__name__, loc=location_of_node(tree, function)
        )
    last = max(i for i, loop in enumerate(is_loop) if loop)
    _find_nested_loop([s for i, s in enumerate(body) if not is_loop[i]], function)
    loops: list[ast.For] = []
    for statement in body[first : last + 1]:
        if not isinstance(statement, ast.For):
            _reject_between(statement, function)
        elif statement.orelse:
            raise errors.DeviceLoopElseBlock(loc=location_of_node(statement.orelse[0], function))
        else:
            loops.append(statement)
    return KernelSource(function, tree, tuple(body[:first]), tuple(loops), tuple(body[last + 1 :]))


def _parse(function: Callable[..., Any]) -> ast.FunctionDef:
    try:
        lines, first_line = inspect.getsourcelines(function)
    except (OSError, TypeError) as error:
        raise errors.SourceNotAvailable(function=function.__name__) from error
    module = ast.parse(textwrap.dedent("".join(lines)))
    ast.increment_lineno(module, first_line - 1)
    tree = next((node for node in module.body if isinstance(node, ast.FunctionDef)), None)
    if tree is None:
        raise errors.SourceNotAvailable(function=function.__name__)
    indent = len(lines[0]) - len(lines[0].lstrip())
    for node in ast.walk(tree):
        # Dedenting moved the columns; carets need the ones of the file.
        if hasattr(node, "col_offset"):
            node.col_offset += indent  # type: ignore[attr-defined]
            if node.end_col_offset is not None:  # type: ignore[attr-defined]
                node.end_col_offset += indent  # type: ignore[attr-defined]
    return tree


def called_name(node: ast.AST) -> str:
    """The last part of a called function's name: ``tile`` for ``hl.tile(...)``; "" if node is no call."""
    if not isinstance(node, ast.Call):
        return ""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def is_language_call(node: ast.AST, names: tuple[str, ...], function: Callable[..., Any]) -> bool:
    """Whether a call is to a function of the language module: ``hl.tile`` or an imported ``tile``."""
    if called_name(node) not in names or not isinstance(node, ast.Call):
        return False
    target = node.func
    if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
        owner = function.__globals__.get(target.value.id)
        return getattr(owner, "__name__", "").endswith(".language")
    if isinstance(target, ast.Name):
        owner = function.__globals__.get(target.id)
        return getattr(owner, "__module__", "").startswith("tilesmith.")
    # pkg.language.tile(...)
    return isinstance(target, ast.Attribute) and ast.unparse(target.value).endswith(".language")


def _is_device_loop(statement: ast.stmt, function: Callable[..., Any]) -> bool:
    return isinstance(statement, ast.For) and is_language_call(
        statement.iter, LOOP_FUNCTIONS, function
    )


def _find_nested_loop(statements: list[ast.stmt], function: Callable[..., Any]) -> None:
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.stmt) and _is_device_loop(node, function):
                raise errors.NestedGridLoop(
                    statement=type(statement).__name__.lower(), loc=location_of_node(node, function)
                )


def _reject_between(statement: ast.stmt, function: Callable[..., Any]) -> None:
    is_call = isinstance(statement, ast.Expr)
    if is_call and is_language_call(statement.value, ("barrier",), function):
        raise errors.BackendUnsupported(
            operation="hl.barrier()", backend="triton", loc=location_of_node(statement, function)
        )
    raise errors.TopLevelStatementBetweenLoops(loc=location_of_node(statement, function))
