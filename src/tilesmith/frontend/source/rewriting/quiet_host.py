"""Host code for a run that only traces: without the statements that nothing in the trace needs.

``print``, logging, counters and the like happen at calls, not where a kernel is bound. A statement
that binds no local name is left out unless something that stays reads what it touches. Guards at
the launch point compare what such a run has found with what the whole of host code computes.
"""

from __future__ import annotations

import ast
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

from typing_extensions import override

from tilesmith.frontend.source.kernel_source import KernelSource
from tilesmith.frontend.source.names import (
    SCOPES,
    declared_globals,
    nested_codes,
    parameter_names,
)

Place = tuple[str, str]
"""A name and one of its attributes; the attribute is empty for the whole of it."""
_SPEAKING = frozenset({"print", "breakpoint"})
_SPEAKING_MODULES = frozenset({"logging", "warnings", "time", "sys", "pdb", "ipdb"})
"""Functions of these change nothing that they are given."""
_PACKAGE = "tilesmith"
_LASTING = (ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await)
_STORES = (ast.Assign, ast.AugAssign, ast.AnnAssign)


@dataclass(frozen=True)
class _Effect:
    """A statement that may be left out, and what it may change."""

    statement: ast.stmt
    touched: frozenset[Place]


def find_effects(source: KernelSource, plain: frozenset[str]) -> set[int]:
    """Such statements of ``source.before``, by their ids.

    ``plain`` are parameters whose arguments no function can change, but for elements of tensors.
    """
    finder = _EffectFinder(source, plain)
    effects = [effect for statement in source.before for effect in finder.find(statement)]
    while effects:
        left_out = {id(effect.statement) for effect in effects}
        read = set(_places([*source.before, *source.loops], left_out))
        kept = [effect for effect in effects if any(_is_read(p, read) for p in effect.touched)]
        if not kept:
            return left_out
        effects = [effect for effect in effects if effect not in kept]
    return set()


def leave_out(statements: set[int], source: KernelSource) -> bool:
    """Put ``pass`` in place of statements of host code, which is always possible."""
    remover = _Remover(statements)
    source.tree.body[: source.num_before] = [remover.visit(s) for s in source.before]
    return True


def _is_read(place: Place, read: set[Place]) -> bool:
    name, attribute = place
    if (name, "") in read or place in read:
        return True
    return not attribute and any(other == name for other, _ in read)


def _places(nodes: Iterable[ast.AST], left_out: set[int]) -> Iterator[Place]:
    """What is read, apart from statements that are left out."""
    for node in nodes:
        if id(node) in left_out:
            continue
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield node.value.id, node.attr
            continue
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store):
            yield node.id, ""
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, ""
        yield from _places(ast.iter_child_nodes(node), left_out)


class _EffectFinder:
    def __init__(self, source: KernelSource, plain: frozenset[str]) -> None:
        self._module: dict[str, Any] = source.function.__globals__
        own = set(source.names_before.bound)
        self._globals = declared_globals(source.before)
        self._plain = plain - own
        self._local = {*parameter_names(source.tree), *own} - self._globals

    def find(self, node: ast.AST) -> Iterator[_Effect]:
        """Statements in a statement, those of functions and classes in it aside."""
        if isinstance(node, SCOPES):
            return
        touched = self._touched(node) if isinstance(node, (ast.Expr, *_STORES)) else None
        if touched is not None:
            assert isinstance(node, ast.stmt)
            yield _Effect(node, frozenset(touched))
            return
        for child in ast.iter_child_nodes(node):
            yield from self.find(child)

    def _touched(self, statement: ast.stmt) -> set[Place] | None:
        """What a statement may change; None if it has to stay."""
        parts = list(ast.walk(statement))
        if any(isinstance(part, _LASTING) for part in parts) or self._speaks_language(parts):
            return None
        if isinstance(statement, ast.Expr):
            call = statement.value
            return self._touched_by(call) if isinstance(call, ast.Call) else None
        if isinstance(statement, ast.Assign):
            targets = statement.targets
        else:
            assert isinstance(statement, (ast.AugAssign, ast.AnnAssign))
            targets = [statement.target]
        if any(isinstance(t, ast.Name) and t.id not in self._globals for t in targets):
            return None  # it binds a local name
        places = [_place_of(target) for target in targets]
        found = {place for place in places if place is not None}
        return found if all(places) else None

    def _touched_by(self, call: ast.Call) -> set[Place] | None:
        function = call.func
        if is_speech(call, self._module, self._local):
            return set()
        if isinstance(function, ast.Name) and function.id not in self._local:
            return self._changeable(call)
        if not isinstance(function, ast.Attribute):
            return None
        owner = _place_of(function.value)
        if owner is None:
            return None
        known = None if owner[0] in self._local else self._module.get(owner[0])
        return self._changeable(call) if isinstance(known, ModuleType) else {owner}

    def _changeable(self, call: ast.Call) -> set[Place]:
        """Arguments that a function may change: names that are passed as they are."""
        values = [*call.args, *(keyword.value for keyword in call.keywords)]
        passed = {name for value in values for name in _passed(value)}
        return {(name, "") for name in passed - self._plain}

    def _speaks_language(self, parts: Sequence[ast.AST]) -> bool:
        """Whether a function of the language may be called, here or in a function of the user's."""
        names = {part.id for part in parts if isinstance(part, ast.Name)} - self._local
        return any(is_of_language(self._module.get(name)) for name in names)


def is_speech(call: ast.Call, module: Mapping[str, Any], local: Collection[str]) -> bool:
    """Whether a call prints or logs, and nothing else."""
    function = call.func
    if isinstance(function, ast.Name):
        return function.id in _SPEAKING and function.id not in (*local, *module)
    owner = _place_of(function.value) if isinstance(function, ast.Attribute) else None
    known = None if owner is None or owner[0] in local else module.get(owner[0])
    return isinstance(known, logging.Logger) or package_of(known) in _SPEAKING_MODULES


def is_of_language(value: Any) -> bool:
    """Whether it is of this package, or a function that calls it."""
    if package_of(value) == _PACKAGE:
        return True
    if not isinstance(value, FunctionType):
        return False
    names = {name for code in nested_codes(value.__code__) for name in code.co_names}
    return any(package_of(value.__globals__.get(name)) == _PACKAGE for name in names)


def package_of(value: Any) -> str:
    """The package of a module, or of what defines a function."""
    attribute = "__name__" if isinstance(value, ModuleType) else "__module__"
    return str(getattr(value, attribute, "")).partition(".")[0]


def _place_of(node: ast.expr) -> Place | None:
    """Where the value of an expression such as ``self.log[0]`` is held."""
    attribute = ""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        attribute = node.attr if isinstance(node, ast.Attribute) else ""
        node = node.value
    return (node.id, attribute) if isinstance(node, ast.Name) else None


def _passed(value: ast.expr) -> Iterator[str]:
    """Names in an argument that are handed over themselves, in containers too."""
    if isinstance(value, ast.Name):
        yield value.id
    elif isinstance(value, ast.Starred):
        yield from _passed(value.value)
    elif isinstance(value, (ast.List, ast.Tuple, ast.Set)):
        for item in value.elts:
            yield from _passed(item)


class _Remover(ast.NodeTransformer):
    def __init__(self, left_out: set[int]) -> None:
        self._left_out = left_out

    @override
    def visit(self, node: ast.AST) -> Any:
        if id(node) in self._left_out:
            return ast.copy_location(ast.Pass(), node)
        return self.generic_visit(node)
