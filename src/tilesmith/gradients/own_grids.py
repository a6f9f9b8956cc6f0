"""Gradients of the factors of products get grids of their own, and need no atomics.

Programs of the forward grid share a factor: all columns of a product use the same rows. Summed over
those columns by a loop, in a grid over the factor, each of its elements belongs to one program.
Where all rows share a weight, programs walk a group of tiles and leave one part for the group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tilesmith.dtypes import DType
from tilesmith.gradients.copies import Copies
from tilesmith.ir.function import Block, Function
from tilesmith.ir.operation import Operation, Region, Trait
from tilesmith.ir.ops.control_flow import Grid, Loop, Yield
from tilesmith.ir.ops.indexing import Full, TileIndex
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.ops.shape import ExpandDims
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.traversal import definitions, shape_symbols, walk
from tilesmith.ir.types import Value


@dataclass(frozen=True)
class _Axis:
    """One axis of the loops around an update."""

    arg: Value
    begin: Value
    end: Value
    block: str


@dataclass(frozen=True)
class _Update:
    """An atomic sum that can be turned into a loop."""

    op: Atomic
    slice: tuple[Operation, ...]
    """What its value and its indices are computed by, in program order."""
    own: tuple[_Axis, ...]
    """Axes of the gradient."""
    summed: tuple[_Axis, ...]


@dataclass(frozen=True)
class StoredSum:
    """A gradient that one program sums up and stores."""

    tensor: Value
    covers: bool
    """Whether all of its elements are stored."""


def give_own_grids(
    function: Function, dtypes: Mapping[Value, DType]
) -> tuple[Function, dict[Value, StoredSum]]:
    """Turn sums of products into grids over their results.

    ``dtypes`` has the element types of gradients that were to be added up in wider ones. Also
    gives the tensors that are stored then, with the new one in place of the old.
    """
    known = definitions(function.body)
    outside = {value for op in function.body.ops for value in op.results}
    outside |= {parameter.value for parameter in function.parameters}
    atomics = [op.tensor for op in walk(function.body) if isinstance(op, Atomic)]
    stored: dict[Value, StoredSum] = {}
    blocks: list[Block] = list(function.blocks)
    ops: list[Operation] = []
    for op in function.body.ops:
        found = list(_updates(op, known, outside)) if isinstance(op, Grid) else []
        # Loops of one launch run at the same time: what several add to stays atomic.
        single = [update for update in found if atomics.count(update.op.tensor) == 1]
        dropped = {update.op for update in single}
        rest = _without(op, dropped)
        if not isinstance(rest, Grid) or _has_effect(rest):
            ops.append(rest)
        for update in reversed(single):
            tensor = update.op.tensor
            kind = replace(tensor.tensor, dtype=dtypes.get(tensor, tensor.tensor.dtype))
            stored[tensor] = StoredSum(tensor.like(kind), _covers(update, known))
            writer = TileWriter(lambda loc=op.loc: loc)
            writer.open_region()
            bounded = _with_outer_bounds(update, writer, known, outside)
            names = _fresh_blocks(bounded, blocks)
            writer.insert(_grid_of(bounded, stored[tensor].tensor, names))
            ops += writer.close_region().ops
    parameters = [
        replace(p, value=stored[p.value].tensor) if p.value in stored else p
        for p in function.parameters
    ]
    body = function.body.with_ops(ops)
    made = replace(function, parameters=tuple(parameters), blocks=tuple(blocks), body=body)
    return made, stored


def _fresh_blocks(update: _Update, blocks: list[Block]) -> dict[str, str]:
    """Blocks of its own for a grid, which are added to the others: each grid has its best tiles."""
    names: dict[str, str] = {}
    for axis in (*update.own, *update.summed):
        old = next(block for block in blocks if block.name == axis.block)
        if old.fixed is None:
            names[old.name] = f"{old.name}_{len(blocks)}"
            blocks.append(replace(old, name=names[old.name], slot=None))
    return names


def _covers(update: _Update, known: Mapping[Value, Operation]) -> bool:
    """Whether the grid reaches all elements; only what is constant counts."""
    sizes = update.op.tensor.tensor.shape
    ends = [(known.get(axis.begin), known.get(axis.end)) for axis in update.own]
    return all(
        isinstance(first, Full) and isinstance(last, Full) and (first.value, last.value) == (0, n)
        for (first, last), n in zip(ends, sizes)
    )


def _with_outer_bounds(
    update: _Update, writer: TileWriter, known: Mapping[Value, Operation], outside: set[Value]
) -> _Update:
    """The same with bounds that are defined before the grid."""

    def bound(value: Value) -> Value:
        op = known.get(value)
        if value in outside or not isinstance(op, Full):
            return value
        return writer.full(value.tile, op.value)

    def moved(axis: _Axis) -> _Axis:
        return replace(axis, begin=bound(axis.begin), end=bound(axis.end))

    own, summed = tuple(map(moved, update.own)), tuple(map(moved, update.summed))
    return replace(update, own=own, summed=summed)


def _has_effect(op: Grid) -> bool:
    return any(inner.traits & (Trait.WRITES | Trait.EFFECT) for inner in walk(op.body))


def _without(op: Operation, dropped: set[Atomic]) -> Operation:
    regions = tuple(
        region.with_ops([_without(inner, dropped) for inner in region.ops if inner not in dropped])
        for region in op.regions()
    )
    return op.with_regions(regions)


def _updates(
    grid: Grid, known: Mapping[Value, Operation], outside: set[Value]
) -> Iterator[_Update]:
    axes = _axes(grid)
    order = {op: place for place, op in enumerate(walk(grid.body))}
    loops = [op for op in grid.body.ops if isinstance(op, Loop)]
    atomics = [(loop, op) for loop in loops for op in loop.body.ops if isinstance(op, Atomic)]
    for loop, op in atomics:
        around = (*axes, *_axes(loop))
        needed = _slice(op, known, outside, {axis.arg for axis in around})
        bounds = [v for axis in around for v in (axis.begin, axis.end)]
        is_known = all(v in outside or isinstance(known.get(v), Full) for v in bounds)
        own = _own_axes(op, known, around)
        is_product = op.mask is None and _is_product(op.value, known)
        if is_product and is_known and needed is not None and own is not None:
            summed = tuple(axis for axis in around if axis not in own)
            ordered = tuple(sorted(needed, key=lambda one: order[one]))
            yield _Update(op, ordered, own, summed)


def _axes(op: Grid | Loop) -> tuple[_Axis, ...]:
    parts = zip(op.body.args, op.begins, op.ends, op.blocks)
    return tuple(_Axis(*part) for part in parts)


def _is_product(value: Value, known: Mapping[Value, Operation]) -> bool:
    """Other sums are cheap where they are; a product computed twice is not."""
    return isinstance(known.get(value), Dot)


def _slice(
    op: Atomic, known: Mapping[Value, Operation], outside: set[Value], args: set[Value]
) -> set[Operation] | None:
    """The ops that an update needs; None where a loop has to run for it."""
    found: set[Operation] = set()
    waiting = [op.value, *op.indices]
    while waiting:
        value = waiting.pop()
        if value in outside or value in args:
            continue
        source = known.get(value)
        is_plain = source is not None and not source.regions()
        if source is None or not is_plain or not (Trait.PURE in source.traits or _reads(source)):
            return None
        if source not in found:
            found.add(source)
            waiting += source.operand_values()
    return found


def _reads(op: Operation) -> bool:
    return isinstance(op, Load)


def _own_axes(
    op: Atomic, known: Mapping[Value, Operation], around: tuple[_Axis, ...]
) -> tuple[_Axis, ...] | None:
    """The axes that the indices are tiles of, all of them tiles."""
    by_arg = {axis.arg: axis for axis in around}
    own: list[_Axis] = []
    for index in op.indices:
        source = known.get(index)
        if isinstance(source, ExpandDims):
            source = known.get(source.x)
        if not isinstance(source, TileIndex) or source.begin not in by_arg:
            return None
        own.append(by_arg[source.begin])
    is_proper = len(set(own)) == len(own) and all(axis.block for axis in around)
    return tuple(own) if is_proper and len(own) < len(around) else None


def _grid_of(update: _Update, tensor: Value, blocks: Mapping[str, str]) -> Grid:
    """The grid over a gradient, each program of which sums up its own elements."""
    op = update.op
    copies = Copies(blocks=blocks)
    own = tuple(copies.add(axis.arg) for axis in update.own)
    writer = TileWriter(lambda: op.loc)
    writer.open_region()
    total = writer.full(copies.renamed(op.value.tile), 0.0)
    summed = _sum_over(update, Copies(dict(copies.values), blocks), total)
    writer.insert(summed)
    for one in update.slice:
        if _is_index(one, update):
            writer.insert(copies.clone(one))
    value = writer.cast(summed.results[0], tensor.tensor.dtype)
    indices = tuple(map(copies.of, op.indices))
    writer.effect(Store, tensor=tensor, value=value, indices=indices)
    writer.effect(Yield, values=())
    return Grid(
        begins=tuple(axis.begin for axis in update.own),
        ends=tuple(axis.end for axis in update.own),
        blocks=tuple(blocks.get(axis.block, axis.block) for axis in update.own),
        body=writer.close_region(own),
        loc=op.loc,
    )


def _is_index(op: Operation, update: _Update) -> bool:
    """Whether an index of the update is made of it: a line of positions, or a view of one."""
    if isinstance(op, TileIndex):
        return any(op.begin is axis.arg for axis in update.own)
    return isinstance(op, ExpandDims) and op.result in update.op.indices


def _sum_over(update: _Update, copies: Copies, total: Value) -> Loop:
    args = tuple(copies.add(axis.arg) for axis in update.summed)
    carried = total.like()
    carried.name = f"{update.op.tensor.name}_tile"
    writer = TileWriter(lambda: update.op.loc)
    writer.open_region()
    for one in update.slice:
        writer.insert(copies.clone(one))
    after = writer.apply("add", carried, copies.of(update.op.value))
    writer.effect(Yield, values=(after,))
    blocks = (axis.block for axis in update.summed)
    return Loop(
        begins=tuple(axis.begin for axis in update.summed),
        ends=tuple(axis.end for axis in update.summed),
        steps=(),
        init=(total,),
        blocks=tuple(copies.blocks.get(block, block) for block in blocks),
        body=Region((*args, carried), writer.close_region().ops),
        results=(carried.like(),),
        loc=update.op.loc,
    )


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
    shared = _same_for_all(grid.body, arg, block.name)
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


def _same_for_all(body: Region, arg: Value, block: str) -> list[Operation]:
    """Loads, and what they need, that are the same for all tiles of a group."""
    varying = {arg}
    found: list[Operation] = []
    for op in body.ops:
        is_plain = Trait.PURE in op.traits or (isinstance(op, Load) and op.mask is None)
        depends = any(value in varying for value in op.operand_values())
        if is_plain and not depends and not op.regions() and block not in shape_symbols(op):
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
