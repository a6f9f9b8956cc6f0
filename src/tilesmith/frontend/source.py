"""A kernel's source as an AST, split into host code and top-level device loops."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tilesmith.diagnostics import errors, location
from tilesmith.diagnostics.location import SourceLocation
from tilesmith.frontend.unroll_host_loops import unroll_host_loops

LOOP_FUNCTIONS = ("tile", "grid", "jagged_tile")


@dataclass(frozen=True, eq=False)
class KernelSource:
    """The parsed function. Line numbers and columns are those of the user's file."""

    function: Callable[..., Any]
    text: str
    """The function's source, padded so that it parses to the right lines and columns."""
    tree: ast.FunctionDef
    num_before: int
    """How many statements stand before the first device loop."""
    num_loops: int

    @property
    def before(self) -> list[ast.stmt]:
        """Host statements before the device loops."""
        return self.tree.body[: self.num_before]

    @property
    def loops(self) -> list[ast.stmt]:
        """The top-level device loops and the barriers between them."""
        return self.tree.body[self.num_before : self.num_before + self.num_loops]

    @property
    def after(self) -> list[ast.stmt]:
        """Host statements after the device loops."""
        return self.tree.body[self.num_before + self.num_loops :]

    def fresh(self) -> KernelSource:
        """The same source with a tree of its own.

        To be changed (parsing is cheaper than copying).
        """
        return replace(self, tree=_parse_text(self.text, self.function))

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
    text = _read(function)
    tree = _parse_text(text, function)
    is_loop = [_is_device_loop(statement, function) for statement in tree.body]
    _find_nested_loop([s for s, loop in zip(tree.body, is_loop) if not loop], function)
    if not any(is_loop):
        raise errors.NoDeviceLoopsInKernel(
            function=function.__name__, loc=location_of_node(tree, function)
        )
    first = is_loop.index(True)
    last = len(is_loop) - 1 - is_loop[::-1].index(True)
    for statement in tree.body[first : last + 1]:
        if not isinstance(statement, ast.For):
            _reject_between(statement, function)
        elif statement.orelse:
            raise errors.DeviceLoopElseBlock(loc=location_of_node(statement.orelse[0], function))
    return KernelSource(function, text, tree, first, last + 1 - first)


def _read(function: Callable[..., Any]) -> str:
    """The source text, placed so that parsing it gives the file's own lines and columns."""
    try:
        lines, first_line = inspect.getsourcelines(function)
    except (OSError, TypeError) as error:
        raise errors.SourceNotAvailable(function=function.__name__) from error
    is_indented = lines[0][:1].isspace()
    if is_indented and first_line > 1:
        return "\n" * (first_line - 2) + "if True:\n" + "".join(lines)
    return "\n" * (first_line - 1) + "".join(lines)


def _parse_text(text: str, function: Callable[..., Any]) -> ast.FunctionDef:
    (statement,) = ast.parse(text).body
    if isinstance(statement, ast.If):
        statement = statement.body[0]
    if not isinstance(statement, ast.FunctionDef):
        raise errors.SourceNotAvailable(function=function.__name__)
    statement.body = unroll_host_loops(statement.body, lambda node: _is_device_loop(node, function))
    return statement


def called_name(node: ast.AST) -> str:
    """The last part of a called function's name.

    ``tile`` for ``hl.tile(...)``; "" if node is no call.
    """
    if not isinstance(node, ast.Call):
        return ""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def is_language_call(node: ast.AST, names: tuple[str, ...], function: Callable[..., Any]) -> bool:
    """Whether a call is to a function of the language module.

    ``hl.tile`` or an imported ``tile``.
    """
    if called_name(node) not in names or not isinstance(node, ast.Call):
        return False
    target = node.func
    if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
        owner = function.__globals__.get(target.value.id)
        return getattr(owner, "__name__", "").endswith(".language")
    if isinstance(target, ast.Name):
        owner = function.__globals__.get(target.id)
        return getattr(owner, "__module__", "").startswith("tilesmith.")
    # A dotted path to the language module, such as tilesmith.language.tile.
    return isinstance(target, ast.Attribute) and ast.unparse(target.value).endswith(".language")


def is_barrier(node: ast.AST, function: Callable[..., Any]) -> bool:
    """Whether a node calls ``hl.barrier``."""
    return is_language_call(node, ("barrier",), function)


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
    if isinstance(statement, ast.Expr) and is_barrier(statement.value, function):
        return
    raise errors.TopLevelStatementBetweenLoops(loc=location_of_node(statement, function))
