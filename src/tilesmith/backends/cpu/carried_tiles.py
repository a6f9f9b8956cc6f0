"""Tiles that a loop carries in buffers: when their next value may be written in place."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tilesmith.backends.cpu.coordinates import own_coords
from tilesmith.backends.cpu.virtual_tiles import VirtualTiles, is_identity
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Loop, While
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.traversal import walk
from tilesmith.ir.values import Value


def can_write_directly(
    new: Value, arg: Value, args: Collection[Value], tiles: VirtualTiles
) -> bool:
    """Whether a virtual tile may overwrite ``arg`` while it is computed.

    It may read no carried tile but ``arg``, and of that only the element it replaces.
    """
    if tiles.is_stored(new):
        return False
    leaves = tiles.closure((new, own_coords(new.tile.shape))).leaves
    return all(place[0] is arg and is_identity(place) for place in leaves if place[0] in args)


def takes_over(new: Value, arg: Value, region: Region, tiles: VirtualTiles) -> bool:
    """Whether a product may accumulate in the buffer of the carried tile it becomes."""
    dot = tiles.definitions.get(new)
    if not isinstance(dot, Dot) or dot not in region.ops or region.yielded.count(new) > 1:
        return False
    operands = tiles.join([(x, own_coords(x.tile.shape)) for x in (dot.lhs, dot.rhs)])
    if any(value is arg for value, _ in operands.leaves):
        return False
    if dot.acc is not None:
        leaves = tiles.closure((dot.acc, own_coords(dot.acc.tile.shape))).leaves
        if not all(is_identity(place) for place in leaves if place[0] is arg):
            return False
    return _is_done_with(arg, dot, region, tiles)


def find_zero_start(op: Loop | While, position: int, tiles: VirtualTiles) -> Dot | None:
    """The product that a loop begins with zeros only to add to them; they need not be written.

    The loop must run, and nothing else may look at the carried tile.
    """
    if not isinstance(op, Loop) or tiles.constant_number(op.init[position]) != 0:
        return None
    arg, new = op.carried[position], op.body.yielded[position]
    dot = tiles.definitions.get(new)
    if not isinstance(dot, Dot) or dot.acc is not arg:
        return None
    is_own = takes_over(new, arg, op.body, tiles)
    is_fixed = not set(op.blocks) & {name for dim in arg.tile.shape for name in dim.symbols}
    uses = sum(value is arg for inner in walk(op.body) for value in inner.operand_values())
    return dot if is_own and is_fixed and uses == 1 and _surely_runs(op, tiles) else None


def _surely_runs(op: Loop, tiles: VirtualTiles) -> bool:
    for begin, end in zip(op.begins, op.ends):
        first, last = tiles.constant_number(begin), tiles.constant_number(end)
        if first is None or last is None or first >= last:
            return False
    return True


def _is_done_with(arg: Value, dot: Dot, region: Region, tiles: VirtualTiles) -> bool:
    """Whether nothing after the product looks at the old content of the carried tile."""
    order = {op: number for number, top in enumerate(region.ops) for op in _within(top)}
    users = _final_users(arg, region, tiles)
    return all(order[user] <= order[dot] for user in users)


def _within(op: Operation) -> Iterator[Operation]:
    yield op
    for region in op.regions():
        yield from walk(region)


def _final_users(arg: Value, region: Region, tiles: VirtualTiles) -> list[Operation]:
    """The ops at whose place elements of a tile are read, through virtual tiles."""
    reached, found = {arg}, list[Operation]()
    for op in walk(region):
        if not any(value in reached for value in op.operand_values()):
            continue
        if len(op.results) == 1 and not tiles.is_stored(op.result):
            reached.add(op.result)
        else:
            found.append(op)
    return found
