"""No file, function, class, argument list or nesting in src/ grows past what a reader can hold.

Line width and cyclomatic complexity are ruff's (E501, C901).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 50
MAX_CLASS_LINES = 200
MAX_ARGUMENTS = 6
MAX_NESTING = 3

BANNED_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "core", "base"}

# (file under src/, name, what) -> why it may stay.
EXCEPTIONS: dict[tuple[str, str, str], str] = {
    ("tilesmith/frontend/functions/packed_formats.py", "dot_scaled", "arguments"): (
        "the signature is part of the interface"
    ),
}

Function = ast.FunctionDef | ast.AsyncFunctionDef
NESTING = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)


class Excess(NamedTuple):
    """Something larger than allowed."""

    file: str
    name: str
    what: str
    found: int
    allowed: int


def num_lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def num_arguments(node: Function) -> int:
    every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return sum(argument.arg not in ("self", "cls") for argument in every)


def is_elif(parent: ast.AST, child: ast.AST) -> bool:
    return isinstance(parent, ast.If) and isinstance(child, ast.If) and parent.orelse == [child]


def nesting(node: ast.AST) -> int:
    """Deepest chain of compound statements; ``elif`` is no level, a nested function starts anew."""
    deepest = 0
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        own = isinstance(child, NESTING) and not is_elif(node, child)
        deepest = max(deepest, own + nesting(child))
    return deepest


def measure(tree: ast.Module) -> Iterator[tuple[str, str, int, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield node.name, "class lines", num_lines(node), MAX_CLASS_LINES
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, "function lines", num_lines(node), MAX_FUNCTION_LINES
            yield node.name, "arguments", num_arguments(node), MAX_ARGUMENTS
            yield node.name, "nesting", nesting(node), MAX_NESTING


def find_excess(text: str, file: str) -> list[Excess]:
    rows = [("", "file lines", len(text.splitlines()), MAX_FILE_LINES), *measure(ast.parse(text))]
    return [Excess(file, *row) for row in rows if row[2] > row[3]]


def source_files() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


@cache
def all_excess() -> list[Excess]:
    files = [(path.read_text(), path.relative_to(SOURCE).as_posix()) for path in source_files()]
    return [item for text, name in files for item in find_excess(text, name)]


def test_nothing_is_too_large() -> None:
    found = [item for item in all_excess() if item[:3] not in EXCEPTIONS]
    assert not found, "\n" + "\n".join(
        f"{i.file} {i.name}: {i.found} {i.what}, {i.allowed} allowed" for i in found
    )


def test_every_exception_is_still_needed() -> None:
    needed = {item[:3] for item in all_excess()}
    assert set(EXCEPTIONS) <= needed


def test_files_are_named_after_what_they_hold() -> None:
    assert not [path for path in source_files() if path.stem.strip("_") in BANNED_NAMES]


def test_excess_is_noticed() -> None:
    body = "\n".join(["    x = 1"] * MAX_FUNCTION_LINES)
    deep = "def g():\n if a:\n  for b in c:\n   while d:\n    if e:\n     pass\n"
    wide = "def h(a, b, c, d, e, f, g): pass\n"
    text = f"def f():\n{body}\n{deep}{wide}" + "#\n" * MAX_FILE_LINES
    assert {(item.name, item.what) for item in find_excess(text, "x.py")} == {
        ("", "file lines"),
        ("f", "function lines"),
        ("g", "nesting"),
        ("h", "arguments"),
    }


def test_elif_chains_are_not_nesting() -> None:
    chain = "def f():\n if a:\n  pass\n" + " elif b:\n  pass\n" * 5
    assert find_excess(chain, "x.py") == []
