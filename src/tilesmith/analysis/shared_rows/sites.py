"""Rows that a program loads and reduces, whole or in a loop, so that programs can share them.

Only what is certain is found: a grid over rows of constant length, and reductions of which that of
a row is the same one of those of its parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tilesmith.analysis.effects import is_pure
from tilesmith.analysis.row_products import RowSite, count_rows, is_followed, needed_by
from tilesmith.analysis.shared_rows.stages import (
    RowExchange,
    is_put_together,
    keeps_memory,
    plan_stages,
)
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Grid, Loop
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import BlockSize, Full, Mask, TileIndex
from tilesmith.ir.ops.memory import Store
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.ops.shape import Broadcast, ExpandDims
from tilesmith.ir.traversal import count_uses, definitions, values_used_by
from tilesmith.ir.types import Value

ACCUMULATED = {"add": "sum", "mul": "prod", "maximum": "max", "minimum": "min"}
"""Functions that loops accumulate with, and the reductions that this makes."""


@dataclass(frozen=True, eq=False)
class WholeRows(RowSite):
    """Rows that a program has whole; ``plan`` says what needs which reductions of them."""

    plan: RowExchange


@dataclass(frozen=True, eq=False)
class LastSteps:
    """Ops of tiles, then what needs nothing but reductions of whole rows."""

    first: tuple[Operation, ...]
    """What parts of reductions are made of, and stores of tiles."""
    last: tuple[Operation, ...]


@dataclass(frozen=True, eq=False)
class Accumulation:
    """What becomes of one value that a loop carries."""

    update: Elementwise
    """Of the carried value and what a turn adds to it."""
    inner: Reduce | None = None
    """What a turn adds is this reduction of a tile."""
    outer: Reduce | None = None
    """After the loop the carried value, a tile, is reduced by this."""

    @property
    def kind(self) -> str:
        """The reduction that the accumulation makes."""
        return ACCUMULATED[self.update.fn]


@dataclass(frozen=True, eq=False)
class WalkedRows(RowSite):
    """Rows that a loop walks, accumulating numbers of each."""

    loop: Loop
    accumulated: tuple[Accumulation, ...]
    """One for each carried value."""
    first: tuple[Operation, ...]
    """Ops that the loop needs."""
    last: tuple[Operation, ...]
    """Other ops, which the function's last stores need."""


def find_whole_rows(function: Function) -> WholeRows | None:
    """The rows that a function has whole, where it reduces some."""
    found = _rows_of(function)
    if found is None:
        return None
    grid, num_rows = found
    ops = grid.body.ops
    # Rows that do not lie along memory are split otherwise.
    reductions = [op for op in ops if isinstance(op, Reduce) and op.axis and _length(op)]
    if not reductions or any(isinstance(op, Loop) for op in ops):
        return None
    longest = max(reductions, key=_length)
    needed = needed_by(ops, [op for op in ops if isinstance(op, Store)])
    plan = plan_stages((), needed, (longest.x, longest.axis), grid.blocks[0])
    if plan is None:
        return None
    return WholeRows(grid, num_rows, _length(longest), longest.loc, plan)


def _rows_of(function: Function) -> tuple[Grid, int] | None:
    """The grid of a function that has only one, over a constant number of rows, and that number."""
    grid = function.body.ops[-1] if function.body.ops else None
    if not isinstance(grid, Grid) or not all(map(is_pure, function.body.ops[:-1])):
        return None
    num_rows = count_rows(function, grid)
    is_known = num_rows is not None and all(map(is_followed, grid.body.ops))
    return (grid, num_rows) if is_known and num_rows is not None else None


def _length(op: Reduce) -> int:
    """Of constant rows, and 0 of others."""
    dim = op.x.tile.shape[op.axis]
    return dim.constant or 0 if len(dim.factors) == 1 else 0


def find_last_steps(plan: RowExchange) -> LastSteps | None:
    """Two steps with the reductions between them; None where tiles are needed in both."""
    if len(plan.exchanged) != 1:
        return None
    ops = tuple(op for stage in plan.stages for op in stage)
    stores = [op for op in ops if isinstance(op, Store)]
    of_tiles = [op for op in stores if op.value in plan.columns]
    of_rows = [op for op in stores if op.value not in plan.columns]
    reductions = {*plan.exchanged[0], *plan.derived}
    if not reductions.isdisjoint(needed_by(ops, of_tiles)):
        return None
    bases = {item.x for item in plan.derived.values()}
    roots = [op for op in ops if op in plan.exchanged[0] or not bases.isdisjoint(op.results)]
    first = needed_by(ops, [*roots, *of_tiles])
    last = _after_reductions(plan, ops, of_rows)
    last = tuple(op for op in last if op not in first)
    has_tiles = any(value in plan.columns for op in last for value in op.results)
    return None if has_tiles else LastSteps(first, last)


def _after_reductions(
    plan: RowExchange, ops: Sequence[Operation], stores: Sequence[Operation]
) -> tuple[Operation, ...]:
    """What the stores need when the reductions of rows are known."""
    wanted = set(values_used_by(stores))
    kept: list[Operation] = []
    for op in reversed(ops):
        is_needed = op in stores or any(value in wanted for value in op.results)
        if not is_needed or op in plan.exchanged[0]:
            continue
        kept.append(op)
        derived = plan.derived.get(op) if isinstance(op, Reduce) else None
        wanted.update(values_used_by((op,)) if derived is None else (derived.anchor,))
    return tuple(reversed(kept))


