"""Which grids over several tile axes may become grids over one axis of all their elements.

Every value inside must have the grid's blocks all together and in order (a joint tile), or be an
index along one of them (a coordinate), or have none of them (plain).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from tilesmith.analysis.effects import is_elsewhere
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Grid, GroupBarrier, If, Loop, While, Yield
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import BlockSize, Full, Mask, TileIndex
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.ops.shape import Broadcast, ExpandDims
from tilesmith.ir.traits import Trait
from tilesmith.ir.traversal import definitions, walk
from tilesmith.ir.types import Dim, Shape, TileType
from tilesmith.ir.values import Value


class Role(Enum):
    """What a tile's shape says about the blocks of a grid."""

    PLAIN = "plain"
    COORDINATE = "coordinate"
    JOINT = "joint"
    MIXED = "mixed"


_LANE_WISE = (Elementwise, Cast, Full, Broadcast, ExpandDims)
_JOINT_ONLY = (Mask, Reduce, Loop, While, If, Yield)
"""Ops that may have joint tiles but no coordinates."""


def find_flattenable(function: Function) -> tuple[int, ...]:
    """The slots of the grids that ``flatten_tiles`` can flatten."""
    defined_by = definitions(function.body)
    grids = [op for op in function.body.ops if isinstance(op, Grid)]
    return tuple(grid.slot for grid in grids if _is_flattenable(grid, defined_by))


def find_run(shape: Shape, blocks: tuple[str, ...]) -> int | None:
    """The axis at which the blocks stand one after the other, if they do."""
    wanted = tuple(map(Dim.of, blocks))
    for start in range(len(shape) - len(wanted) + 1):
        if shape[start : start + len(wanted)] == wanted:
            return start
    return None


def role_of(shape: Shape, blocks: tuple[str, ...]) -> Role:
    """How a shape uses the blocks."""
    used = [dim for dim in shape if set(dim.symbols) & set(blocks)]
    if not used:
        return Role.PLAIN
    if find_run(shape, blocks) is not None and len(used) == len(blocks):
        return Role.JOINT
    is_line = len(used) == 1 and used[0].symbol is not None
    others = [dim for dim in shape if dim is not used[0]]
    if is_line and all(dim.is_one for dim in others):
        return Role.COORDINATE
    return Role.MIXED


def _is_flattenable(grid: Grid, defined_by: dict[Value, Operation]) -> bool:
    blocks = grid.blocks
    if len(blocks) < 2 or not all(blocks) or len(set(blocks)) < len(blocks):
        return False
    if not all(_is_zero(begin, defined_by) for begin in grid.begins):
        return False
    ops = list(walk(grid.body))
    if not all(_is_legal(op, grid) for op in ops):
        return False
    return any(isinstance(op, (Load, Store, Atomic)) for op in ops)


def _is_zero(value: Value, defined_by: dict[Value, Operation]) -> bool:
    op = defined_by.get(value)
    return isinstance(op, Full) and op.value == 0


def _tiles_of(op: Operation) -> Iterator[Value]:
    args = (arg for region in op.regions() for arg in region.args)
    for value in (*op.operand_values(), *op.results, *args):
        if isinstance(value.type, TileType):
            yield value


def _is_legal(op: Operation, grid: Grid) -> bool:
    if Trait.EFFECT in op.traits:
        return False
    uses_position = not set(op.operand_values()).isdisjoint(grid.body.args)
    if isinstance(op, TileIndex) and op.block in grid.blocks:
        return op.begin is grid.body.args[grid.blocks.index(op.block)]
    if uses_position or (isinstance(op, BlockSize) and op.block in grid.blocks):
        return False
    if isinstance(op, Loop) and not set(op.blocks).isdisjoint(grid.blocks):
        return False
    roles = {role_of(value.tile.shape, grid.blocks) for value in _tiles_of(op)}
    if roles <= {Role.PLAIN}:
        # How often an atomic without tiles runs depends on the number of programs; who comes to a
        # barrier does too.
        return not isinstance(op, (Atomic, GroupBarrier))
    return Role.MIXED not in roles and _is_legal_kind(op, roles, grid.blocks)


def _is_legal_kind(op: Operation, roles: set[Role], blocks: tuple[str, ...]) -> bool:
    if isinstance(op, (Load, Store, Atomic)):
        return _is_legal_access(op, blocks)
    if isinstance(op, _JOINT_ONLY):
        return Role.COORDINATE not in roles and not _reduces_block(op, blocks)
    return isinstance(op, _LANE_WISE)


def _reduces_block(op: Operation, blocks: tuple[str, ...]) -> bool:
    return isinstance(op, Reduce) and not set(op.x.tile.shape[op.axis].symbols).isdisjoint(blocks)


def _is_legal_access(op: Load | Store | Atomic, blocks: tuple[str, ...]) -> bool:
    shape = (op.result if isinstance(op, Load) else op.value).tile.shape
    if role_of(shape, blocks) is not Role.JOINT or is_elsewhere(op):
        return False
    # Indices align with the accessed shape from the right: each coordinate must meet its block.
    for index in op.indices:
        aligned = shape[len(shape) - index.tile.rank :]
        if any(not a.is_one and a != b for a, b in zip(index.tile.shape, aligned)):
            return False
    return True
