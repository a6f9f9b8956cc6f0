"""A kernel's source as an AST, split into host code and top-level device loops.

Host loops over a literal tuple or list that hold device loops are written out turn by turn: device
loops must stand directly in the function body.
"""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import tilesmith.exc as errors
from tilesmith.diagnostics import location
from tilesmith.diagnostics.location import SourceLocation
from tilesmith.frontend.source.functionalise import placed
from tilesmith.frontend.source.names import LOOPS, SCOPES, Names, bound_names, find_names, own_nodes

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
    computed: frozenset[str] = frozenset()
    """Parameters that the host code of a larger kernel computes, see ``stages``."""

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

    @functools.cached_property
    def names_before(self) -> Names:
        """What ``before`` binds and reads, in the tree as it was parsed."""
        return find_names(self.before)

    @functools.cached_property
    def loop_names(self) -> Names:
        """What ``loops`` bind and read."""
        return find_names(self.loops)

    @functools.cached_property
    def names_after(self) -> Names:
        """What ``after`` binds and reads."""
        return find_names(self.after)

    def fresh(self) -> KernelSource:
        """The same source with a tree to be changed (parsing is cheaper than copying)."""
        return replace(self, tree=parse_text(self.text, self.function))

    @property
    def name(self) -> str:
        """What errors call the kernel."""
        return self.tree.name

    @property
    def file(self) -> str:
        """The file that the function was defined in."""
        return self.function.__code__.co_filename

    def location(self, node: ast.AST) -> SourceLocation:
        """Where a node stands."""
        return location_of_node(node, self.function)

    def refuse_pattern(self, pattern: ast.AST) -> errors.BaseError:
        """The error for a pattern of ``match`` that branches cannot express."""
        return errors.StatementNotSupported(
            statement=f"the pattern `{ast.unparse(pattern)}`",
            fix="match values, names, sequences of these, or alternatives; or use if/elif",
            loc=self.location(pattern),
        )


def location_of_node(node: ast.AST, function: Callable[..., Any]) -> SourceLocation:
    """Where a node of a function's source stands."""
    return location.location_of_node(node, function.__code__.co_filename, function.__name__)


def read_kernel(function: Callable[..., Any]) -> KernelSource:
    """The source of a kernel function before its device loops are looked for."""
    text = read_text(function)
    return KernelSource(function, text, parse_text(text, function), 0, 0)


def find_loops(source: KernelSource) -> KernelSource:
    """The same source, with host code and device loops told apart."""
    function, tree = source.function, source.tree
    is_loop = [is_device_loop(statement, function) for statement in tree.body]
    refuse_nested_loops([s for s, loop in zip(tree.body, is_loop) if not loop], function)
    if not any(is_loop):
        calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
        for call in (node for node in calls if is_language_call(node, LOOP_FUNCTIONS, function)):
            # As in `enumerate(hl.tile(n))`.
            raise errors.LoopFunctionNotInFor(
                function=ast.unparse(call.func), loc=location_of_node(call, function)
            )
        raise errors.NoDeviceLoopsInKernel(
            function=function.__name__, loc=location_of_node(tree, function)
        )
    first = is_loop.index(True)
    last = len(is_loop) - 1 - is_loop[::-1].index(True)
    for statement in tree.body[first : last + 1]:
        if not (is_device_loop(statement, function) or is_barrier_statement(statement, function)):
            raise errors.TopLevelStatementBetweenLoops(loc=location_of_node(statement, function))
    return replace(source, num_before=first, num_loops=last + 1 - first)


def read_text(function: Callable[..., Any]) -> str:
    """The source text, placed so that parsing it gives the file's own lines and columns."""
    try:
        lines, first_line = inspect.getsourcelines(function)
    except (OSError, TypeError) as error:
        raise errors.SourceNotAvailable(function=function.__name__) from error
    # A nested function goes under an `if True:`, which keeps its columns.
    is_indented = lines[0][:1].isspace()
    if is_indented and first_line > 1:
        return "\n" * (first_line - 2) + "if True:\n" + "".join(lines)
    return "\n" * (first_line - 1) + "".join(lines)


