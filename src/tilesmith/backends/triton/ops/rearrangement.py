"""Rules for joined, picked, gathered and sorted tiles."""

from __future__ import annotations

from tilesmith.backends.triton.emission.emitter import Emitter, Rules
from tilesmith.backends.triton.emission.expressions import Expr, binary, call, literal, subscript
from tilesmith.backends.triton.ops.elementwise import convert
from tilesmith.dtypes import BOOL, I8, I32, DType
from tilesmith.ir.ops.rearrangement import Gather, Join, Select, Sort
from tilesmith.ir.types import ONE, Dim, Shape, Value


def emit_join(emitter: Emitter, op: Join) -> None:
    """Two tiles side by side along a new last axis."""
    lhs, rhs = emitter.exact(op.lhs), emitter.exact(op.rhs)
    emitter.define(op.result, call("tl.join", lhs, rhs, shape=op.result.tile.shape))


def emit_select(emitter: Emitter, op: Select) -> None:
    """Halve the axis until one element is left: the last digit of the position goes first."""
    shape = op.result.tile.shape
    rest = emitter.schedule.physical(op.x.tile.shape[op.axis])
    part = _axis_to_the_end(emitter, op.x, op.axis)
    position = op.position
    if rest == 1:
        part = call("tl.reshape", part, emitter.spelling.shape(shape), shape=shape)
    while rest > 1:
        rest //= 2
        if rest > 1:
            sizes = [str(emitter.spelling.dim(dim)) for dim in shape]
            part = call("tl.reshape", part, f"[{', '.join([*sizes, str(rest), '2'])}]")
        part = Expr(f"{call('tl.split', part)}[{position % 2}]")
        position //= 2
    emitter.define(op.result, part.with_shape(shape))


def _axis_to_the_end(emitter: Emitter, x: Value, axis: int) -> Expr:
    rank = x.tile.rank
    whole = emitter.exact(x)
    if axis == rank - 1:
        return whole
    order = [other for other in range(rank) if other != axis]
    return call("tl.permute", whole, [*order, axis])


def emit_gather(emitter: Emitter, op: Gather) -> None:
    """Elements at given positions; positions in invalid lanes are brought into the tile."""
    dim = op.x.tile.shape[op.axis]
    index = emitter.exact(op.index)
    if op.index.tile.dtype.bits < I32.bits:
        index = convert(index, op.index.tile.dtype, I32)
    index = into_lanes(emitter, index, dim)
    lanes = tuple(emitter.schedule.physical(v.tile.shape[op.axis]) for v in (op.x, op.index))
    sizes = [str(emitter.spelling.dim(other)) for other in op.x.tile.shape]
    x = widened(emitter.exact(op.x), sizes, op.axis, *lanes)
    gathered = gather(x, index, op.axis, op.x.tile.dtype)
    emitter.define(op.result, gathered.with_shape(op.result.tile.shape))


def gather(x: Expr, index: Expr, axis: int, dtype: DType) -> Expr:
    """``tl.gather``, with bools as bytes."""
    if dtype != BOOL:
        return call("tl.gather", x, index, axis, shape=index.shape)
    found = call("tl.gather", convert(x, BOOL, I8), index, axis, shape=index.shape)
    return convert(found, I8, BOOL)


def widened(x: Expr, sizes: list[str], axis: int, lanes: int, wanted: int) -> Expr:
    """``x`` repeated along an axis until it has as many lanes as are picked from it.

    Triton fails where a gather's result is longer than its operand and several warps share it.
    """
    if wanted <= lanes or len(sizes) == 1:
        return x
    new = subscript(x, (axis,), (ONE,) * (len(sizes) + 1))
    apart = [*sizes[:axis], str(wanted // lanes), *sizes[axis:]]
    whole = [*sizes[:axis], str(wanted), *sizes[axis + 1 :]]
    repeated = call("tl.broadcast_to", new, f"[{', '.join(apart)}]")
    return call("tl.reshape", repeated, f"[{', '.join(whole)}]")


def into_lanes(emitter: Emitter, index: Expr, dim: Dim) -> Expr:
    """Positions along an axis as lanes of it, whatever invalid ones hold.

    An axis merged of several has its own padding behind each but the first.
    """
    schedule = emitter.schedule
    lane = index
    below = 1
    for factor in reversed(dim.factors[1:]):
        logical = schedule.symbols[factor] if isinstance(factor, str) else factor
        physical = schedule.physical(Dim.of(factor))
        if logical != physical:
            inner = binary("%", lane, literal(below * logical))
            outer = binary("//", lane, literal(below * logical))
            lane = binary("+", binary("*", outer, literal(below * physical)), inner)
        below *= physical
    symbol = dim.factors[0] if dim.factors else 1
    if isinstance(symbol, str) and not emitter.function.is_block(symbol):
        size = emitter.spelling.dim(dim)
        return binary("&", lane, binary("-", size, literal(1)))
    return binary("&", lane, literal(schedule.physical(dim) - 1))


def emit_sort(emitter: Emitter, op: Sort) -> None:
    """Triton sorts along the last axis; the frontend puts it there."""
    shape: Shape = op.result.tile.shape
    last = len(shape) - 1
    x = _axis_to_the_end(emitter, op.x, op.axis)
    if emitter.schedule.physical(shape[op.axis]) == 1:
        emitter.define(op.result, emitter.exact(op.x))
        return
    result = call("tl.sort", x, shape=shape)
    if op.axis != last:
        order = list(range(last))
        order.insert(op.axis, last)
        result = call("tl.permute", result, order, shape=shape)
    emitter.define(op.result, result)


REARRANGEMENT_RULES: Rules = {
    Join: emit_join,
    Select: emit_select,
    Gather: emit_gather,
    Sort: emit_sort,
}
