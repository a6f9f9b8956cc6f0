"""Loop IR with a mark before every statement; emission turns a mark into a comment.

Code that runs has none: comments with lines would make other objects of the same kernel whenever a
line above it changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from tilesmith.backends.cpu.loop_ir.elements import LEAVES, walk_elements
from tilesmith.backends.cpu.loop_ir.statements import For, Grid, If, Kernel, Nest, While
from tilesmith.diagnostics.location import SourceLocation


@dataclass(frozen=True, eq=False)
class Mark:
    """What follows comes from a set of the user's lines, by its number in a table."""

    number: int


@dataclass
class Marks:
    """The table: sets of the user's lines."""

    lines: list[tuple[SourceLocation, ...]] = field(
        default_factory=list[tuple[SourceLocation, ...]]
    )

    def put(self, kernel: Kernel) -> Kernel:
        """The kernel with marks in its grids."""
        parts = [
            replace(part, body=self._block(part.body)) if isinstance(part, Grid) else part
            for part in kernel.body
        ]
        return replace(kernel, body=tuple(parts))

    def _block(self, block: Iterable[Any]) -> tuple[Any, ...]:
        marked: list[Any] = []
        for statement in block:
            found = tuple(dict.fromkeys(loc for loc in _lines_of(statement) if loc.line))
            if found:
                marked.append(Mark(len(self.lines)))
                self.lines.append(found)
            marked.append(self._inside(statement))
        return tuple(marked)

    def _inside(self, statement: Any) -> Any:
        if isinstance(statement, For):
            return replace(statement, body=self._block(statement.body))
        if isinstance(statement, While):
            condition = self._block(statement.condition)
            return replace(statement, condition=condition, body=self._block(statement.body))
        if isinstance(statement, If):
            otherwise = self._block(statement.otherwise)
            return replace(statement, then=self._block(statement.then), otherwise=otherwise)
        return statement


def _lines_of(statement: Any) -> Iterator[SourceLocation]:
    """Of what a statement computes and writes, not of what it only reads."""
    if not isinstance(statement, Nest):
        yield statement.loc
        return
    for write in statement.writes:
        loc = getattr(write, "loc", None)
        if loc is not None:
            yield loc
    for element in walk_elements(statement.operands):
        if not isinstance(element, LEAVES):
            yield element.label.loc
