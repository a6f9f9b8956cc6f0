"""The adjoint of every op on tiles: from the cotangent of its result to those of its operands.

Scalar functions have a row each: it takes the cotangent ``g``, the result ``y`` and the operands,
and gives the cotangent of each operand. Ties of extremes are split evenly, as ``torch.maximum``
does. A function without a row is constant almost everywhere, or gives no floats.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log, pi, sqrt
from typing import Any, Protocol

from tilesmith.dtypes import I32, DType
from tilesmith.gradients.terms import Term, cotangent_dtype, cotangent_type
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Arange, Full, Mask
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.rearrangement import Gather, Join, Select
from tilesmith.ir.ops.reduction import Reduce, ReduceKind, Scan
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.types import Dim, TileType, Value
from tilesmith.passes.simplify import is_detached


class Tape(Protocol):
    """Where adjoints are written, and what is known of the forward values."""

    writer: TileWriter

    def value(self, forward: Value) -> Value:
        """A forward value where the adjoint stands."""
        ...

    def is_active(self, forward: Value) -> bool:
        """Whether a forward value has a cotangent."""
        ...

    def add(self, forward: Value, cotangent: Value) -> None:
        """Add to the cotangent of a forward value, if it has one."""
        ...

    def is_saved(self, forward: Value) -> bool:
        """Whether it is loaded instead of computed again."""
        ...

    def definition(self, forward: Value) -> Operation | None:
        """The op that gives a forward value."""
        ...

    def refuse(self, op: Operation, reason: str) -> Exception:
        """An error at the user's line."""
        ...


def _elementwise(tape: Tape, op: Elementwise, g: Value) -> None:
    row = SCALAR_DERIVATIVES.get(op.fn)
    if row is None:
        return
    tied = _one_sided(tape, op, g)
    if tied is not None:
        tape.add(*tied)
        return
    dtype = g.tile.dtype
    forward = [_wide(tape, value, dtype) for value in (op.result, *op.args)]
    for arg, cotangent in zip(op.args, row(Term(tape.writer, g), *forward)):
        if cotangent is not None and tape.is_active(arg):
            tape.add(arg, cotangent.value)


def _wide(tape: Tape, forward: Value, dtype: DType) -> Term:
    value = tape.value(forward)
    is_float = value.tile.dtype.is_float
    return Term(tape.writer, tape.writer.cast(value, dtype) if is_float else value)


def _one_sided(tape: Tape, op: Elementwise, g: Value) -> tuple[Value, Value] | None:
    """Extremes of a tile and a number: at a tie ``relu`` has the slope 0, ``clamp`` 1."""
    if op.fn not in ("maximum", "minimum"):
        return None
    for x, other in (op.args, op.args[::-1]):
        limit = tape.definition(other)
        if isinstance(limit, Full):
            is_strict = limit.value == 0 and op.fn == "maximum"
            # A relu is positive where what it was given is.
            shown = op.result if is_strict and tape.is_saved(op.result) else x
            term, bound = (_wide(tape, value, g.tile.dtype) for value in (shown, other))
            low, high = (bound, term) if op.fn == "maximum" else (term, bound)
            grad, zero = Term(tape.writer, g), Term(tape.writer, g).of(0.0)
            chosen = grad.where(low < high, 0.0) if is_strict else zero.where(high < low, grad)
            return x, chosen.value
    return None


def _cast(tape: Tape, op: Cast, g: Value) -> None:
    if is_detached(op):
        return
    if op.bitcast:
        raise tape.refuse(op, "bits are reinterpreted")
    tape.add(op.x, tape.writer.cast(g, cotangent_dtype(op.x.tile.dtype)))


def _reduce(tape: Tape, op: Reduce, g: Value) -> None:
    writer, axis = tape.writer, op.axis
    shape = op.x.tile.shape
    wide = cotangent_type(op.x)
    g = writer.cast(g, wide.dtype)
    spread = _spread(writer, g, axis, wide)
    if op.reduction is ReduceKind.SUM:
        tape.add(op.x, spread)
        return
    x, y = (writer.cast(tape.value(value), wide.dtype) for value in (op.x, op.result))
    if op.reduction in (ReduceKind.MAX, ReduceKind.MIN):
        hits = writer.apply("eq", x, _spread(writer, y, axis, wide))
        count = writer.reduce(writer.cast(hits, wide.dtype), axis, "sum")
        share = _spread(writer, writer.apply("div", g, count), axis, wide)
        zero = writer.full(share.tile, 0.0)
        tape.add(op.x, writer.apply("where", hits, share, zero))
        return
    if op.reduction is not ReduceKind.PROD:
        raise tape.refuse(op, f"reductions by {op.kind} have no derivative")
    # Zeros are left out of the product: it is that of the others for the only zero.
    zero, one = writer.full(wide.with_shape(shape), 0.0), writer.full(wide.with_shape(shape), 1.0)
    is_zero = writer.apply("eq", x, zero)
    rest = writer.apply("where", is_zero, one, x)
    zeros = writer.reduce(writer.cast(is_zero, wide.dtype), axis, "sum")
    product = writer.apply("mul", g, writer.reduce(rest, axis, "prod"))
    quotient = writer.apply("div", _spread(writer, product, axis, wide), rest)
    # With no zero every element gets its share, with one only that zero does.
    wanted = writer.cast(is_zero, wide.dtype)
    gets = writer.apply("eq", wanted, _spread(writer, zeros, axis, wide))
    tape.add(op.x, writer.apply("where", gets, quotient, zero))


