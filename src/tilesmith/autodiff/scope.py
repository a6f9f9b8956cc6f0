"""Where generated statements go: one scope for each loop, with the names it knows.

A value of an outer loop that is first needed inside an inner one is computed before the inner one:
the lines of a loop join those of the loop around it when they are complete.
"""

from __future__ import annotations

import keyword
from dataclasses import dataclass, field

from tilesmith.ir.operation import Region
from tilesmith.ir.types import Value

RESERVED = {"torch", "hl", "tilesmith", "helion", "math", "operator", "triton", "tl"}
INDENT = "    "


@dataclass(frozen=True)
class Text:
    """An expression for a value."""

    code: str
    is_full: bool = True
    """Whether it has the value's shape, rather than one that broadcasts to it."""


class Names:
    """Hands out each name once."""

    def __init__(self) -> None:
        self._taken = set(RESERVED)

    def fresh(self, wish: str) -> str:
        """The wished name, or one like it."""
        base = "".join(c if c.isalnum() else "_" for c in wish) or "value"
        base = base if base.isidentifier() and not keyword.iskeyword(base) else f"v_{base}"
        name, number = base, 1
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._taken.add(name)
        return name


@dataclass
class Scope:
    """The statements of one loop body, or of host code."""

    region: Region
    parent: Scope | None = None
    lines: list[str] = field(default_factory=list[str])
    known: dict[Value, Text] = field(default_factory=dict[Value, Text])
    gradients: dict[Value, Text] = field(default_factory=dict[Value, Text])
    tiles: dict[str, str] = field(default_factory=dict[str, str])
    """The variable that is the tile of each block."""
    begins: dict[Value, str] = field(default_factory=dict[Value, str])
    """The same by the region's argument that is the tile's first index."""
    sums: set[str] = field(default_factory=set[str])
    """Variables that inner loops add to."""

    def of(self, region: Region) -> Scope:
        """The scope of a region around this one, or this one itself."""
        scope: Scope | None = self
        while scope is not None and scope.region is not region:
            scope = scope.parent
        assert scope is not None, "a value is used outside of the region that defines it"
        return scope

    def tile(self, block: str) -> str | None:
        """The tile of a block that is being looped over here."""
        scope: Scope | None = self
        while scope is not None:
            if block in scope.tiles:
                return scope.tiles[block]
            scope = scope.parent
        return None

    def add_loop(self, header: str, body: Scope) -> None:
        """Put a complete loop here, if it does anything."""
        if body.lines:
            self.lines += [header, *(INDENT + line for line in body.lines)]
