"""The blocks of a grid: those that results show are kept, and rows are walked in groups.

A backward has blocks of its own, since results do not depend on them. Parts that the host adds up
later do: there is one for each tile, or a single one where one tile is all. Such blocks stay what
they were. Where all rows share a weight, programs walk a group of tiles and leave one part for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import tilesmith.exc as errors
from tilesmith.analysis.run_order import Surroundings, find_surroundings
from tilesmith.ir.function import Block, Function
from tilesmith.ir.operation import Operation, Region, Trait
from tilesmith.ir.ops.control_flow import Grid, If, Loop, Yield
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import BlockSize
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.traversal import definitions, shape_symbols, value_symbols, values_used_by
from tilesmith.ir.types import Extent, Value, next_power_of_2

WIDEST_ONLY_TILE = 1 << 16
"""Wider tiles are not meant to be the only one: all programs store the same there."""


def surroundings_of(
    function: Function, grid: Grid, known: Mapping[Value, Operation]
) -> Surroundings:
    """What is known of the values that the indices of one grid are made of."""
    fixed = {block.name: block.fixed for block in function.blocks if block.fixed is not None}
    return find_surroundings(grid, known, fixed)


def keep_visible_blocks(function: Function) -> Function:
    """Fix the tuned blocks of grids that can be seen from what is stored.

    An index may count tiles: then their size follows from how many there are. Or it is the same for
    all tiles: as no two programs store into one element, there is one tile.
    """
    known = definitions(function.body)
    sizes: dict[str, int] = {}
    grids = [op for op in function.body.ops if isinstance(op, Grid)]
    for block, size in (found for grid in grids for found in _visible_in(function, grid, known)):
        sizes[block] = max(size, sizes.get(block, 1))
    if not sizes:
        return function
    blocks = [replace(b, fixed=sizes.get(b.name, b.fixed)) for b in function.blocks]
    return replace(function, blocks=tuple(blocks))


def _visible_in(
    function: Function, grid: Grid, known: Mapping[Value, Operation]
) -> Iterator[tuple[str, int]]:
    where = surroundings_of(function, grid, known)
    for op, is_certain in _accesses(grid.body, is_certain=True):
        programs = grid.body.args if is_certain and isinstance(op, Store) else ()
        yield from _visible(function, op, programs, where)


def _accesses(region: Region, *, is_certain: bool) -> Iterator[tuple[Load | Store, bool]]:
    """Loads and stores, and whether every program makes them."""
    for op in region.ops:
        if isinstance(op, (Load, Store)):
            yield op, is_certain
        for inner in op.regions():
            yield from _accesses(inner, is_certain=is_certain and not isinstance(op, If))


def _visible(
    function: Function, op: Load | Store, programs: Sequence[Value], where: Surroundings
) -> Iterator[tuple[str, int]]:
    """Blocks, with the sizes that they have; ``programs``: arguments of a grid that tell apart."""
    needed = _needed(op.indices, where)
    for arg, steps in where.steps.items():
        is_tuned = bool(steps.block) and function.block(steps.block).fixed is None
        if not is_tuned or where.has_one_step(arg):
            continue
        count = _count(op, arg, steps.block, where)
        # What is stored lane by lane at one place has one lane: such an axis has one element.
        is_apart = isinstance(op, Store) and steps.block in value_symbols((op.value,))
        if count is None and (arg in needed or arg not in programs or is_apart):
            continue
        if steps.extent is None or isinstance(count, str):
            reason = f"how wide a tile is shows in `{op.tensor.name}`, whose size is not known"
            raise errors.AutodiffNotSupported(function=function.name, reason=reason, loc=op.loc)
        if count is not None or steps.extent <= WIDEST_ONLY_TILE:
            yield steps.block, next_power_of_2(-(-steps.extent // max(count or 1, 1)))


def _count(op: Load | Store, arg: Value, block: str, where: Surroundings) -> Extent | None:
    """How many tiles an index counts; None where none does."""
    for index, size in zip(op.indices, op.tensor.tensor.shape):
        number = where.definitions.get(index)
        if isinstance(number, Elementwise) and number.fn == "floordiv" and number.args[0] is arg:
            width = where.definitions.get(number.args[1])
            if isinstance(width, BlockSize) and width.block == block:
                return size
    return None


def _needed(values: Sequence[Value], where: Surroundings) -> set[Value]:
    """All that values are computed from."""
    found: set[Value] = set()
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if value in found:
            continue
        found.add(value)
        op = where.definitions.get(value)
        if op is not None:
            waiting += values_used_by([op]) if op.regions() else op.operand_values()
        parent = where.steps[value].parent if value in where.steps else None
        waiting += [parent] if parent is not None else []
    return found


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
