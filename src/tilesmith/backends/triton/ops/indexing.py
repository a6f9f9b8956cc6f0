"""Rules for constants, tile positions, block sizes and masks."""

from __future__ import annotations

from tilesmith.backends.triton.emission.emitter import Emitter
from tilesmith.backends.triton.emission.expressions import (
    Expr,
    add,
    binary,
    broadcast_shapes,
    call,
    literal,
    multiply,
)  # fmt: skip
from tilesmith.backends.triton.ops.elementwise import convert
from tilesmith.dtypes import I32
from tilesmith.ir.ops.indexing import Arange, BlockSize, Full, Mask, TileIndex
from tilesmith.ir.types import Dim


def emit_full(emitter: Emitter, op: Full) -> None:
    """A constant is written where it is used; Triton broadcasts it."""
    dtype = op.result.tile.dtype
    value = float(op.value) if dtype.is_float else op.value
    emitter.alias(op.result, literal(bool(value) if dtype.is_bool else value))


def emit_tile_index(emitter: Emitter, op: TileIndex) -> None:
    """The indices of a tile, shared by all its users when the tile is that of an enclosing loop."""
    axis = emitter.scope.find(op.block)
    if axis is not None and axis.start_value is op.begin:
        expr = axis.indices(emitter.spelling)
    else:
        expr = add(emitter.expr(op.begin), _lanes(emitter, op.result.tile.shape[0]))
        expr = expr.with_shape(op.result.tile.shape)
    emitter.define(op.result, convert(expr, op.begin.tile.dtype, op.result.tile.dtype))


def emit_arange(emitter: Emitter, op: Arange) -> None:
    """The lanes of an axis; those of slices are shared."""
    dim = op.result.tile.shape[0]
    is_slice = len(dim.factors) == 1 and not emitter.function.is_block(str(dim.factors[0]))
    lanes = (
        emitter.scope.slice_axis(dim).indices(emitter.spelling)
        if is_slice
        else _positions(emitter, dim)
    )
    emitter.define(op.result, convert(lanes, I32, op.result.tile.dtype))


def _positions(emitter: Emitter, dim: Dim) -> Expr:
    """The positions of the lanes of a merged axis, whose factors may each be padded."""
    lanes = _lanes(emitter, dim)
    total, below, counted = literal(0), 1, 1
    for number, factor in reversed(list(enumerate(dim.factors))):
        logical = emitter.schedule.symbols[factor] if isinstance(factor, str) else factor
        physical = emitter.schedule.physical(Dim.of(factor))
        digit = lanes if below == 1 else binary("//", lanes, literal(below))
        digit = binary("%", digit, literal(physical)) if number else digit
        total = add(multiply(digit, literal(counted)), total)
        below, counted = below * physical, counted * logical
    return lanes if below == counted else total


def _lanes(emitter: Emitter, dim: Dim) -> Expr:
    return call("tl.arange", 0, emitter.spelling.dim(dim), shape=(dim,))


def emit_block_size(emitter: Emitter, op: BlockSize) -> None:
    """The module constant of a block."""
    name = emitter.spelling.block_name(op.block)
    emitter.alias(op.result, Expr(name, is_untyped=True))


def emit_mask(emitter: Emitter, op: Mask) -> None:
    """Reset invalid lanes, or nothing when no lane can be invalid or the load did it already."""
    x = emitter.expr(op.x)
    mask = None
    if not emitter.facts.is_identity(op):
        mask = emitter.masks.of_shape(op.x.tile.shape, op.axes)
    if mask is None:
        emitter.define(op.result, x)
    elif x.constant is True and op.fill is False:
        emitter.define(op.result, mask)
    else:
        value = emitter.spelling.conform(x, op.x.tile) if x.is_untyped else x
        whole = broadcast_shapes(value.shape, mask.shape)
        fill = literal(float(op.fill) if op.x.tile.dtype.is_float else op.fill)
        emitter.define(op.result, call("tl.where", mask, value, fill, shape=whole))
