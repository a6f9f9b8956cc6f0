"""Rules for views. Broadcasts are left to Triton; new axes are written ``[:, None]``."""

from __future__ import annotations

from tilesmith.backends.triton.emit import Emitter
from tilesmith.backends.triton.expressions import Expr, call, subscript
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute
from tilesmith.ir.types import ONE


def emit_expand_dims(emitter: Emitter, op: ExpandDims) -> None:
    """New axes of size 1; a scalar needs none."""
    x = emitter.expr(op.x)
    emitter.define(op.result, expanded(x, op.axes, op.result.tile.rank) if x.shape else x)


def expanded(x: Expr, axes: tuple[int, ...], rank: int) -> Expr:
    """``x`` with new axes of size 1 at these positions."""
    old = iter(x.shape)
    shape = tuple(ONE if axis in axes else next(old) for axis in range(rank))
    return subscript(x, axes, shape)


def emit_broadcast(emitter: Emitter, op: Broadcast) -> None:
    """Triton repeats axes of size 1 by itself where the tile meets a larger one."""
    emitter.define(op.result, emitter.expr(op.x))


def emit_permute(emitter: Emitter, op: Permute) -> None:
    """Reorder axes."""
    x = emitter.expr(op.x)
    if not x.shape or op.order == tuple(range(len(op.order))):
        emitter.define(op.result, x)
        return
    shape = tuple(x.shape[axis] for axis in op.order)
    if op.order == (1, 0):
        emitter.define(op.result, call("tl.trans", x, shape=shape))
    else:
        emitter.define(op.result, call("tl.permute", x, list(op.order), shape=shape))
