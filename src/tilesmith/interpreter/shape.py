"""Evaluates views of tiles."""

from __future__ import annotations

from tilesmith.interpreter.affine_tile import AffineTile
from tilesmith.interpreter.frame import Frame, Tile, from_tensor
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape


def evaluate_expand_dims(op: ExpandDims, frame: Frame) -> Tile:
    """Insert axes of length 1."""
    tile = frame.values[op.x]
    if not op.axes:
        return tile
    shape = frame.lengths(op.result.tile.shape)
    if isinstance(tile, int):
        return AffineTile(shape, tile) if op.x.tile.dtype.is_integer else _reshape(op, frame)
    if isinstance(tile, AffineTile):
        return tile.expand_dims(op.axes, shape)
    for axis in op.axes:
        tile = tile.unsqueeze(axis)
    return tile


def evaluate_broadcast(op: Broadcast, frame: Frame) -> Tile:
    """Repeat axes of length 1."""
    tile = frame.values[op.x]
    if isinstance(tile, int):
        return tile
    shape = frame.lengths(op.result.tile.shape)
    if not isinstance(tile, AffineTile):
        return tile.expand(shape)
    if tile.axis is not None and tile.shape[tile.axis] != shape[tile.axis]:
        # The one element along the axis is repeated, so the tile no longer varies along it.
        return AffineTile(shape, tile.start)
    return tile.with_shape(shape)


def evaluate_reshape(op: Reshape, frame: Frame) -> Tile:
    """Row-major reinterpretation; a constant stays one."""
    tile = frame.values[op.x]
    shape = op.result.tile.shape
    if isinstance(tile, AffineTile) and tile.axis is None and shape:
        return AffineTile(frame.lengths(shape), tile.start)
    return _reshape(op, frame)


def _reshape(op: Reshape | ExpandDims, frame: Frame) -> Tile:
    target = op.result.tile
    return from_tensor(frame.tensor(op.x).reshape(frame.lengths(target.shape)), target)


def evaluate_permute(op: Permute, frame: Frame) -> Tile:
    """Reorder axes."""
    tile = frame.values[op.x]
    return tile if isinstance(tile, int) else tile.permute(op.order)