def find_walked_rows(function: Function) -> WalkedRows | None:
    """The rows that a loop of a function walks, where all that it carries is accumulated."""
    found = _rows_of(function)
    if found is None:
        return None
    grid, num_rows = found
    ops = grid.body.ops
    loops = [op for op in ops if isinstance(op, Loop)]
    if len(loops) != 1:
        return None
    (loop,) = loops
    position = ops.index(loop)
    before, after = ops[:position], ops[position + 1 :]
    length = _walked_length(function, loop)
    accumulated = _accumulations(function, loop, after, grid.blocks[0])
    are_before = any(isinstance(op, Store) for op in before)
    if not length or not accumulated or are_before or not _keeps_order(loop, ops):
        return None
    first, known = needed_by(before, [loop]), {item.outer for item in accumulated}
    others = tuple(op for op in (*before, *after) if op not in known)
    needed = needed_by(others, [op for op in after if isinstance(op, Store)])
    last = tuple(op for op in needed if op not in first)
    return WalkedRows(grid, num_rows, length, loop.loc, loop, accumulated, first, last)


def _walked_length(function: Function, loop: Loop) -> int:
    """The constant end of a loop over tiles of one block from 0 on; else 0.

    Where the source says how large tiles are, what a turn makes of one can depend on where it
    begins and ends (a maximum of each tile, a scale by its number), and parts would cut tiles.
    """
    defined_by, block = definitions(function.body), loop.blocks[0]
    bounds = [defined_by.get(value) for value in (*loop.begins, *loop.ends)]
    known = [int(op.value) for op in bounds if isinstance(op, Full)]
    own = [found for found in function.blocks if found.name == block]
    is_fixed = any(found.fixed or found.low == found.high for found in own)
    if not block or is_fixed or loop.is_ordered or len(bounds) != 2 or known[:1] != [0]:
        return 0
    return known[1] if len(known) == 2 else 0


def _accumulations(
    function: Function, loop: Loop, after: Sequence[Operation], rows: str
) -> tuple[Accumulation, ...]:
    """What becomes of all carried values; nothing where one is anything but accumulated."""
    inside, uses = definitions(loop.body), count_uses(loop.body)
    found: list[Accumulation] = []
    for i, (carried, last) in enumerate(zip(loop.carried, loop.body.yielded)):
        update = inside.get(last)
        is_own = isinstance(update, Elementwise) and update.args.count(carried) == 1
        # Whoever else looks at it would see a part.
        if not is_own or uses[carried] != 1 or uses[last] != 1:
            return ()
        assert isinstance(update, Elementwise)
        if update.fn not in ACCUMULATED or len(update.args) != 2:
            return ()
        item = _lanes_of(Accumulation(update), carried, inside, uses)
        if carried.tile.rank > 1:
            item = replace(item, outer=_reduced_after(function, item.kind, loop, i, after))
        result = carried if item.outer is None else item.outer.result
        if not is_put_together(item.kind, result, rows):
            return ()
        found.append(item)
    return tuple(found)


def _lanes_of(
    item: Accumulation,
    carried: Value,
    inside: Mapping[Value, Operation],
    uses: Mapping[Value, int],
) -> Accumulation:
    """With the reduction that a turn ends with, where lanes can be reduced after the loop."""
    (added,) = (arg for arg in item.update.args if arg is not carried)
    op = inside.get(added)
    is_same = isinstance(op, Reduce) and op.kind == item.kind and uses[added] == 1
    if not is_same or not isinstance(op, Reduce) or op.x.tile.dtype != carried.tile.dtype:
        return item
    return replace(item, inner=op)


def _reduced_after(
    function: Function, kind: str, loop: Loop, place: int, after: Sequence[Operation]
) -> Reduce | None:
    """The only op that sees the tile of a carried value, where lanes begin with nothing."""
    users = _users(loop.results[place], after)
    while len(users) == 1 and isinstance(users[0], Mask):
        users = _users(users[0].result, after)
    op = users[0] if len(users) == 1 else None
    start = definitions(function.body).get(loop.init[place])
    if not isinstance(op, Reduce) or op.kind != kind or not isinstance(start, Full):
        return None
    is_empty = start.value == op.reduction.identity(op.x.tile.dtype)
    return op if is_empty and op.x.tile.dtype == op.result.tile.dtype else None


def _users(value: Value, ops: Sequence[Operation]) -> list[Operation]:
    return [op for op in ops if value in values_used_by((op,))]


def _keeps_order(loop: Loop, ops: Sequence[Operation]) -> bool:
    """Whether turns of a loop can run in any order: none reads or overwrites what others write."""
    inside = loop.body.ops
    if any(op.regions() or not is_followed(op) for op in inside):
        return False
    stores = [op for op in inside if isinstance(op, Store)]
    everything = (*ops, *inside)
    # Numbers of tiles count from 0 on only if parts are made of whole ones.
    if any(isinstance(op, BlockSize) and op.block == loop.blocks[0] for op in everything):
        return False
    is_kept = keeps_memory(everything, [op for op in everything if isinstance(op, Store)])
    return is_kept and all(_has_own_place(op, loop) for op in stores)


def _has_own_place(op: Store, loop: Loop) -> bool:
    """Whether one of the indices is that of the loop's tile: no two turns meet."""
    defined_by = definitions(loop.body)
    return any(_is_index_of(index, loop, defined_by) for index in op.indices)


def _is_index_of(index: Value, loop: Loop, defined_by: dict[Value, Operation]) -> bool:
    op = defined_by.get(index)
    while isinstance(op, (ExpandDims, Broadcast)):
        op = defined_by.get(op.x)
    return isinstance(op, TileIndex) and op.begin is loop.body.args[0]
