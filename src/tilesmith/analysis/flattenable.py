"""Which grids over several tile axes may become grids over one axis of all their elements.

Every value inside must have the grid's blocks all together and in order (a joint tile), or be an
index along one of them (a coordinate), or have none of them (plain).
"""

from __future__ import annotations

from enum import Enum

from tilesmith.analysis.effects import is_elsewhere
from tilesmith.ir.axis_roles import (
    Accessed,
    Carried,
    Combined,
    Kept,
    Mixed,
    Numbered,
    Permuted,
    Role,
)
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Trait
from tilesmith.ir.ops.control_flow import Grid, GroupBarrier, Loop
from tilesmith.ir.ops.indexing import BlockSize, Full, TileIndex
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.traversal import definitions, walk
from tilesmith.ir.types import Dim, Shape, TileType, Value


class BlockUse(Enum):
    """How the shape of a tile uses the blocks of a grid."""

    PLAIN = "plain"
    COORDINATE = "coordinate"
    JOINT = "joint"
    SCATTERED = "scattered"


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


def block_use_of(shape: Shape, blocks: tuple[str, ...]) -> BlockUse:
    """How a shape uses the blocks."""
    used = [dim for dim in shape if set(dim.symbols) & set(blocks)]
    if not used:
        return BlockUse.PLAIN
    if find_run(shape, blocks) is not None and len(used) == len(blocks):
        return BlockUse.JOINT
    is_line = len(used) == 1 and used[0].symbol is not None
    others = [dim for dim in shape if dim is not used[0]]
    if is_line and all(dim.is_one for dim in others):
        return BlockUse.COORDINATE
    return BlockUse.SCATTERED


def _is_flattenable(grid: Grid, defined_by: dict[Value, Operation]) -> bool:
    blocks = grid.blocks
    if len(blocks) < 2 or not all(blocks) or len(set(blocks)) < len(blocks):
        return False
    begins = [defined_by.get(begin) for begin in grid.begins]
    if not all(isinstance(begin, Full) and begin.value == 0 for begin in begins):
        return False
    ops = list(walk(grid.body))
    is_legal = all(_is_legal(op, grid) for op in ops)
    return is_legal and any(isinstance(op.form, Accessed) for op in ops)


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
    args = (arg for region in op.regions() for arg in region.args)
    types = [value.type for value in (*op.operand_values(), *op.results, *args)]
    tiles = [kind for kind in types if isinstance(kind, TileType)]
    uses = {block_use_of(tile.shape, grid.blocks) for tile in tiles}
    if uses <= {BlockUse.PLAIN}:
        # How often an atomic without tiles runs depends on the number of programs; who comes to a
        # barrier does too.
        return not isinstance(op, (Atomic, GroupBarrier))
    return BlockUse.SCATTERED not in uses and _is_legal_kind(op, uses, grid.blocks)


def _is_legal_kind(op: Operation, uses: set[BlockUse], blocks: tuple[str, ...]) -> bool:
    form = op.form
    if isinstance(form, Accessed):
        return _is_legal_access(op, blocks)
    if isinstance(form, (Carried, Combined, Mixed)) or (isinstance(form, Kept) and form.attribute):
        # Axes of joint tiles are counted anew; a coordinate becomes a line, which has no others.
        mixed = (
            dim
            for value, roles in zip(op.operand_values(), op.axis_roles())
            for role, dim in zip(roles, value.tile.shape if roles else ())
            if role.role is not Role.KEPT
        )
        is_mixed = any(not set(dim.symbols).isdisjoint(blocks) for dim in mixed)
        return BlockUse.COORDINATE not in uses and not is_mixed
    # Lanes that are numbered within a tile, or lie along axes in another order, do not run through
    # all elements of the grid.
    return form.is_lane_wise and not isinstance(form, (Numbered, Permuted))


def _is_legal_access(op: Operation, blocks: tuple[str, ...]) -> bool:
    shape = Accessed.tile(op).tile.shape
    if block_use_of(shape, blocks) is not BlockUse.JOINT or is_elsewhere(op):
        return False
    # Indices align with the accessed shape from the right: each coordinate must meet its block.
    assert isinstance(op, (Load, Store, Atomic))
    return all(
        own.is_one or own == met
        for index in op.indices
        for own, met in zip(reversed(index.tile.shape), reversed(shape))
    )
