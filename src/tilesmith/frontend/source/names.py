"""Which names statements read and bind, as Python scoping has it, and whose code is whose."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType, ModuleType
from typing import Any

_CHANGING_METHODS = frozenset({"append", "clear", "extend", "insert", "pop", "remove", "update"})
"""Methods of lists and dicts that change them."""
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
LOOPS = (ast.For, ast.While)


class Names:
    """Names that nodes bind, read or change in their own scope, with the first place of each."""

    def __init__(self) -> None:
        self.bound: dict[str, ast.AST] = {}
        self.read: dict[str, ast.AST] = {}
        self.changed: dict[str, ast.AST] = {}


class _Collector(Names, ast.NodeVisitor):
    def visit_Name(self, node: ast.Name) -> None:
        names = self.read if isinstance(node.ctx, ast.Load) else self.bound
        names.setdefault(node.id, node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        owner = node.value
        while isinstance(owner, ast.Subscript):
            owner = owner.value
        if isinstance(node.ctx, ast.Store) and isinstance(owner, ast.Name):
            self.changed.setdefault(owner.id, node)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        match node.func:
            case ast.Attribute(ast.Name(name), method) if method in _CHANGING_METHODS:
                self.changed.setdefault(name, node)
            case _:
                pass
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        # `a += 1` reads `a` too, though the AST marks it as a store only.
        if isinstance(node.target, ast.Name):
            self.read.setdefault(node.target.id, node.target)
        self.generic_visit(node)

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        if node.name is not None:
            self.bound.setdefault(node.name, node)
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.bound.setdefault(node.name, node)
        self._visit_scope(node, node.body)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._visit_scope(node, [node.body])

    def _visit_scope(self, node: ast.FunctionDef | ast.Lambda, body: Sequence[ast.AST]) -> None:
        inner = _Collector()
        for child in body:
            inner.visit(child)
        own = {arg.arg for arg in ast.walk(node.args) if isinstance(arg, ast.arg)}
        own |= set(inner.bound)
        for name, place in inner.read.items():
            if name not in own:
                self.read.setdefault(name, place)
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)

    def _visit_comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
    ) -> None:
        inner = _Collector()
        inner.generic_visit(node)
        for name, place in inner.read.items():
            if name not in inner.bound:
                self.read.setdefault(name, place)

    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = _visit_comprehension


def find_names(nodes: Iterable[ast.AST]) -> Names:
    """Names of the nodes, in program order."""
    found = _Collector()
    for node in nodes:
        found.visit(node)
    return found


def bound_names(nodes: Iterable[ast.AST]) -> dict[str, ast.AST]:
    """Names the nodes bind in their own scope, with the first place of each, in program order."""
    return find_names(nodes).bound


def read_names(nodes: Iterable[ast.AST]) -> dict[str, ast.AST]:
    """Names the nodes read from their own scope, with the first place of each."""
    return find_names(nodes).read


def parameter_names(function: ast.FunctionDef) -> list[str]:
    """All parameters, in the order of ``inspect.signature``."""
    args = function.args
    rest = [args.vararg] if args.vararg is not None else []
    return [arg.arg for arg in (*args.posonlyargs, *args.args, *rest, *args.kwonlyargs)]


def definitely_bound(statements: Sequence[ast.stmt]) -> set[str]:
    """Names bound by straight-line statements (not inside branches, loops or try blocks)."""
    simple = [
        s for s in statements if isinstance(s, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr))
    ]
    return set(bound_names(simple))


def declared_globals(statements: Iterable[ast.AST]) -> set[str]:
    """Names that ``global`` statements make the module's."""
    found: set[str] = set()
    waiting = list(statements)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Global):
            found.update(node.names)
        elif not isinstance(node, ast.expr):
            waiting.extend(ast.iter_child_nodes(node))
    return found


def own_nodes(
    statements: Iterable[ast.AST], closed: tuple[type[ast.AST], ...] = ()
) -> list[ast.AST]:
    """All nodes of the statements but those in functions, and in nodes that are ``closed``."""
    found: list[ast.AST] = []
    waiting = list(statements)
    while waiting:
        node = waiting.pop()
        found.append(node)
        if not isinstance(node, (*SCOPES, *closed)):
            waiting.extend(ast.iter_child_nodes(node))
    return found


LIBRARIES = frozenset({"torch", "triton", *sys.stdlib_module_names})
OWN_PARTS = frozenset({"", "frontend", "schedule", "language", "autotuner", "runtime", "jit"})
"""Our folders that kernels name functions of. Others may hold kernels, like a user's module."""


def is_library(function: Any) -> bool:
    """Whether a function or module is torch's, Python's or ours: not code of the user's."""
    attribute = "__name__" if isinstance(function, ModuleType) else "__module__"
    package, _, rest = str(getattr(function, attribute, "")).partition(".")
    part = rest.partition(".")[0]
    return package in LIBRARIES or (package == "tilesmith" and part in OWN_PARTS)


def nested_codes(code: CodeType) -> Iterator[CodeType]:
    """A code object and those of the functions defined in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from nested_codes(constant)


def bearing_name(code: CodeType, name: str) -> CodeType:
    """The same code; functions made up by the rewriting bear the name of what was rewritten."""
    constants = (bearing_name(c, name) if isinstance(c, CodeType) else c for c in code.co_consts)
    # Operands of `and` and `or` became lambdas.
    is_made_up = code.co_name.startswith("__") or code.co_name == "<lambda>"
    return code.replace(co_name=name if is_made_up else code.co_name, co_consts=tuple(constants))
