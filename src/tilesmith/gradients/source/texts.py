"""Pieces of Python text: expressions with their precedence, and names that nobody else has."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

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


LINE = 100
"""Characters of a line, at most."""
STEP = "    "


def wrapped(line: str, indent: str) -> list[str]:
    """A statement in lines that are short enough, broken inside its longest brackets."""
    groups = list(_groups(line))
    if len(indent) + len(line) <= LINE or not groups:
        return [indent + line]
    # Subscripts stay together where something else can be broken.
    first, last = max(groups, key=lambda group: (line[group[0]] == "(", group[1] - group[0]))
    inner, deeper = line[first + 1 : last], indent + STEP
    parts = _split(inner)
    is_call = first > 0 and (line[first - 1].isalnum() or line[first - 1] in "_)]")
    if len(parts) == 1 and not (is_call and line[first] == "("):
        body = wrapped(inner, deeper)
    elif len(deeper) + len(inner) <= LINE:
        body = [deeper + inner]
    else:
        body = [text for part in parts for text in wrapped(f"{part},", deeper)]
    return [indent + line[: first + 1], *body, *wrapped(line[last:], indent)]


def _groups(line: str) -> Iterator[tuple[int, int]]:
    """Where the outermost brackets open and close."""
    depth = start = 0
    for place, character in enumerate(line):
        if character in "([{":
            start = place if not depth else start
            depth += 1
        elif character in ")]}":
            depth -= 1
            if depth == 0:
                yield start, place


def _split(text: str) -> list[str]:
    """The items between the commas that stand in no brackets."""
    inside = [range(first, last) for first, last in _groups(text)]
    commas = [
        place
        for place, character in enumerate(text)
        if character == "," and not any(place in group for group in inside)
    ]
    bounds = [-1, *commas, len(text)]
    return [text[a + 1 : b].strip() for a, b in pairwise(bounds)]
