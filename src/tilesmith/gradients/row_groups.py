"""Where all rows share a weight: programs walk a group of tiles and leave one part for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tilesmith.ir.function import Block, Function
from tilesmith.ir.operation import Operation, Region, Trait
from tilesmith.ir.ops.control_flow import Grid, Loop, Yield
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.traversal import shape_symbols
from tilesmith.ir.types import Value


def group_rows(function: Function, axis: int) -> Function:
    """The function with one more loop in its only grid, over the tiles of a group along an axis.

    Before::

        grid([%0], [%m]) {blocks=["t"]} (%t_begin) { ... }

    After::

        grid([%0], [%m]) {blocks=["t_group"]} (%group) {
          loop([%group], [%group_end]) {blocks=["t"]} (%t_begin) { ... }
        }
    """
    (grid,) = [op for op in function.body.ops if isinstance(op, Grid)]
    block = function.block(grid.blocks[axis])
    name = f"{block.name}_group"
    arg = grid.body.args[axis]
    begin = arg.like()
    begin.name = f"{arg.name.removesuffix('_begin')}_group_begin"
    writer = TileWriter(lambda: grid.loc)
    writer.open_region()
    stop = writer.apply("add", begin, writer.size_of(begin.tile, name))
    end = writer.apply("minimum", stop, grid.ends[axis])
    shared = same_for_all(grid.body.ops, {arg: block.name})
    for op in shared:
        writer.insert(op)
    inner = tuple(op for op in grid.body.ops if op not in shared)
    body = Region((arg,), inner)
    writer.insert(
        Loop(
            begins=(begin,),
            ends=(end,),
            steps=(),
            init=(),
            blocks=(block.name,),
            body=body,
            loc=grid.loc,
        )
    )
    writer.effect(Yield, values=())
    args = tuple(begin if old is arg else old for old in grid.body.args)
    blocks = tuple(name if i == axis else old for i, old in enumerate(grid.blocks))
    grouped = replace(grid, blocks=blocks, body=writer.close_region(args))
    ops = [grouped if op is grid else op for op in function.body.ops]
    added = Block(name, extent=block.extent, loc=block.loc)
    return replace(function, blocks=(*function.blocks, added), body=function.body.with_ops(ops))


def same_for_all(ops: Iterable[Operation], axes: Mapping[Value, str]) -> list[Operation]:
    """Loads, and what they need, that are the same for all tiles of some axes."""
    varying = set(axes)
    found: list[Operation] = []
    for op in ops:
        is_plain = Trait.PURE in op.traits or (isinstance(op, Load) and op.mask is None)
        depends = any(value in varying for value in op.operand_values())
        is_narrow = shape_symbols(op).isdisjoint(axes.values())
        if is_plain and not depends and not op.regions() and is_narrow:
            found.append(op)
        else:
            varying.update(op.results)
    return found


def can_group(function: Function, axis: int) -> bool:
    """Whether there is one grid, and its tiles along the axis are tuned."""
    grids = [op for op in function.body.ops if isinstance(op, Grid)]
    if len(grids) != 1 or not grids[0].blocks[axis]:
        return False
    return function.block(grids[0].blocks[axis]).fixed is None
