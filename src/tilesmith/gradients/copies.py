"""Copies of ops: what the forward computes is computed again by the backward."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.types import Dim, TileType, Value


@dataclass(frozen=True)
class Copies:
    """Values with others in their place, and blocks with others in theirs."""

    values: dict[Value, Value] = field(default_factory=dict[Value, Value])
    blocks: Mapping[str, str] = field(default_factory=dict[str, str])
    is_fresh: bool = True
    """Whether results are values of their own: not where the ops themselves move."""

    def of(self, value: Value) -> Value:
        """What stands for a value."""
        return self.values.get(value, value)

    def add(self, value: Value) -> Value:
        """A fresh value for one that is defined again."""
        if not self.is_fresh:
            return value
        kind = value.type
        kind = self.renamed(kind) if isinstance(kind, TileType) else kind
        copy = self.values[value] = value.like(kind)
        return copy

    def renamed(self, kind: TileType) -> TileType:
        """A type with the blocks that stand for its own."""
        dims = {old: Dim.of(new) for old, new in self.blocks.items()}
        return kind.with_shape(tuple(dim.substitute(dims) for dim in kind.shape))

    def clone(self, op: Operation) -> Operation:
        """An op again, and all that is in it."""
        copy = op.with_operands(self.of)
        regions = tuple(self._clone_region(region) for region in op.regions())
        results = tuple(map(self.add, op.results))
        return replace(copy.with_regions(regions), results=results, **self._renamed(op))

    def _clone_region(self, region: Region) -> Region:
        args = tuple(map(self.add, region.args))
        return Region(args, tuple(map(self.clone, region.ops)))

    def _renamed(self, op: Operation) -> dict[str, Any]:
        """The attributes that name blocks."""
        found = {name: value for name, value in op.attributes().items() if name in _BLOCK_FIELDS}
        return {
            name: self.blocks.get(value, value)
            if isinstance(value, str)
            else tuple(self.blocks.get(block, block) for block in value)
            for name, value in found.items()
        }


_BLOCK_FIELDS = ("block", "blocks")
