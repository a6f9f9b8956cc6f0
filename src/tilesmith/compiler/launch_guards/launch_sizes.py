"""Checks of a grid: how many programs a launch may have along each axis is the driver's rule.

In process a launch that is too wide is made along one axis. Code that has left the process was
compiled for its axes, so it refuses.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from typing_extensions import override

from tilesmith.artifacts import MAX_LAUNCH_SIDE, Artifact


class _Inline(ast.NodeTransformer):
    """Replaces names by source text."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._sources = sources

    @override
    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.parse(self._sources.get(node.id, node.id), mode="eval").body


def inlined(text: str, artifact: Artifact, others: Mapping[str, str]) -> str:
    """An expression over parameters as one over the values at the launch point.

    ``others`` says what stands for the functions that such expressions may call.
    """
    sources = {parameter.name: parameter.source for parameter in artifact.parameters}
    inline = _Inline({**sources, **others})
    return ast.unparse(inline.visit(ast.parse(text, mode="eval")))


class _PlainDivision(ast.NodeTransformer):
    """Writes ``cdiv`` as arithmetic: saved modules and packages name it differently."""

    @override
    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if not (isinstance(node.func, ast.Name) and node.func.id == "cdiv"):
            return node
        dividend, divisor = map(ast.unparse, node.args)
        return ast.parse(f"(({dividend}) + ({divisor}) - 1) // ({divisor})", mode="eval").body


def side_checks(artifact: Artifact, require: str) -> Iterator[str]:
    """One statement for each launch axis after the first whose length only a call knows."""
    if artifact.llvm:
        return
    for axis, text in enumerate(artifact.grid[1:], 1):
        if text.isdigit():
            continue
        plain = ast.unparse(_PlainDivision().visit(ast.parse(text, mode="eval")))
        count = inlined(plain, artifact, {})
        what = f"at most {MAX_LAUNCH_SIDE} programs along launch axis {axis}"
        yield f"{require}({what!r}, {count} <= {MAX_LAUNCH_SIDE}, True)"
