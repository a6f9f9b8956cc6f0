"""Transposes of tiles, and where they are cheap: of what is loaded, not of what is computed.

A product of a computed tile takes it from registers as it lies; turned it goes through shared
memory first. ``(a @ b).T`` is ``b.T @ a.T``, and a function of transposes is the transpose of the
function: all of a loop can be turned where every use of it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Loop
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.traversal import (
    Definitions,
    Replacement,
    Substitution,
    apply_rules,
    definitions,
    walk,
)
from tilesmith.ir.types import TileType, Value


def _swap(rank: int) -> tuple[int, ...]:
    return (*range(rank - 2), rank - 1, rank - 2)


def _is_transpose(op: Operation) -> bool:
    return isinstance(op, Permute) and op.order == _swap(op.x.tile.rank)


def transposed(kind: TileType) -> TileType:
    """A type with its last two axes swapped."""
    return kind.with_shape(tuple(kind.shape[axis] for axis in _swap(kind.rank)))


def transpose(writer: TileWriter, x: Value) -> Value:
    """A tile with its last two axes swapped."""
    return writer.create(Permute, transposed(x.tile), x=x, order=_swap(x.tile.rank))


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
    pusher = _Pusher(definitions(function.body))
    return function.with_body(pusher.rebuild(function.body, {}))


class _Pusher:
    """Rebuilds regions with each transpose written by way of what it is computed from."""

    def __init__(self, known: Mapping[Value, Operation]) -> None:
        self._known = known
        self._writer = TileWriter()
        self._substitution = Substitution()
        self._done: dict[Value, Value] = {}
        """Transposes that are there already, by what they are of."""

    def rebuild(self, region: Region, done: Mapping[Value, Value]) -> Region:
        """The region; ``done`` are the transposes before it."""
        self._writer.open_region()
        self._done = dict(done)
        for op in region.ops:
            current = op.with_operands(self._substitution)
            if isinstance(op, Permute) and _is_transpose(op):
                self._writer.locate = lambda loc=op.loc: loc
                self._substitution[op.result] = self.transposed(op.x)
                continue
            own = self._done
            inner = tuple(self.rebuild(one, own) for one in current.regions())
            self._done = own
            self._writer.insert(current.with_regions(inner))
        return self._writer.close_region(region.args)

    def transposed(self, value: Value) -> Value:
        """The transpose of a value."""
        if value not in self._done:
            source = self._known.get(value)
            rule = None if source is None else _TRANSPOSE_RULES.get(type(source))
            if isinstance(source, Permute) and _is_transpose(source):
                self._done[value] = self._substitution(source.x)
            elif rule is not None:
                self._done[value] = rule(self, source)
                self._done[value].name = value.name
            else:
                x = self._substitution(value)
                order = _swap(x.tile.rank)
                kind = transposed(x.tile)
                self._done[value] = self._writer.create(Permute, kind, x=x, order=order)
        return self._done[value]

    def elementwise(self, op: Elementwise) -> Value:
        """A function of transposes."""
        args = tuple(map(self.transposed, op.args))
        return self._writer.create(Elementwise, transposed(op.result.tile), args=args, fn=op.fn)

    def cast(self, op: Cast) -> Value:
        """The transpose in another type."""
        kind = transposed(op.result.tile)
        return self._writer.create(Cast, kind, x=self.transposed(op.x), bitcast=op.bitcast)

    def broadcast(self, op: Broadcast) -> Value:
        """The other axis repeated."""
        kind = transposed(op.result.tile)
        return self._writer.create(Broadcast, kind, x=self.transposed(op.x))

    def expand(self, op: ExpandDims) -> Value:
        """The new axis on the other side."""
        rank = op.result.tile.rank
        axes = tuple(sorted(_swap(rank)[axis] for axis in op.axes))
        is_line = {rank - 1, rank - 2} & set(op.axes)
        x = self._substitution(op.x) if is_line else self.transposed(op.x)
        return self._writer.create(ExpandDims, transposed(op.result.tile), x=x, axes=axes)

    def full(self, op: Full) -> Value:
        """The same number."""
        return self._writer.full(transposed(op.result.tile), op.value)

    def dot(self, op: Dot) -> Value:
        """The product the other way round."""
        sides = {"lhs": self.transposed(op.rhs), "rhs": self.transposed(op.lhs)}
        acc = None if op.acc is None else self.transposed(op.acc)
        kind = transposed(op.result.tile)
        return self._writer.create(Dot, kind, **sides, acc=acc, precision=op.precision)


_TRANSPOSE_RULES: dict[type[Operation], Callable[[_Pusher, Any], Value]] = {
    Elementwise: _Pusher.elementwise,
    Cast: _Pusher.cast,
    Broadcast: _Pusher.broadcast,
    ExpandDims: _Pusher.expand,
    Full: _Pusher.full,
    Dot: _Pusher.dot,
}


def count_computed_transposes(function: Function) -> int:
    """How many transposes loops have of tiles that are not simply loaded."""
    known = definitions(function.body)
    loops = [op for op in walk(function.body) if isinstance(op, Loop)]
    inner = {op for loop in loops for op in walk(loop.body)}
    count = 0
    for op in inner:
        source = known.get(op.x) if isinstance(op, Permute) and _is_transpose(op) else None
        while isinstance(source, Cast):
            source = known.get(source.x)
        count += source is not None and not isinstance(source, Load)
    return count
