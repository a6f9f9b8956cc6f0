"""Where the sources raise a catalogue error, they give the details its text asks for."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import tilesmith.exc
from tilesmith.diagnostics.catalogue import PARTS, Base, WrappingError, placeholders

SOURCE = Path(tilesmith.exc.__file__).parent
CLASSES = {name: getattr(tilesmith.exc, name) for name in tilesmith.exc.__all__}
CONSTRUCTOR = {"loc", "related", *PARTS}


def wanted(cls: type[Base], *, wraps: bool) -> tuple[set[str], set[str]]:
    """The details a call must give, and those it may give."""
    needed = set(placeholders(cls.message)) - ({"problem"} if wraps else set())
    fixes = [*cls.fixes.values()]
    texts = [*(getattr(cls, part) for part in PARTS), *fixes]
    allowed = {name for text in texts for name in placeholders(text)} | needed | CONSTRUCTOR
    return needed, allowed | ({"problem"} if issubclass(cls, WrappingError) else set())


def called_class(call: ast.Call) -> tuple[str, bool]:
    """The class that ``X(...)`` or ``X.wrapping(...)`` makes, and whether it is the latter."""
    function = call.func
    wraps = isinstance(function, ast.Attribute) and function.attr == "wrapping"
    if wraps:
        assert isinstance(function, ast.Attribute)
        function = function.value
    if isinstance(function, ast.Attribute):
        return function.attr, wraps
    return (function.id if isinstance(function, ast.Name) else ""), wraps


def names_a_missing_class(node: ast.AST) -> bool:
    """Whether a node is ``errors.X`` or ``exc.X`` with no such class."""
    if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
        return False
    is_class = node.attr[0].isupper() and not node.attr.isupper()
    return node.value.id in ("errors", "exc") and is_class and node.attr not in CLASSES


def mistakes_in(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if names_a_missing_class(node):
            assert isinstance(node, ast.Attribute)
            yield f"line {node.lineno}: there is no {node.attr}"
        if not isinstance(node, ast.Call):
            continue
        name, wraps = called_class(node)
        if name not in CLASSES or any(keyword.arg is None for keyword in node.keywords):
            continue
        needed, allowed = wanted(CLASSES[name], wraps=wraps)
        given = {keyword.arg for keyword in node.keywords if keyword.arg}
        if node.args and not wraps:
            yield f"line {node.lineno}: {name} takes keywords only"
        if needed - given:
            yield f"line {node.lineno}: {name} lacks {sorted(needed - given)}"
        if given - allowed:
            yield f"line {node.lineno}: {name} has no {sorted(given - allowed)}"


def test_raise_sites_give_the_details_the_text_asks_for():
    found = [
        f"{file.relative_to(SOURCE)} {mistake}"
        for file in sorted(SOURCE.rglob("*.py"))
        for mistake in mistakes_in(file.read_text())
    ]
    assert not found, "\n".join(found)


def test_mistakes_are_seen():
    assert list(mistakes_in("raise NamingConflict(name='x', loc=loc, fix='y')")) == []
    assert list(mistakes_in("raise exc.InternalError.wrapping(error)")) == []
    assert "there is no Conflict" in next(mistakes_in("raise exc.Conflict()"))
    assert "lacks ['name']" in next(mistakes_in("raise NamingConflict()"))
    assert "lacks ['name']" in next(mistakes_in("raise exc.NamingConflict(loc=loc)"))
    assert "has no ['nam']" in list(mistakes_in("raise NamingConflict(nam=1, name=2)"))[-1]
    assert "keywords only" in next(mistakes_in("raise NamingConflict('x')"))
