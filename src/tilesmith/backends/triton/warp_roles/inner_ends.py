"""Where tiles end inside of tensors: sequences, or heads, that are laid end to end.

The copy engine copies whole tiles, and fills with zeros only what lies past the end of a tensor.
Two things are known of lanes that the source leaves out. Rows stay rows: nothing reduces over them,
and a store leaves them out, so it does not matter what they hold. Positions past the end of a loop
are summed over: they have to be zero, since zero times infinity is no zero. They are cleared in
shared memory once they have arrived, unless the config has steps that end with the loop.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from tilesmith.analysis.affine import find_affine
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Grid, Loop
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import BlockSize, Full
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.types import Extent, Value

Definitions = Mapping[Value, Operation]


def find_cuts(load: Load, loops: Sequence[Grid | Loop], bounds: Bounds) -> set[str]:
    """The blocks along which a tile may end before its tensor does, where zeros would be copied."""
    ranges = {
        block: (start, end)
        for op in loops
        for block, start, end in zip(op.blocks, op.body.args, op.ends)
        if block in bounds.sides
    }
    found: set[str] = set()
    for size, index in zip(load.tensor.tensor.shape, load.indices):
        affine = find_affine(index, bounds.defining)
        block = None if affine is None or affine.dim is None else affine.dim.symbol
        if affine is None or block is None or block not in ranges:
            continue
        start, end = ranges[block]
        if affine.offset or affine.base != ((start, 1),) or not bounds.is_cut(end, size):
            found.add(block)
    return found


@dataclass(frozen=True)
class Bounds:
    """What is known of where loops end."""

    sides: Container[str]
    """The blocks along the sides of products."""
    rows: str
    first_row: Value
    """Where a tile of rows begins."""
    defining: Definitions

    def is_cut(self, end: Value, size: Extent) -> bool:
        """Whether a loop ends with a tensor at the latest, and if not there, with whole tiles."""
        op = self.defining.get(end)
        if isinstance(op, Elementwise) and op.fn == "minimum":
            cuts = [self.is_cut(arg, size) for arg in op.args]
            return any(cuts) and all(
                is_cut or self._ends_rows(arg) for arg, is_cut in zip(op.args, cuts)
            )
        return isinstance(op, Full) and op.value == size

    def _ends_rows(self, value: Value) -> bool:
        """Whether this is where a whole tile of rows ends."""
        op = self.defining.get(value)
        if not isinstance(op, Elementwise) or op.fn != "add" or op.args[0] is not self.first_row:
            return False
        size = self.defining.get(op.args[1])
        return isinstance(size, BlockSize) and size.block == self.rows
