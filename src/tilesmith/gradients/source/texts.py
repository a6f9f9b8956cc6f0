"""Pieces of Python text: expressions with their precedence, and names that nobody else has."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable
from dataclasses import dataclass

COMPARE, OR, XOR, AND, SHIFT, ADD, MULTIPLY, UNARY, ATOM = range(9)
"""How tightly operators bind, the loosest first."""
RESERVED = frozenset(
    {"helion", "hl", "math", "torch", "operator", "float", "min", "max", "range", "reversed"}
)


@dataclass(frozen=True)
class Text:
    """An expression; ``level`` says how tightly its outermost operator binds."""

    code: str
    level: int = ATOM
    is_tile: bool = True
    """Whether it has the methods of a tile: numbers have not."""

    def within(self, level: int) -> str:
        """The code as an operand of an operator of that level."""
        return self.code if self.level >= level else f"({self.code})"

    @property
    def atom(self) -> str:
        """The code where an attribute or a subscript may follow."""
        is_number = re.fullmatch(r"[\d.]+", self.code) is not None
        return f"({self.code})" if is_number else self.within(ATOM)


def call(function: str, *args: str) -> Text:
    """A call."""
    return Text(f"{function}({', '.join(args)})")


def listed(items: Iterable[str]) -> str:
    """A list display."""
    return f"[{', '.join(items)}]"


def returned(items: list[str]) -> str:
    """One item as it is, several as a tuple."""
    return items[0] if len(items) == 1 else ", ".join(items)


class Identifiers:
    """Unique names: the one wished for, numbered when it is taken."""

    def __init__(self) -> None:
        self._taken = set(RESERVED)

    def make(self, wish: str) -> str:
        """A name that is free, as near to a wish as can be."""
        base = re.sub(r"\W+", "_", wish).strip("_") or "value"
        if base[0].isdigit() or keyword.iskeyword(base):
            base = f"_{base}"
        stem = re.sub(r"_\d+$", "", base) or base
        name, number = base, 1
        while name in self._taken:
            number += 1
            name = f"{stem}_{number}"
        self._taken.add(name)
        return name
