"""Gradients of the factors of products get grids of their own, and need no atomics.

Programs of the forward grid share a factor: all columns of a product use the same rows. Summed over
those columns by a loop, in a grid over the factor, each of its elements belongs to one program.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tilesmith.dtypes import DType
from tilesmith.gradients.copies import Copies
from tilesmith.gradients.grids.grid_blocks import same_for_all
from tilesmith.gradients.transposes import transpose, transposed
from tilesmith.ir.function import Block, Function
from tilesmith.ir.operation import Operation, Region, Trait
from tilesmith.ir.ops.control_flow import Grid, Loop, Yield
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Arange, BlockSize, Full, TileIndex
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.ops.shape import ExpandDims, Permute
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.traversal import definitions, walk
from tilesmith.ir.types import Dim, Value


@dataclass(frozen=True)
class _Axis:
    """One axis of the loops around an update."""

    arg: Value
    begin: Value
    end: Value
    block: str
    until: Value | None = None
    """Of a loop that ends with a tile around it: where that begins."""
    start: Value | None = None
    """Where its first tile begins, if not at the first index."""


@dataclass(frozen=True)
class _Update:
    """An atomic sum that can be turned into a loop."""

    op: Atomic
    slice: tuple[Operation, ...]
    """What its value and its indices are computed by, in program order."""
    own: tuple[_Axis, ...]
    """Axes of the gradient that have tiles."""
    summed: tuple[_Axis, ...]
    is_turned: bool = False
    """Whether its transpose is summed up, and turned at the end."""


@dataclass(frozen=True)
class StoredSum:
    """A gradient that one program sums up and stores."""

    tensor: Value
    covers: bool
    """Whether all of its elements are stored."""


def give_own_grids(
    function: Function, dtypes: Mapping[Value, DType], *, can_turn: bool = False
) -> tuple[Function, dict[Value, StoredSum]]:
    """Turn sums of products into grids over their results.

    ``dtypes`` has the element types of gradients that were to be added up in wider ones. Also
    gives the tensors that are stored then, with the new one in place of the old. ``can_turn``: sums
    of products whose left factor is a transpose are summed up as their transposes.
    """
    known = definitions(function.body)
    outside = {value for op in function.body.ops for value in op.results}
    outside |= {parameter.value for parameter in function.parameters}
    atomics = [op.tensor for op in walk(function.body) if isinstance(op, Atomic)]
    tuned = {block.name for block in function.blocks if block.fixed is None}
    stored: dict[Value, StoredSum] = {}
    blocks: list[Block] = list(function.blocks)
    ops: list[Operation] = []
    for op in function.body.ops:
        found = list(_updates(op, known, outside, tuned)) if isinstance(op, Grid) else []
        # Loops of one launch run at the same time: what several add to stays atomic.
        single = [
            replace(update, is_turned=can_turn and _has_turned_factor(update.op.value, known))
            for update in found
            if atomics.count(update.op.tensor) == 1
        ]
        dropped = {update.op for update in single}
        rest = _without(op, dropped)
        if not isinstance(rest, Grid) or _has_effect(rest):
            ops.append(rest)
        for group in _grouped(single[::-1]):
            for update in group:
                tensor = update.op.tensor
                kind = replace(tensor.tensor, dtype=dtypes.get(tensor, tensor.tensor.dtype))
                stored[tensor] = StoredSum(tensor.like(kind), _covers(update, known))
            tensors = [stored[update.op.tensor].tensor for update in group]
            writer = TileWriter(lambda loc=op.loc: loc)
            writer.open_region()
            bounded = [_with_outer_bounds(one, writer, known, outside) for one in group]
            names = _fresh_blocks(bounded[0], blocks)
            writer.insert(_grid_of(bounded, tensors, names))
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
    own = {axis.arg: axis for axis in update.own}
    for index, size in zip(update.op.indices, update.op.tensor.tensor.shape):
        source = known.get(index)
        source = known.get(source.x) if isinstance(source, ExpandDims) else source
        if isinstance(source, TileIndex):
            axis = own[source.begin]
            bounds = (known.get(axis.begin), known.get(axis.end))
            if [bound.value for bound in bounds if isinstance(bound, Full)] != [0, size]:
                return False
    return True


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
    grid: Grid, known: Mapping[Value, Operation], outside: set[Value], tuned: set[str]
) -> Iterator[_Update]:
    axes = _axes(grid)
    order = {op: place for place, op in enumerate(walk(grid.body))}
    loops = [op for op in grid.body.ops if isinstance(op, Loop)]
    atomics = [(loop, op) for loop in loops for op in loop.body.ops if isinstance(op, Atomic)]
    for loop, op in atomics:
        inner = [_without_diagonal(axis, axes, known, tuned) for axis in _axes(loop)]
        around = (*axes, *inner)
        free = outside | {axis.arg for axis in around}
        needed = _slice([op.value, *op.indices], known, free)
        bounds = [v for axis in around for v in (axis.begin, axis.end)]
        is_known = all(v in outside or isinstance(known.get(v), Full) for v in bounds)
        own = _own_axes(op, known, around)
        is_factor = op.mask is None and is_product(op.value, known)
        if is_factor and is_known and needed is not None and own is not None:
            summed = tuple(axis for axis in around if axis not in own)
            starts = {axis.until: axis.arg for axis in inner if axis.until is not None}
            if not starts.keys() <= {axis.arg for axis in summed}:
                continue
            summed = tuple(replace(axis, start=starts.get(axis.arg)) for axis in summed)
            ordered = tuple(sorted(needed, key=lambda one: order[one]))
            yield _Update(op, ordered, own, summed)


def _without_diagonal(
    axis: _Axis, around: Sequence[_Axis], known: Mapping[Value, Operation], tuned: set[str]
) -> _Axis:
    """An axis that ends with a tile around it, as one that ends with the last of those tiles.

    How wide that tile is must not matter, where it is tuned: it may be all of its axis, or one
    index. So what is beyond the diagonal adds nothing, and nothing is missing before it.
    """
    end = known.get(axis.end)
    if not isinstance(end, Elementwise) or end.fn != "minimum":
        return axis
    for outer in around:
        stop, last = (known.get(end.args[0]), end.args[1])
        if not isinstance(stop, Elementwise) or stop.fn != "add" or stop.args[0] is not outer.arg:
            continue
        size = known.get(stop.args[1])
        is_own = isinstance(size, BlockSize) and size.block == outer.block in tuned
        begins = [known.get(one.begin) for one in (axis, outer)]
        is_square = all(isinstance(begin, Full) and begin.value == 0 for begin in begins)
        if is_own and is_square and (last is outer.end or _same_number(last, outer.end, known)):
            return replace(axis, end=outer.end, until=outer.arg)
    return axis


def _same_number(a: Value, b: Value, known: Mapping[Value, Operation]) -> bool:
    first, second = known.get(a), known.get(b)
    return isinstance(first, Full) and isinstance(second, Full) and first.value == second.value


def _axes(op: Grid | Loop) -> tuple[_Axis, ...]:
    parts = zip(op.body.args, op.begins, op.ends, op.blocks)
    return tuple(_Axis(*part) for part in parts)


def is_product(value: Value, known: Mapping[Value, Operation]) -> bool:
    """Other sums are cheap where they are; a product computed twice is not."""
    op = known.get(value)
    while isinstance(op, (Permute, Cast)):
        op = known.get(op.x)
    return isinstance(op, Dot)


def _has_turned_factor(value: Value, known: Mapping[Value, Operation]) -> bool:
    """Whether a product has the transpose of something loaded on its left."""
    op = known.get(value)
    turned = known.get(op.lhs) if isinstance(op, Dot) else None
    return isinstance(turned, Permute) and isinstance(known.get(turned.x), Load)


def _slice(
    values: Iterable[Value], known: Mapping[Value, Operation], free: set[Value]
) -> set[Operation] | None:
    """The ops that values need; None where a loop has to run for them."""
    found: set[Operation] = set()
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if value in free:
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
    """The axes that the indices are tiles of; others are whole axes of the tensor."""
    by_arg = {axis.arg: axis for axis in around}
    own: list[_Axis] = []
    for index, size in zip(op.indices, op.tensor.tensor.shape):
        source = known.get(index)
        if isinstance(source, ExpandDims):
            source = known.get(source.x)
        if isinstance(source, Arange) and source.result.tile.shape[0] == Dim.of(size):
            continue
        if not isinstance(source, TileIndex) or source.begin not in by_arg:
            return None
        own.append(by_arg[source.begin])
    is_proper = len(set(own)) == len(own) and all(axis.block for axis in around)
    return tuple(own) if own and is_proper and len(own) < len(around) else None


def _grouped(updates: Sequence[_Update]) -> list[list[_Update]]:
    """Updates over the same axes that have products in common share a grid."""
    groups: list[list[_Update]] = []
    for update in updates:
        dots = {op for op in update.slice if isinstance(op, Dot)}
        for group in groups:
            first = group[0]
            is_alike = (first.own, first.summed) == (update.own, update.summed)
            if is_alike and any(dots.intersection(one.slice) for one in group):
                group.append(update)
                break
        else:
            groups.append([update])
    return groups


def _grid_of(
    updates: Sequence[_Update], tensors: Sequence[Value], blocks: Mapping[str, str]
) -> Grid:
    """The grid over gradients, each program of which sums up its own elements."""
    update = updates[0]
    copies = Copies(blocks=blocks)
    own = tuple(copies.add(axis.arg) for axis in update.own)
    writer = TileWriter(lambda: update.op.loc)
    writer.open_region()
    ops = list(dict.fromkeys(op for one in updates for op in one.slice))
    before = same_for_all(ops, {axis.arg: axis.block for axis in update.summed})
    for op in before:
        writer.insert(copies.clone(op))
    kinds = [copies.renamed(one.op.value.tile) for one in updates]
    totals = [
        writer.full(transposed(kind) if one.is_turned else kind, 0.0)
        for one, kind in zip(updates, kinds)
    ]
    inside = [op for op in ops if op not in before]
    summed = _sum_over(updates, inside, Copies(dict(copies.values), blocks), totals)
    writer.insert(summed)
    for one, total, tensor in zip(updates, summed.results, tensors):
        value = writer.cast(total, tensor.tensor.dtype)
        value = transpose(writer, value) if one.is_turned else value
        indices = tuple(map(copies.of, one.op.indices))
        writer.effect(Store, tensor=tensor, value=value, indices=indices)
    writer.effect(Yield, values=())
    return Grid(
        begins=tuple(axis.begin for axis in update.own),
        ends=tuple(axis.end for axis in update.own),
        blocks=tuple(blocks.get(axis.block, axis.block) for axis in update.own),
        body=writer.close_region(own),
        loc=update.op.loc,
    )


def _sum_over(
    updates: Sequence[_Update], ops: Sequence[Operation], copies: Copies, totals: Sequence[Value]
) -> Loop:
    first = updates[0]
    args = tuple(copies.add(axis.arg) for axis in first.summed)
    carried = [total.like() for total in totals]
    for value, update in zip(carried, updates):
        value.name = f"{update.op.tensor.name}_tile"
    writer = TileWriter(lambda: first.op.loc)
    writer.open_region()
    for op in ops:
        writer.insert(copies.clone(op))
    found = [copies.of(update.op.value) for update in updates]
    added = [transpose(writer, v) if one.is_turned else v for one, v in zip(updates, found)]
    after = [writer.apply("add", value, one) for value, one in zip(carried, added)]
    writer.effect(Yield, values=tuple(after))
    blocks = (axis.block for axis in first.summed)
    starts = (axis.start and copies.of(axis.start) for axis in first.summed)
    return Loop(
        begins=tuple(start or axis.begin for start, axis in zip(starts, first.summed)),
        ends=tuple(axis.end for axis in first.summed),
        steps=(),
        init=tuple(totals),
        blocks=tuple(copies.blocks.get(block, block) for block in blocks),
        body=Region((*args, *carried), writer.close_region().ops),
        results=tuple(value.like() for value in carried),
        loc=first.op.loc,
    )
