"""Transposes of tiles, and where they are cheap: of what is loaded, not of what is computed.

A product of a computed tile takes it from registers as it lies; turned around it goes through shared
memory first. ``(a @ b).T`` is ``b.T @ a.T``, and a function of transposes is the transpose of
the function: all of a loop can be turned where every use of it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.traversal import Definitions, Replacement, apply_rules, definitions, walk
from tilesmith.ir.types import TileType, Value


def _swap(rank: int) -> tuple[int, ...]:
    return (*range(rank - 2), rank - 1, rank - 2)


def _is_transpose(op: Operation) -> bool:
    return isinstance(op, Permute) and op.order == _swap(op.x.tile.rank)


def _transposed(kind: TileType) -> TileType:
    return kind.with_shape(tuple(kind.shape[axis] for axis in _swap(kind.rank)))


def _transpose(writer: TileWriter, x: Value) -> Value:
    return writer.create(Permute, _transposed(x.tile), x=x, order=_swap(x.tile.rank))


def drop_double_transposes(function: Function) -> Function:
    """Drop a permutation that undoes the one before.

    Before::

        %a = permute(%x) {order=[1, 0]} : f32[n, m]
        %b = permute(%a) {order=[1, 0]} : f32[m, n]

    After, ``%b`` is ``%x``.
    """
    return apply_rules(function, [_undone])


def _undone(op: Operation, find: Definitions) -> Replacement | None:
    source = find(op.x) if isinstance(op, Permute) else None
    if not isinstance(op, Permute) or not isinstance(source, Permute):
        return None
    order = tuple(source.order[axis] for axis in op.order)
    return source.x if order == tuple(range(len(order))) else None


def push_transposes(function: Function) -> Function:
    """Transpose what a tile is computed from, up to what is loaded.

    Before::

        %a = dot(%x, %y, none) : f32[m, n]
        %b = elementwise(%a) {fn="exp"} : f32[m, n]
        %c = permute(%b) {order=[1, 0]} : f32[n, m]

    After::

        %p = permute(%y) {order=[1, 0]} : f32[n, k]
        %q = permute(%x) {order=[1, 0]} : f32[k, m]
        %a = dot(%p, %q, none) : f32[n, m]
        %c = elementwise(%a) {fn="exp"} : f32[n, m]
    """
    return apply_rules(function, [_undone, _pushed])


def _pushed(op: Operation, find: Definitions) -> Replacement | None:
    source = find(op.x) if isinstance(op, Permute) and _is_transpose(op) else None
    rule = None if source is None else _RULES.get(type(source))
    if rule is None:
        return None
    writer = TileWriter(lambda: op.loc)
    writer.open_region()
    found = rule(writer, source)
    found.name = op.x.name
    return writer.close_region().ops


def _elementwise(writer: TileWriter, op: Elementwise) -> Value:
    args = tuple(_transpose(writer, arg) for arg in op.args)
    return writer.create(Elementwise, _transposed(op.result.tile), args=args, fn=op.fn)


def _cast(writer: TileWriter, op: Cast) -> Value:
    kind = _transposed(op.result.tile)
    return writer.create(Cast, kind, x=_transpose(writer, op.x), bitcast=op.bitcast)


def _broadcast(writer: TileWriter, op: Broadcast) -> Value:
    return writer.create(Broadcast, _transposed(op.result.tile), x=_transpose(writer, op.x))


def _expand(writer: TileWriter, op: ExpandDims) -> Value:
    rank = op.result.tile.rank
    last = {rank - 1, rank - 2}
    order = _swap(rank)
    axes = tuple(sorted(order[axis] for axis in op.axes))
    x = op.x if last & set(op.axes) else _transpose(writer, op.x)
    return writer.create(ExpandDims, _transposed(op.result.tile), x=x, axes=axes)


def _full(writer: TileWriter, op: Full) -> Value:
    return writer.full(_transposed(op.result.tile), op.value)


def _dot(writer: TileWriter, op: Dot) -> Value:
    sides = {"lhs": _transpose(writer, op.rhs), "rhs": _transpose(writer, op.lhs)}
    acc = None if op.acc is None else _transpose(writer, op.acc)
    kind = _transposed(op.result.tile)
    return writer.create(Dot, kind, **sides, acc=acc, precision=op.precision)


_RULES: dict[type[Operation], Callable[[TileWriter, Any], Value]] = {
    Elementwise: _elementwise,
    Cast: _cast,
    Broadcast: _broadcast,
    ExpandDims: _expand,
    Full: _full,
    Dot: _dot,
}


def count_computed_transposes(function: Function) -> int:
    """How many transposes there are of tiles that are not simply loaded."""
    known = definitions(function.body)
    count = 0
    for op in walk(function.body):
        source = known.get(op.x) if isinstance(op, Permute) and _is_transpose(op) else None
        while isinstance(source, Cast):
            source = known.get(source.x)
        count += source is not None and not isinstance(source, Load)
    return count
