"""Finds the kernels of a file and what is wrong with each."""

from __future__ import annotations

import ast
import importlib
import linecache
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tilesmith.diagnostics.file_problems import file_problem
from tilesmith.diagnostics.location import SourceLocation
from tilesmith.exc import NoDeviceLoopsInKernel
from tilesmith.lint.kernel_checks import Mistake, Place, check_kernel
from tilesmith.lint.module_names import PACKAGE, UNKNOWN, make_function, module_names, resolve

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def check_file(path: Path) -> list[Mistake]:
    """What would fail when the kernels of a file are called, in the order of its lines."""
    file = str(path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        return [Mistake(SourceLocation(file, line), "UnicodeDecodeError", file_problem(error))]
    linecache.checkcache(file)
    try:
        tree = ast.parse(text, file)
    except SyntaxError as error:
        span = (max(0, (error.offset or 1) - 1), None)
        place = SourceLocation(file, error.lineno or 1, span=span)
        return [Mistake(place, "SyntaxError", str(error.msg))]
    named = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    places = list(_kernels(tree, file))
    # A kernel without loops that others name is a helper of theirs.
    found = [
        one
        for place in places
        for one in check_kernel(place)
        if one.kind != NoDeviceLoopsInKernel.__name__ or place.tree.name not in named
    ]
    return sorted(dict.fromkeys(found), key=lambda one: (one.loc.line, one.loc.columns or (0, 0)))


def count_kernels(path: Path) -> int:
    """How many kernels a file defines."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError):
        return 0
    return sum(1 for _ in _kernels(tree, str(path)))


def _kernels(tree: ast.Module, file: str) -> Iterator[Place]:
    names = module_names(tree, file)
    yield from _kernels_in(tree.body, file, names)


def _kernels_in(body: list[ast.stmt], file: str, names: dict[str, Any]) -> Iterator[Place]:
    for statement in body:
        if isinstance(statement, ast.FunctionDef):
            decorator = _kernel_decorator(statement, names)
            if decorator is not None:
                function = make_function(statement, file, names)
                yield Place(statement, decorator, function, file, names)
                continue
        if isinstance(statement, _SCOPES):
            inner = {**names, **dict.fromkeys(_local_names(statement), UNKNOWN)}
            yield from _kernels_in(statement.body, file, inner)
        else:
            inside = [part for part in ast.iter_child_nodes(statement)]
            blocks = [part for part in inside if isinstance(part, ast.stmt)]
            yield from _kernels_in(blocks, file, names)


def _local_names(scope: ast.stmt) -> set[str]:
    """Names of a function or class around a kernel: which value they have is known at run time."""
    nodes = list(ast.walk(scope))
    bound = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return bound | {node.arg for node in nodes if isinstance(node, ast.arg)}


def _kernel_decorator(tree: ast.FunctionDef, names: dict[str, Any]) -> ast.expr | None:
    package = importlib.import_module(PACKAGE)
    makers = (package.kernel, package.aot_kernel)
    for decorator in tree.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        if any(resolve(target, names) is maker for maker in makers):
            return decorator
    return None
