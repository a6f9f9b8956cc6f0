"""Which blocks a value's shape depends on, and so in which loops it keeps its meaning.

Inside a loop that binds block ``b``, an axis of ``b`` holds the valid lanes of the current
tile; outside it holds the whole block. An op over such an axis must therefore not cross the
loop's border.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Grid, Loop
from tilesmith.ir.traversal import walk
from tilesmith.ir.types import TileType
from tilesmith.ir.values import Value


def value_symbols(values: Iterable[Value]) -> frozenset[str]:
    """All symbols in the shapes of the tiles among ``values``."""
    return frozenset(
        symbol
        for value in values
        if isinstance(value.type, TileType)
        for dim in value.type.shape
        for symbol in dim.symbols
    )


def shape_symbols(op: Operation) -> frozenset[str]:
    """All symbols in the shapes of an op's operands and results."""
    return value_symbols((*op.operand_values(), *op.results))


def bound_blocks(op: Operation) -> frozenset[str]:
    """The blocks whose tiles an op steps over."""
    return frozenset(filter(None, op.blocks)) if isinstance(op, (Grid, Loop)) else frozenset()


def values_defined_in(region: Region) -> Iterator[Value]:
    """The arguments and results of a region, nested ones included."""
    yield from region.args
    for op in walk(region):
        yield from op.results
        for inner in op.regions():
            yield from inner.args
