"""What the names of a module mean, as far as its text tells: nothing of the module is run.

Of libraries only torch, Python's own and ours are imported. Functions are made from their text,
without decorators and defaults, so that they have a code and a place. What else a name may be is
``UNKNOWN``, about which nothing is said.
"""

from __future__ import annotations

import ast
import importlib
import math
import operator
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any

import torch

from tilesmith.frontend.source.names import bound_names

PEER, PACKAGE = "helion", "tilesmith"
KNOWN: Mapping[str, Any] = {"torch": torch, "math": math, "operator": operator}
OURS = (PACKAGE, PEER)
_COMPOUND = (ast.If, ast.Try, ast.With, ast.For, ast.While)


class Unknown:
    """Anything: it has every attribute, and each is as unknown."""

    def __getattr__(self, name: str) -> Unknown:
        if name.startswith("__"):
            raise AttributeError(name)
        return self


UNKNOWN = Unknown()


def module_names(tree: ast.Module, file: str) -> dict[str, Any]:
    """Every name that a module binds at its top level, with what it means."""
    names: dict[str, Any] = dict.fromkeys(bound_names(tree.body), UNKNOWN)
    names |= {"__name__": "", "__file__": file}
    for node in ast.walk(tree):
        # Also those inside functions: what they bind elsewhere is no reason for an alarm.
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {a.asname or a.name.partition(".")[0]: UNKNOWN for a in node.names}
        elif isinstance(node, ast.ClassDef):
            names[node.name] = UNKNOWN
        elif isinstance(node, ast.Global):
            names |= dict.fromkeys(node.names, UNKNOWN)
    for statement in _statements(tree.body):
        names |= dict(_meanings(statement, file, names))
    return names


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Those of the module, and those inside ``if`` and ``try``: imports often stand there."""
    for statement in body:
        yield statement
        if isinstance(statement, _COMPOUND):
            inner = [child for child in ast.iter_child_nodes(statement)]
            yield from _statements(child for child in inner if isinstance(child, ast.stmt))


def _meanings(statement: ast.stmt, file: str, names: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    if isinstance(statement, ast.Import):
        for alias in statement.names:
            name = alias.asname or alias.name.partition(".")[0]
            yield name, _module(alias.name if alias.asname else name, alias.name)
    elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
        for alias in statement.names:
            owner = _module(statement.module)
            yield alias.asname or alias.name, _member(owner, statement.module, alias.name)
    elif isinstance(statement, ast.FunctionDef):
        yield statement.name, make_function(statement, file, names)
    elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
        if isinstance(target, ast.Name):
            yield target.id, literal(statement.value)


def _module(name: str, loaded: str = "") -> Any:
    """A module that is safe to import; ``loaded`` is the part of it that is loaded with it."""
    top = name.partition(".")[0]
    if top not in OURS:
        return KNOWN.get(top, UNKNOWN) if name == top else _attribute(name)
    found: Any = UNKNOWN
    try:
        for part in filter(None, (loaded, name)):
            found = importlib.import_module(part.replace(PEER, PACKAGE, 1))
    except ImportError:
        return UNKNOWN
    return found


def _attribute(name: str) -> Any:
    first, *parts = name.split(".")
    found = KNOWN.get(first, UNKNOWN)
    for part in parts:
        found = getattr(found, part, UNKNOWN)
    return found


def _member(owner: Any, module: str, name: str) -> Any:
    if isinstance(owner, Unknown) or not hasattr(owner, "__dict__"):
        return UNKNOWN
    inner = _module(f"{module}.{name}") if module.partition(".")[0] in OURS else UNKNOWN
    return vars(owner).get(name, inner if inner is not UNKNOWN else _lazily(owner, name))


def _lazily(owner: Any, name: str) -> Any:
    """Names of ours load on first use."""
    return getattr(owner, name, UNKNOWN) if owner.__name__ == PACKAGE else UNKNOWN


def literal(node: ast.expr | None) -> Any:
    """The value of a constant expression; ``UNKNOWN`` for any other."""
    if node is None:
        return UNKNOWN
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return UNKNOWN


def make_function(tree: ast.FunctionDef, file: str, names: dict[str, Any]) -> FunctionType:
    """The function of a definition, to be looked at and not to be called."""
    bare = ast.FunctionDef(
        tree.name,
        _bare_arguments(tree.args),
        tree.body,
        [],
        None,
    )
    if hasattr(tree, "type_params"):
        vars(bare)["type_params"] = []
    ast.copy_location(bare, tree)
    code = compile(ast.Module([bare], []), file, "exec", dont_inherit=True)
    (inner,) = [part for part in code.co_consts if isinstance(part, CodeType)]
    first = min([tree.lineno, *(node.lineno for node in tree.decorator_list)])
    found = FunctionType(inner.replace(co_firstlineno=first), names, tree.name)
    found.__annotations__ = {
        argument.arg: ast.unparse(argument.annotation)
        for argument in (*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs)
        if argument.annotation is not None
    }
    return found


def _bare_arguments(given: ast.arguments) -> ast.arguments:
    """The same parameters; defaults and annotations could be anything, and are left out."""

    def bare(argument: ast.arg | None) -> ast.arg | None:
        return None if argument is None else ast.copy_location(ast.arg(argument.arg), argument)

    def every(arguments: list[ast.arg]) -> list[ast.arg]:
        return [ast.copy_location(ast.arg(argument.arg), argument) for argument in arguments]

    return ast.arguments(
        posonlyargs=every(given.posonlyargs),
        args=every(given.args),
        vararg=bare(given.vararg),
        kwonlyargs=every(given.kwonlyargs),
        kw_defaults=[None] * len(given.kwonlyargs),
        kwarg=bare(given.kwarg),
        defaults=[],
    )


def resolve(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """What a dotted name means; ``UNKNOWN`` where the text does not tell."""
    if isinstance(node, ast.Name):
        return names.get(node.id, UNKNOWN)
    if isinstance(node, ast.Attribute):
        owner = resolve(node.value, names)
        return UNKNOWN if owner is UNKNOWN else getattr(owner, node.attr, UNKNOWN)
    return UNKNOWN
