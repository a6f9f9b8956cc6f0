"""Helper functions with control flow of their own, rewritten as a kernel's device code is.

A helper runs once, while the kernel is traced. Where it has loops or branches, these must become
ops when they are decided at run time, so its code is rewritten like the kernel's. A helper that the
rewriting has no form for (a generator, one with ``try`` or ``with``, one without source) stays
plain Python: its loops and branches are decided when compiling.
"""

from __future__ import annotations

import ast
import inspect
from functools import lru_cache
from types import CodeType
from typing import cast

from tilesmith.exc import BaseError
from tilesmith.frontend.source.functionalise import RUNTIME, Functionaliser, rebind_updated_names
from tilesmith.frontend.source.names import bearing_name, bound_names, nested_codes
from tilesmith.frontend.source.rewriting.jumps import without_early_returns
from tilesmith.frontend.source.rewriting.patterns import without_match

_FLOW = (ast.For, ast.While, ast.If, ast.IfExp, ast.BoolOp, ast.Match)
_PLAIN = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Try, ast.With, ast.AsyncWith,
    ast.AsyncFor, ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal, ast.Delete,
    ast.Import, ast.ImportFrom, ast.NamedExpr, ast.Raise,
)  # fmt: skip
"""What keeps a helper plain Python."""


class _NoFormError(Exception):
    """A helper has a pattern that branches cannot express."""


@lru_cache(maxsize=512)
def rewritten_helper(code: CodeType) -> CodeType | None:
    """Code of a helper whose loops and branches are traced; None where it stays plain Python."""
    tree = _parsed(code)
    if tree is None:
        return None
    inside = [node for statement in tree.body for node in ast.walk(statement)]
    has_else = any(isinstance(node, (ast.For, ast.While)) and node.orelse for node in inside)
    if has_else or not any(isinstance(node, _FLOW) for node in inside):
        return None
    if any(isinstance(node, _PLAIN) for node in inside):
        return None
    try:
        body = without_match(tree.body, lambda _: cast("BaseError", _NoFormError()))
    except _NoFormError:
        return None
    return _rewritten_code(tree, body, code)


def _parsed(code: CodeType) -> ast.FunctionDef | None:
    """The definition that code was compiled from, at the lines of its file."""
    try:
        lines, first_line = inspect.getsourcelines(code)
    except (OSError, TypeError):
        return None
    is_indented = lines[0][:1].isspace()
    if is_indented and first_line == 1:
        return None
    # A nested function goes under an `if True:`, which keeps its columns.
    head = "\n" * (first_line - 2) + "if True:\n" if is_indented else "\n" * (first_line - 1)
    try:
        (statement,) = ast.parse(head + "".join(lines)).body
    except SyntaxError:
        return None
    inner = statement.body[0] if isinstance(statement, ast.If) else statement
    if isinstance(inner, ast.FunctionDef) and inner.name == code.co_name:
        return inner
    return None


def _rewritten_code(tree: ast.FunctionDef, body: list[ast.stmt], code: CodeType) -> CodeType:
    """Code of the helper with its control flow as calls of the runtime; uses up the tree."""
    arguments = [node for node in ast.walk(tree.args) if isinstance(node, ast.arg)]
    parameters = [argument.arg for argument in arguments]
    for argument in arguments:
        argument.annotation = None
    # Defaults are set on the function that is made of the code.
    tree.args.defaults, tree.args.kw_defaults = [], [None] * len(tree.args.kwonlyargs)
    # Under its own name it would capture itself where it is recursive.
    tree.name, tree.decorator_list, tree.returns = "__helper", [], None
    body = without_early_returns(body, RUNTIME)
    local = {*bound_names(body), *parameters}
    body = rebind_updated_names(body, local, RUNTIME)
    tree.body = Functionaliser((), parameters).block(body)
    # A function around it makes the names that it captures free again.
    outer = cast("ast.FunctionDef", ast.parse("def __outer(): pass").body[0])
    bindings = [ast.parse(f"{name} = None").body[0] for name in code.co_freevars]
    outer.body = [*bindings, tree]
    module = ast.fix_missing_locations(ast.Module([outer], []))
    compiled = compile(module, code.co_filename, "exec", dont_inherit=True)
    found = next(part for part in nested_codes(compiled) if part.co_name == tree.name)
    return bearing_name(found, code.co_name)
