"""Rules for reductions along one axis. Extremes of floats propagate NaN, which tl.max does not."""

from __future__ import annotations

from tilesmith.backends.triton.elementwise import convert
from tilesmith.backends.triton.emit import Emitter
from tilesmith.backends.triton.expressions import Expr, binary, call, literal
from tilesmith.backends.triton.masks import expand
from tilesmith.dtypes import BOOL, F32, I32, DType
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.reduction import Reduce, ReduceKind

_INTEGER_FUNCTIONS = {
    ReduceKind.MAX: "tl.max",
    ReduceKind.MIN: "tl.min",
    ReduceKind.ARGMAX: "tl.argmax",
    ReduceKind.ARGMIN: "tl.argmin",
}
_COMBINES = {
    ReduceKind.MAX: "_nan_max",
    ReduceKind.MIN: "_nan_min",
    ReduceKind.PROD: "_multiply",
    ReduceKind.ARGMAX: "_nan_argmax",
    ReduceKind.ARGMIN: "_nan_argmin",
}


def emit_reduce(emitter: Emitter, op: Reduce) -> None:
    """Combine the lanes of one axis."""
    x, dtype = emitter.exact(op.x), op.x.tile.dtype
    shape = op.result.tile.shape
    kind = op.reduction
    if kind in (ReduceKind.ANY, ReduceKind.ALL):
        result = _any_or_all(x, op, dtype)
        dtype = op.result.tile.dtype
    elif kind is ReduceKind.SUM:
        x, axis = _unlike_a_product(emitter, x, op)
        result, dtype = _sum(x, axis, dtype, op.result.tile.dtype)
    elif kind.is_arg:
        result, dtype = _position(emitter, x, op), I32
    else:
        result, dtype = _extreme(emitter, x, op, dtype)
    emitter.define(op.result, convert(result.with_shape(shape), dtype, op.result.tile.dtype))


def _any_or_all(x: Expr, op: Reduce, dtype: DType) -> Expr:
    function = "tl.max" if op.reduction is ReduceKind.ANY else "tl.min"
    flags = x if dtype.is_bool else binary("!=", x, literal(0.0 if dtype.is_float else 0))
    wide = call(function, convert(flags, BOOL, I32), op.axis)
    return binary("!=", wide, literal(0))


def _unlike_a_product(emitter: Emitter, x: Expr, op: Reduce) -> tuple[Expr, int]:
    """The operand and axis of a sum, so arranged that Triton does not take it for a product.

    It makes a tf32 product of ``sum(a[:, :, None] * b[None, :, :], 1)``, a wrong one where the axis
    is short.
    """
    source = emitter.uses.defining.get(op.x)
    is_product = isinstance(source, Elementwise) and source.fn == "mul"
    if op.x.tile.rank != 3 or op.axis != 1 or not is_product or not op.x.tile.dtype.is_float:
        return x, op.axis
    first, middle, last = op.x.tile.shape
    return call("tl.permute", x, (0, 2, 1), shape=(first, last, middle)), 2


def _sum(x: Expr, axis: int, dtype: DType, wanted: DType) -> tuple[Expr, DType]:
    accumulated = F32 if dtype.is_low_precision_float else dtype
    if not dtype.is_float and (dtype.bits < 32 or wanted.bits > dtype.bits):
        accumulated = wanted if wanted.bits >= 32 else I32
    return call("tl.sum", convert(x, dtype, accumulated), axis), accumulated


def _extreme(emitter: Emitter, x: Expr, op: Reduce, dtype: DType) -> tuple[Expr, DType]:
    kind = op.reduction
    if not dtype.is_float and kind is not ReduceKind.PROD:
        # Triton widens small integers to 32 bits first.
        name = _INTEGER_FUNCTIONS[kind]
        return call(name, x, op.axis), dtype if dtype.bits >= 32 else I32
    accumulated = F32 if dtype.is_low_precision_float else dtype
    combine = emitter.spelling.helper(_COMBINES[kind])
    return call("tl.reduce", convert(x, dtype, accumulated), op.axis, combine), accumulated


def _position(emitter: Emitter, x: Expr, op: Reduce) -> Expr:
    kind = op.reduction
    if not op.x.tile.dtype.is_float:
        return call(_INTEGER_FUNCTIONS[kind], x, op.axis, "tie_break_left=True")
    shape = op.x.tile.shape
    lanes = call("tl.arange", 0, emitter.spelling.dim(shape[op.axis]), shape=(shape[op.axis],))
    index = expand(lanes, op.axis, len(shape))
    if len(shape) > 1:
        index = call("tl.broadcast_to", index, emitter.spelling.shape(shape))
    combine = emitter.spelling.helper(_COMBINES[kind])
    pair = call("tl.reduce", f"({x}, {index})", op.axis, combine)
    return Expr(f"{pair}[1]")
