"""Whether the tiles of a loop are rows side by side: each is computed as if it were alone."""

from __future__ import annotations

from tilesmith.analysis.effects import is_pure
from tilesmith.ir.axis_roles import Numbered, Role
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import If, Loop, Yield
from tilesmith.ir.ops.indexing import TileIndex
from tilesmith.ir.ops.memory import Load, ProgramBarrier, Store
from tilesmith.ir.traversal import walk
from tilesmith.ir.types import TileType, Value


def find_meeting(loop: Loop, axis: int) -> Operation | None:
    """An op for which it matters where a tile begins, or what other rows it has; None: no op.

    A row is a lane of axes that have the block's size. It stays one where nothing combines, moves
    or numbers these lanes, no tile has two such axes, and a tile's first row is only counted from.
    """
    block, first = loop.blocks[axis], loop.body.args[axis]
    return next((op for op in walk(loop.body) if not _keeps_rows(op, block, first)), None)


def row_axes(value: Value, block: str) -> list[int]:
    """The axes of a tile whose size has to do with the block's."""
    shape = value.type.shape if isinstance(value.type, TileType) else ()
    return [axis for axis, dim in enumerate(shape) if block in dim.symbols]


def _keeps_rows(op: Operation, block: str, first: Value) -> bool:
    if isinstance(op, (Yield, ProgramBarrier)):
        return True
    values = [*op.operand_values(), *op.results]
    if any(not _is_plain(value, block) for value in values):
        return False
    if isinstance(op, TileIndex):
        return (op.begin is first) == (op.block == block)
    if first in op.operand_values():
        return False
    if isinstance(op, (Loop, If)):
        return not isinstance(op, Loop) or block not in op.blocks
    if isinstance(op.form, Numbered) and any(row_axes(value, block) for value in op.results):
        return False
    if not is_pure(op) and not isinstance(op, (Load, Store)):
        return False
    return all(
        roles[axis].role is Role.KEPT and roles[axis].to is not None
        for value, roles in zip(op.operand_values(), op.axis_roles())
        for axis in row_axes(value, block)
    )


def _is_plain(value: Value, block: str) -> bool:
    """Whether a tile has one axis of rows at most, and nothing else along it."""
    axes = row_axes(value, block)
    return not axes or (len(axes) == 1 and value.tile.shape[axes[0]].symbol == block)
