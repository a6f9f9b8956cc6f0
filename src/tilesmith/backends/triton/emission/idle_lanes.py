"""Idle lanes, and multiprocessors that would be idle: nothing is loaded for them, or in time.

A bias that was expanded is one row for all rows of a tile. A mask along rows would make a tile of
it, and every element would be loaded by itself. Lanes past the end may hold anything where nothing
but a store looks at what is made of them: stores mask for themselves.

Programs are started in the order of their numbers. Of several top-level loops, the one whose
programs take longest comes first: short ones even out what long ones leave in the end. Both
gradients of a product of 8192x768 and 768x768 matrices in bf16 took 39.4 us on an H200 with the
longer loop first, and 55.5 with it last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Grid, Loop
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.ir.traversal import walk, walk_function
from tilesmith.ir.types import Value
from tilesmith.schedule.schedule import Schedule

Users = dict[Value, list[Operation]]


def find_unread_axes(function: Function) -> dict[Operation, tuple[int, ...]]:
    """For loads, the axes that addresses do not move along and whose invalid lanes go nowhere."""
    users = find_users(function)
    axes = {op: _still_axes(op) for op in walk_function(function) if isinstance(op, Load)}
    return {op: still for op, still in axes.items() if still and _only_stored(op.result, users)}


def find_users(function: Function) -> Users:
    """The ops that each value is an operand of."""
    users: Users = {}
    for op in walk_function(function):
        for value in op.operand_values():
            users.setdefault(value, []).append(op)
    return users


def _still_axes(op: Load) -> tuple[int, ...]:
    """The axes of a tile along which all lanes have one address."""
    if op.mask is not None or op.bases is not None:
        return ()
    shape, moved = op.result.tile.shape, set[int]()
    for index, stride in zip(op.indices, op.tensor.tensor.strides):
        first = len(shape) - index.tile.rank
        if stride != 0:
            moved |= {first + i for i, dim in enumerate(index.tile.shape) if not dim.is_one}
    return tuple(i for i, dim in enumerate(shape) if i not in moved and not dim.is_one)


def _only_stored(value: Value, users: Users) -> bool:
    """Whether lanes of a value go to memory by stores of these very lanes, and nowhere else."""
    reached, pending = {value}, [value]
    while pending:
        value = pending.pop()
        for op in users.get(value, []):
            if not _is_lane_by_lane(op, value):
                return False
            pending += set(op.results) - reached
            reached.update(op.results)
    return True


def _is_lane_by_lane(op: Operation, value: Value) -> bool:
    if isinstance(op, Store):
        return op.value is value and list(op.operand_values()).count(value) == 1
    return isinstance(op, (Elementwise, Cast))


LEAST_RATIO = 2.0
"""Of the longest programs to the shortest, for them to change places."""
Definitions = Mapping[Value, Operation]


def longest_first(grids: Sequence[Grid], known: Definitions, schedule: Schedule) -> list[Grid]:
    """The loops by the products of one program; as they are where these are not known."""
    work = [_products(grid.body, known, schedule) for grid in grids]
    counted = [count for count in work if count]
    if len(counted) < len(grids) or max(counted) < LEAST_RATIO * min(counted):
        return list(grids)
    order = sorted(range(len(grids)), key=lambda i: -counted[i])
    return [grids[i] for i in order]


def _products(region: Region, known: Definitions, schedule: Schedule) -> float | None:
    """Multiply-adds of matrix products; None where a loop around one may have any length."""
    total = 0.0
    for op in region.ops:
        if isinstance(op, Dot):
            shape = (*op.result.tile.shape, op.lhs.tile.shape[-1])
            total += prod(map(schedule.physical, shape))
        elif any(isinstance(inner, Dot) for part in op.regions() for inner in walk(part)):
            trips = _trips(op, known, schedule) if isinstance(op, Loop) else None
            inside = _products(op.regions()[-1], known, schedule) if trips else None
            if not trips or inside is None:
                return None
            total += trips * inside
    return total


def _trips(op: Loop, known: Definitions, schedule: Schedule) -> int | None:
    bounds = [known.get(value) for value in (*op.begins, *op.ends)]
    constants = [int(bound.value) for bound in bounds if isinstance(bound, Full)]
    if len(constants) < len(bounds) or not all(op.blocks):
        return None
    lengths = zip(constants[: op.rank], constants[op.rank :], op.blocks)
    return prod(-(-(end - begin) // schedule.symbols[block]) for begin, end, block in lengths)
