"""What may stand beside the loop of a tile: loops over numbers, and ways to store a result.

A loop that gives numbers, such as whether a tile has work, is run by each role for itself. A branch
without results may store whole tiles in one way and others in another: both are lists of stores.
"""

from __future__ import annotations

from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import If, Loop, Yield
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import BlockSize, Full, TileIndex
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.ir.ops.shape import Broadcast, ExpandDims
from tilesmith.ir.traversal import walk

_NUMBER_OPS = (Full, BlockSize, Elementwise, Cast, Load, Yield)
_MASK_OPS = (TileIndex, Broadcast, ExpandDims)


def is_search(op: Operation) -> bool:
    """Whether this is a loop that gives numbers, and needs nothing but numbers."""
    if not isinstance(op, Loop) or any(op.blocks) or not op.results:
        return False
    values = [value for inner in walk(op.body) for value in inner.results]
    has_tiles = any(value.tile.rank for value in (*values, *op.results))
    return not has_tiles and all(isinstance(inner, _NUMBER_OPS) for inner in walk(op.body))


def is_choice(op: Operation) -> bool:
    """Whether this is a branch that only stores, once or by numbers that it loads."""
    if not isinstance(op, If) or op.results:
        return False
    inner = [*walk(op.then), *walk(op.otherwise)]
    known = (*_NUMBER_OPS, *_MASK_OPS, Store)
    loads = [item for item in inner if isinstance(item, Load)]
    return (
        any(isinstance(item, Store) for item in inner)
        and all(isinstance(item, known) or _is_repeated(item) for item in inner)
        and not any(load.result.tile.rank for load in loads)
    )


def _is_repeated(op: Operation) -> bool:
    return isinstance(op, Loop) and not any(op.blocks) and not op.results


def stores_after(ops: tuple[Operation, ...]) -> list[Store]:
    """The stores among ops that follow a loop, those in branches too."""
    nested = [inner for op in ops for region in op.regions() for inner in walk(region)]
    return [op for op in (*ops, *nested) if isinstance(op, Store)]
