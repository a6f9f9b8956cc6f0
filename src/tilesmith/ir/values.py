"""SSA values: a type, a source location and a name hint. Identity is the object itself."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilesmith.diagnostics.location import UNKNOWN, SourceLocation
from tilesmith.ir.types import TensorType, TileType, Type

Constant = int | float | bool
"""What one lane holds where that is known at compile time."""


@dataclass(eq=False)
class Value:
    """One SSA value. Only the name may change after creation; it has no meaning, only readers."""

    type: Type
    name: str = ""
    loc: SourceLocation = field(default=UNKNOWN, repr=False)

    @property
    def tile(self) -> TileType:
        """The type of a value known to be a tile."""
        assert isinstance(self.type, TileType), self
        return self.type

    @property
    def tensor(self) -> TensorType:
        """The type of a value known to be a tensor."""
        assert isinstance(self.type, TensorType), self
        return self.type

    def like(self, new_type: Type | None = None) -> Value:
        """A fresh value with the same name and location."""
        return Value(new_type or self.type, self.name, self.loc)
