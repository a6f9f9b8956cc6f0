"""How far the axes of grids and loops go where constants say so: tiles are no longer than that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from tilesmith.ir.function import Function
from tilesmith.ir.operation import Region
from tilesmith.ir.ops.control_flow import Grid, Loop, While
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.traversal import bound_blocks, definitions, walk_function
from tilesmith.ir.types import Dim, Shape, Value
from tilesmith.schedule.schedule import Schedule

_ITERATIONS = 8
"""What a loop of unknown length is taken for."""


@dataclass(frozen=True)
class KnownExtents:
    """Lengths of axes and tiles of one function under one schedule.

    Attributes:
        axes: for each grid and loop, how far each axis goes; None where that is not known.
        blocks: the longest axis of each block whose axes are all known, and of which there are no
            tiles outside of its loops: those are whole.
    """

    schedule: Schedule
    axes: Mapping[Grid | Loop, tuple[int | None, ...]]
    blocks: Mapping[str, int]

    @staticmethod
    def of(function: Function, schedule: Schedule) -> KnownExtents:
        """Read the constants between which axes go."""
        made_by = definitions(function.body)

        def length(begin: Value, end: Value) -> int | None:
            ops = made_by.get(begin), made_by.get(end)
            known = [int(op.value) for op in ops if isinstance(op, Full)]
            return max(0, known[1] - known[0]) if len(known) == len(ops) else None

        loops = [op for op in walk_function(function) if isinstance(op, (Grid, Loop))]
        axes = {op: tuple(map(length, op.begins, op.ends)) for op in loops}
        found: dict[str, list[int | None]] = {b: [None] for b in _blocks_outside(function.body)}
        for op, lengths in axes.items():
            for block, known in zip(op.blocks, lengths):
                found.setdefault(block, []).append(known)
        known = {b: [x for x in lengths if x is not None] for b, lengths in found.items()}
        blocks = {b: max(known[b]) for b in found if len(known[b]) == len(found[b])}
        return KnownExtents(schedule, axes, blocks)

    def most(self, dim: Dim) -> int:
        """The most elements of a tile along a dimension."""
        whole = self.schedule.physical(dim)
        known = [
            self.blocks.get(factor, whole) for factor in dim.factors if isinstance(factor, str)
        ]
        is_block = len(dim.factors) == 1 and len(known) == 1
        return min(whole, max(1, known[0])) if is_block else whole

    def elements(self, shape: Shape) -> int:
        """The most elements of a tile."""
        return prod(map(self.most, shape))

    def iterations(self, loop: Loop | While) -> int:
        """How often the body of a loop runs, or a guess."""
        if isinstance(loop, While):
            return _ITERATIONS
        counts: list[int] = []
        for length, block in zip(self.axes[loop], loop.blocks):
            if length is None or not block:
                return _ITERATIONS
            counts.append(-(-length // self.schedule.symbols[block]))
        return max(1, prod(counts))


def _blocks_outside(region: Region, bound: frozenset[str] = frozenset()) -> Iterator[str]:
    """Blocks of tiles that are in none of their loops; ``bound`` has those of loops around."""
    for op in region.ops:
        shapes = (value.tile.shape for value in op.results)
        yield from (x for shape in shapes for dim in shape for x in dim.symbols if x not in bound)
        for inner in op.regions():
            yield from _blocks_outside(inner, bound | bound_blocks(op))