def _spread(writer: TileWriter, x: Value, axis: int, wide: TileType) -> Value:
    return writer.spread(x, axis, wide.shape) if wide.rank > 1 else _fill(writer, x, wide)


def _fill(writer: TileWriter, x: Value, wide: TileType) -> Value:
    return writer.spread(x, 0, wide.shape)


def _scan(tape: Tape, op: Scan, g: Value) -> None:
    back = tape.writer.create(Scan, g.type, x=g, axis=op.axis, kind=op.kind, reverse=not op.reverse)
    tape.add(op.x, back)


def _dot(tape: Tape, op: Dot, g: Value) -> None:
    writer = tape.writer
    if op.acc is not None:
        tape.add(op.acc, g)
    for x, other, is_left in ((op.lhs, op.rhs, True), (op.rhs, op.lhs, False)):
        if not tape.is_active(x):
            continue
        # Matrix units take operands of one type; sums are as wide as cotangents.
        factor, turned = writer.cast(g, other.tile.dtype), _transpose(writer, tape.value(other))
        lhs, rhs = (factor, turned) if is_left else (turned, factor)
        kind = cotangent_type(x)
        product = writer.create(Dot, kind, lhs=lhs, rhs=rhs, precision=op.precision)
        tape.add(x, product)


def _transpose(writer: TileWriter, x: Value) -> Value:
    rank = x.tile.rank
    return _permute(writer, x, (*range(rank - 2), rank - 1, rank - 2))


def _permute(writer: TileWriter, x: Value, order: tuple[int, ...]) -> Value:
    shape = tuple(x.tile.shape[axis] for axis in order)
    return writer.create(Permute, x.tile.with_shape(shape), x=x, order=order)


def _broadcast(tape: Tape, op: Broadcast, g: Value) -> None:
    writer = tape.writer
    pairs = enumerate(zip(op.x.tile.shape, op.result.tile.shape))
    axes = [axis for axis, (old, new) in pairs if old != new]
    for axis in reversed(axes):
        g = writer.reduce(g, axis, "sum")
    shape = g.tile.with_shape(op.x.tile.shape)
    if axes:
        g = writer.create(ExpandDims, shape, x=g, axes=tuple(axes))
    tape.add(op.x, g)


def _reshape(tape: Tape, op: Reshape | ExpandDims, g: Value) -> None:
    back = tape.writer.create(Reshape, g.tile.with_shape(op.x.tile.shape), x=g)
    tape.add(op.x, back)


def _permuted(tape: Tape, op: Permute, g: Value) -> None:
    order = tuple(op.order.index(axis) for axis in range(len(op.order)))
    tape.add(op.x, _permute(tape.writer, g, order))


def _mask(tape: Tape, op: Mask, g: Value) -> None:
    tape.add(op.x, tape.writer.create(Mask, g.type, x=g, fill=0.0, axes=op.axes))


def _join(tape: Tape, op: Join, g: Value) -> None:
    last = g.tile.rank - 1
    kind = g.tile.with_shape(g.tile.shape[:-1])
    for position, side in enumerate((op.lhs, op.rhs)):
        if tape.is_active(side):
            part = tape.writer.create(Select, kind, x=g, axis=last, position=position)
            tape.add(side, part)


def _select(tape: Tape, op: Select, g: Value) -> None:
    writer = tape.writer
    wide = cotangent_type(op.x)
    zero = writer.full(g.tile, 0.0)
    if op.axis == wide.rank - 1 and wide.shape[-1] == Dim.of(2):
        sides = (g, zero) if op.position == 0 else (zero, g)
        tape.add(op.x, writer.create(Join, wide, lhs=sides[0], rhs=sides[1]))
        return
    places = positions_along(writer, wide, op.axis)
    wanted = writer.full(places.tile, op.position)
    spread = _spread(writer, g, op.axis, wide)
    picked = writer.apply("eq", places, wanted)
    tape.add(op.x, writer.apply("where", picked, spread, writer.full(wide, 0.0)))


def positions_along(writer: TileWriter, wide: TileType, axis: int) -> Value:
    """Positions along an axis, over all of a shape."""
    line = writer.create(Arange, TileType(I32, (wide.shape[axis],)))
    ones = tuple(place for place in range(wide.rank) if place != axis)
    dims = tuple(Dim(()) if place in ones else wide.shape[axis] for place in range(wide.rank))
    expanded = writer.create(ExpandDims, TileType(I32, dims), x=line, axes=ones)
    return writer.create(Broadcast, TileType(I32, wide.shape), x=expanded)


