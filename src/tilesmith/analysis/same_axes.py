"""Which axes of a function's values are one axis, told by dataflow.

Two constant dimensions of one length look alike in types; what ops do with them tells them apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Loop, Yield
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Arange, Full, Mask
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute
from tilesmith.ir.values import Value

_Place = tuple[Value, int]
"""An axis of a value."""


def find_axis(ops: Sequence[Operation], value: Value, axis: int) -> dict[Value, int] | None:
    """The values that have an axis of a value, and which of their axes that is.

    None where an axis cannot be told from it: constant dimensions of one length share indices.
    """
    links: defaultdict[_Place, list[_Place]] = defaultdict(list)
    for op in ops:
        for one, other in _SAME_AXES.get(type(op), _no_axes)(op):
            links[one].append(other)
            links[other].append(one)
    found: dict[Value, int] = {}
    waiting: list[_Place] = [(value, axis)]
    while waiting:
        place, number = waiting.pop()
        if found.get(place, number) != number:
            return None
        if place not in found:
            found[place] = number
            waiting.extend(links[place, number])
    unknown = (op for op in ops if type(op) not in _SAME_AXES)
    touched = (value for op in unknown for value in (*op.operand_values(), *op.results))
    return None if any(value in found for value in touched) else found


_Pairs = Iterator[tuple[_Place, _Place]]


def _no_axes(op: Operation) -> _Pairs:
    yield from ()


def _same(one: Value, *others: Value) -> _Pairs:
    for other in others:
        yield from (((one, axis), (other, axis)) for axis in range(one.tile.rank))


def _spread(target: Value, *parts: Value | None) -> _Pairs:
    """The axes of values that broadcast to a target."""
    for part in filter(None, parts):
        offset = target.tile.rank - part.tile.rank
        for axis, dim in enumerate(part.tile.shape):
            if not dim.is_one:
                yield (part, axis), (target, axis + offset)


def _of_expand_dims(op: ExpandDims) -> _Pairs:
    kept = [axis for axis in range(op.result.tile.rank) if axis not in op.axes]
    yield from (((op.x, axis), (op.result, place)) for axis, place in enumerate(kept))


def _of_reduce(op: Reduce) -> _Pairs:
    kept = [axis for axis in range(op.x.tile.rank) if axis != op.axis]
    yield from (((op.result, place), (op.x, axis)) for place, axis in enumerate(kept))


def _of_dot(op: Dot) -> _Pairs:
    last = op.result.tile.rank - 1
    if op.acc is not None:
        yield from _same(op.result, op.acc)
    yield (op.lhs, last), (op.rhs, last - 1)
    yield (op.result, last), (op.rhs, last)
    yield from (((op.result, axis), (op.lhs, axis)) for axis in range(last))
    yield from (((op.result, axis), (op.rhs, axis)) for axis in range(last - 1))


def _of_loop(op: Loop) -> _Pairs:
    for values in zip(op.results, op.init, op.carried, op.body.yielded):
        yield from _same(*values)


_SAME_AXES: Mapping[type[Operation], Callable[..., _Pairs]] = {
    Elementwise: lambda op: _same(op.result, *op.args),
    Cast: lambda op: _same(op.result, op.x),
    Mask: lambda op: _same(op.result, op.x),
    Broadcast: lambda op: _spread(op.result, op.x),
    Load: lambda op: _spread(op.result, op.mask, *op.indices),
    Permute: lambda op: iter([((op.result, i), (op.x, axis)) for i, axis in enumerate(op.order)]),
    Store: lambda op: _spread(op.value, op.mask, *op.indices),
    ExpandDims: _of_expand_dims,
    Reduce: _of_reduce,
    Dot: _of_dot,
    Loop: _of_loop,
    Full: _no_axes,
    Arange: _no_axes,
    Yield: _no_axes,
}
"""Which axes of an op's values are one axis."""