def parse_text(
    text: str, function: Callable[..., Any], *, is_unrolled: bool = True
) -> ast.FunctionDef:
    """The tree of a function's text; ``is_unrolled``: with host loops over literals written out."""
    try:
        statement, *others = ast.parse(text).body
    except SyntaxError as error:
        raise errors.SourceChanged(function=function.__name__) from error
    if isinstance(statement, ast.If):
        statement = statement.body[0]
    name = function.__code__.co_name
    if others or not isinstance(statement, ast.FunctionDef) or statement.name != name:
        raise errors.SourceChanged(function=function.__name__)
    if is_unrolled:
        statement.body = unroll_host_loops(statement.body, function)
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


def is_barrier_statement(statement: ast.stmt, function: Callable[..., Any]) -> bool:
    """Whether a statement is ``hl.barrier()``."""
    return isinstance(statement, ast.Expr) and is_barrier(statement.value, function)


def is_device_loop(statement: ast.stmt, function: Callable[..., Any]) -> bool:
    """Whether a statement is a loop over ``hl.tile`` or its kin."""
    return isinstance(statement, ast.For) and is_language_call(
        without_reversed(statement.iter), LOOP_FUNCTIONS, function
    )


def without_reversed(iterator: ast.expr) -> ast.expr:
    """What ``reversed(...)`` turns round; anything else as it is."""
    match iterator:
        case ast.Call(ast.Name("reversed"), [inner], []):
            return inner
        case _:
            return iterator


def refuse_nested_loops(statements: Sequence[ast.stmt], function: Callable[..., Any]) -> None:
    """Raise for device loops in functions and classes of host code."""
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.stmt) and is_device_loop(node, function):
                scopes = (part for part in ast.walk(statement) if isinstance(part, SCOPES))
                is_class = isinstance(next(scopes, None), ast.ClassDef)
                raise errors.NestedGridLoop(
                    statement="class" if is_class else "def", loc=location_of_node(node, function)
                )


def unroll_host_loops(
    statements: Sequence[ast.stmt], function: Callable[..., Any]
) -> list[ast.stmt]:
    """The statements with each such loop replaced by copies of its body.

    Items that are no names or constants are computed once, before the first turn, as Python does.
    """
    result: list[ast.stmt] = []
    for statement in statements:
        if isinstance(statement, ast.For) and _is_unrollable(statement, function):
            result.extend(_unroll(statement, function, len(result)))
        else:
            result.append(statement)
    return result


def _is_unrollable(statement: ast.For, function: Callable[..., Any]) -> bool:
    if not isinstance(statement.iter, (ast.Tuple, ast.List)):
        return False
    inside = [node for node in ast.walk(statement) if isinstance(node, ast.stmt)]
    holds_loops = any(is_device_loop(node, function) for node in inside)
    targets = bound_names([statement.target])
    is_rebound = any(name in targets for name in bound_names(statement.body))
    has_stars = any(isinstance(item, ast.Starred) for item in statement.iter.elts)
    # Inner loops have jumps of their own.
    own = own_nodes(statement.body, LOOPS)
    has_jumps = any(isinstance(node, (ast.Break, ast.Continue)) for node in own)
    is_plain = not (is_rebound or has_stars or statement.orelse or has_jumps)
    return holds_loops and is_plain


def _unroll(loop: ast.For, function: Callable[..., Any], number: int) -> Iterator[ast.stmt]:
    assert isinstance(loop.iter, (ast.Tuple, ast.List))
    items: list[ast.expr] = []
    for position, item in enumerate(loop.iter.elts):
        named = _Naming(f"__item_{number}_{position}")
        items.append(named.name_parts(item))
        yield from named.assignments
    for item in items:
        values = _Substitution(dict(_pair(loop.target, item)))
        body = [values.visit(deepcopy(statement)) for statement in loop.body]
        yield from unroll_host_loops(body, function)


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
        return placed(deepcopy(self._values[node.id]), node)