def _gather(tape: Tape, op: Gather, g: Value) -> None:
    """Each element gets the sum over the lanes that picked it: one comparison for each pair."""
    writer, axis = tape.writer, op.axis
    wide = cotangent_type(op.x)
    index = tape.value(op.index)
    picks = (*g.tile.shape[:axis], g.tile.shape[axis], wide.shape[axis], *g.tile.shape[axis + 1 :])
    places = positions_along(writer, wide.with_shape(picks), axis + 1)
    spread = writer.spread(writer.cast(index, places.tile.dtype), axis + 1, picks)
    values = writer.spread(g, axis + 1, picks)
    hits = writer.apply("eq", spread, places)
    kept = writer.apply("where", hits, values, writer.full(values.tile, 0.0))
    tape.add(op.x, writer.reduce(kept, axis, "sum"))


Rule = Callable[[Tape, Any, Value], None]
TILE_DERIVATIVES: dict[type[Operation], Rule] = {
    Elementwise: _elementwise,
    Cast: _cast,
    Reduce: _reduce,
    Scan: _scan,
    Dot: _dot,
    ExpandDims: _reshape,
    Broadcast: _broadcast,
    Reshape: _reshape,
    Permute: _permuted,
    Mask: _mask,
    Join: _join,
    Select: _select,
    Gather: _gather,
}


Row = Callable[..., tuple[Term | None, ...]]


def _larger(g: Term, y: Term, a: Term, b: Term) -> tuple[Term, Term]:
    share = (g * 0.5).where(a.same(b), g)
    return g.of(0.0).where(a < b, share), g.of(0.0).where(b < a, share)


def _power(g: Term, y: Term, a: Term, b: Term) -> tuple[Term, Term]:
    base = g.of(0.0).where(b.same(0.0), g * b * a.apply("pow", b - 1.0))
    exponent = g.of(0.0).where(a.same(0.0), g * y * a.apply("log"))
    return base, exponent


def _sign(g: Term, y: Term, x: Term) -> tuple[Term]:
    return ((-g).where(x < 0.0, g.of(0.0).where(x.same(0.0), g)),)


SCALAR_DERIVATIVES: dict[str, Row] = {
    "neg": lambda g, y, x: (-g,),
    "abs": _sign,
    "sqrt": lambda g, y, x: (g * 0.5 / y,),
    "rsqrt": lambda g, y, x: (g * -0.5 * (y * y * y),),
    "exp": lambda g, y, x: (g * y,),
    "exp2": lambda g, y, x: (g * y * log(2.0),),
    "expm1": lambda g, y, x: (g * (y + 1.0),),
    "log": lambda g, y, x: (g / x,),
    "log2": lambda g, y, x: (g / (x * log(2.0)),),
    "log10": lambda g, y, x: (g / (x * log(10.0)),),
    "log1p": lambda g, y, x: (g / (x + 1.0),),
    "sin": lambda g, y, x: (g * x.apply("cos"),),
    "cos": lambda g, y, x: (-g * x.apply("sin"),),
    "tan": lambda g, y, x: (g * (y * y + 1.0),),
    "asin": lambda g, y, x: (g * (1.0 - x * x).apply("rsqrt"),),
    "acos": lambda g, y, x: (-g * (1.0 - x * x).apply("rsqrt"),),
    "atan": lambda g, y, x: (g / (x * x + 1.0),),
    "sinh": lambda g, y, x: (g * x.apply("cosh"),),
    "cosh": lambda g, y, x: (g * x.apply("sinh"),),
    "tanh": lambda g, y, x: (g * (1.0 - y * y),),
    "asinh": lambda g, y, x: (g * (x * x + 1.0).apply("rsqrt"),),
    "acosh": lambda g, y, x: (g * (x * x - 1.0).apply("rsqrt"),),
    "atanh": lambda g, y, x: (g / (1.0 - x * x),),
    "erf": lambda g, y, x: (g * (-(x * x)).apply("exp") * (2.0 / sqrt(pi)),),
    "erfc": lambda g, y, x: (g * (-(x * x)).apply("exp") * (-2.0 / sqrt(pi)),),
    "sigmoid": lambda g, y, x: (g * (y * (1.0 - y)),),
    "add": lambda g, y, a, b: (g, g),
    "sub": lambda g, y, a, b: (g, -g),
    "mul": lambda g, y, a, b: (g * b, g * a),
    "div": lambda g, y, a, b: (g / b, -g * y / b),
    "mod": lambda g, y, a, b: (g, -g * (a / b).apply("floor")),
    "fmod": lambda g, y, a, b: (g, -g * (a / b).apply("trunc")),
    "maximum": _larger,
    "minimum": lambda g, y, a, b: _larger(g, y, b, a),
    "pow": _power,
    "atan2": lambda g, y, a, b: (g * b / (a * a + b * b), -g * a / (a * a + b * b)),
    "fma": lambda g, y, a, b, c: (g * b, g * a, g),
    "where": lambda g, y, c, a, b: (None, g.where(c, 0.0), g.of(0.0).where(c, g)),
}
"""By name: ``(g, y, *operands)`` to the cotangents of the operands."""
