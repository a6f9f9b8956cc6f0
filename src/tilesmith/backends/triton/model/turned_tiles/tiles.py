"""Tiles whose axes change places go through shared memory as a whole.

Triton lays out a tile for its load in one order and for its store in another; in between all of it
stands in shared memory, where no warp keeps a part of it. Operands of products are turned around in
place, and results of products in parts.
"""

from __future__ import annotations

from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.shape import Permute
from tilesmith.ir.types import Value
from tilesmith.schedule.facts.outline import FunctionOutline


def turned_tiles(outline: FunctionOutline) -> tuple[Value, ...]:
    """What is turned around; none in kernels with products."""
    if outline.ops(Dot):
        return ()
    return tuple(op.x for op in outline.ops(Permute))
