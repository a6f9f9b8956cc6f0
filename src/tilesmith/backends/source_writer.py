"""Python under construction: how operators bind, indentation, origin comments, late lines.

A reserved place is a line whose need is not known yet (a mask, a descriptor): it is written where a
reader expects it once something asks for it, and leaves no trace otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum

from tilesmith.diagnostics.location import SourceLocation

MAX_COLUMNS = 100
INDENT = "    "


class Precedence(IntEnum):
    """How tightly an expression holds together; higher needs fewer parentheses."""

    CONDITIONAL = 0
    COMPARE = 1
    BIT_OR = 2
    BIT_XOR = 3
    BIT_AND = 4
    SHIFT = 5
    SUM = 6
    PRODUCT = 7
    UNARY = 8
    ATOM = 9


OPERATORS = {
    "|": Precedence.BIT_OR, "^": Precedence.BIT_XOR, "&": Precedence.BIT_AND,
    **dict.fromkeys(("<<", ">>"), Precedence.SHIFT),
    **dict.fromkeys(("+", "-"), Precedence.SUM),
    **dict.fromkeys(("*", "/", "//", "%"), Precedence.PRODUCT),
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">="), Precedence.COMPARE),
}  # fmt: skip


@dataclass
class ReservedLines:
    """Zero or more lines at one indentation, inserted where it was reserved."""

    depth: int
    lines: list[str] = field(default_factory=list[str])


class SourceWriter:
    """Collects lines. Nothing is printed before ``text`` is asked for."""

    def __init__(self, *, has_origins: bool = True) -> None:
        self._has_origins = has_origins
        self._places: list[ReservedLines] = []
        self._depth = 0
        self._origin: tuple[str, int] | None = None

    @contextmanager
    def indented(self) -> Iterator[None]:
        """Lines written inside are one level deeper."""
        self._depth += 1
        yield
        self._depth -= 1

    @contextmanager
    def block(
        self, header: str, arguments: Sequence[str] | None = None, optional: bool = False
    ) -> Iterator[None]:
        """``header:``, or ``header(arguments):``, with the lines written inside one level deeper.

        An empty block gets ``pass``, or vanishes with its header when it is optional.
        """
        start = len(self._places)
        origin = self._origin
        self.statement(header, arguments, tail=":")
        first = len(self._places)
        self._depth += 1
        yield
        is_empty = not any(place.lines for place in self._places[first:])
        if is_empty and optional:
            del self._places[start:]
            self._origin = origin
        elif is_empty:
            self.line("pass")
        self._depth -= 1

    def line(self, text: str) -> None:
        """Append one line at the current depth."""
        self._places.append(ReservedLines(self._depth, [text]))

    def reserve(self) -> ReservedLines:
        """A place at the current position that may be filled later."""
        place = ReservedLines(self._depth)
        self._places.append(place)
        return place

    def origin(self, loc: SourceLocation) -> None:
        """A comment naming the user's line, when it is another than that of the last comment."""
        if not self._has_origins or not loc.line or self._origin == (loc.file, loc.line):
            return
        self._origin = (loc.file, loc.line)
        self.line(f"# src[{loc}]")

    def statement(self, text: str, arguments: Sequence[str] | None = None, tail: str = "") -> None:
        """Append ``text``; with ``arguments`` it is a call, broken over lines when too long."""
        for line in format_call(text, arguments, self._depth, tail):
            self.line(line)

    def text(self) -> str:
        """Everything written so far."""
        lines = [INDENT * place.depth + line for place in self._places for line in place.lines]
        return "\n".join(line.rstrip() for line in lines) + "\n"


def format_call(
    text: str, arguments: Sequence[str] | None, depth: int, tail: str = ""
) -> list[str]:
    """``text(arguments)tail`` on one line, or one argument per line when that is too long."""
    if arguments is None:
        return [text + tail]
    whole = f"{text}({', '.join(arguments)}){tail}"
    if len(whole) + len(INDENT) * depth <= MAX_COLUMNS or not arguments:
        return [whole]
    return [f"{text}(", *(f"{INDENT}{argument}," for argument in arguments), f"){tail}"]
