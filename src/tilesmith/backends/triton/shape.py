"""Rules for views. Broadcasts are left to Triton; new axes are written ``[:, None]``."""

from __future__ import annotations

from tilesmith.backends.triton.emit import Emitter
from tilesmith.backends.triton.expressions import Expr, call, subscript
from tilesmith.diagnostics.catalogue import InternalError
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape
from tilesmith.ir.types import ONE, Shape


def emit_expand_dims(emitter: Emitter, op: ExpandDims) -> None:
    """New axes of size 1; a scalar needs none."""
    x = emitter.expr(op.x)
    emitter.define(op.result, _expanded(x, op.axes, op.result.tile.rank) if x.shape else x)


def _expanded(x: Expr, axes: tuple[int, ...], rank: int) -> Expr:
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


def emit_reshape(emitter: Emitter, op: Reshape) -> None:
    """Row-major reinterpretation; a uniform tile has nothing to rearrange."""
    x = emitter.expr(op.x)
    old, new = op.x.tile.shape, op.result.tile.shape
    if not x.shape or old == new:
        emitter.define(op.result, x)
        return
    axes = _new_axes(old, new)
    if axes is not None:
        emitter.define(op.result, _expanded(x, axes, len(new)))
        return
    _check_lanes(emitter, op)
    text = emitter.spelling.shape(new)
    emitter.define(op.result, call("tl.reshape", emitter.exact(op.x), text, shape=new))


def _new_axes(old: Shape, new: Shape) -> tuple[int, ...] | None:
    """The axes of size 1 that were added, if nothing else changed."""
    if not old:
        return None
    position, added = 0, list[int]()
    for axis, dim in enumerate(new):
        if position < len(old) and dim == old[position]:
            position += 1
        elif dim.is_one:
            added.append(axis)
        else:
            return None
    return tuple(added) if position == len(old) else None


def _check_lanes(emitter: Emitter, op: Reshape) -> None:
    """Padding must not come to lie between valid lanes."""
    schedule = emitter.schedule
    old = [schedule.physical(dim) for dim in op.x.tile.shape]
    new = [schedule.physical(dim) for dim in op.result.tile.shape]
    if _product(old) != _product(new) or not (_is_dense(emitter, op.x.tile.shape)):
        raise InternalError(
            loc=op.loc,
            problem=f"reshape from {op.x.type} to {op.result.type} would move padded lanes",
        )


def _is_dense(emitter: Emitter, shape: Shape) -> bool:
    """Whether only the outermost axis is padded, so that valid lanes are a prefix."""
    wide = [dim for dim in shape if not dim.is_one]
    return all(
        emitter.schedule.padded.get(factor, factor) == factor
        for dim in wide[1:]
        for factor in dim.factors
        if isinstance(factor, int)
    )


def _product(sizes: list[int]) -> int:
    result = 1
    for size in sizes:
        result *= size
    return result
