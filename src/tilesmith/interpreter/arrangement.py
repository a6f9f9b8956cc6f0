"""Evaluates what computes nothing: constants, positions, masks, views, elements put elsewhere."""

from __future__ import annotations

import torch

from tilesmith.interpreter.affine_tile import AffineTile
from tilesmith.interpreter.frame import Evaluators, Frame, Tile, from_tensor
from tilesmith.interpreter.reduction import comparable, from_comparable
from tilesmith.interpreter.scalar_functions import wrap_integer
from tilesmith.interpreter.torch_dtypes import to_torch
from tilesmith.ir.ops.indexing import Arange, BlockSize, Full, Mask, TileIndex
from tilesmith.ir.ops.rearrangement import Gather, Join, Select, Sort
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape


def evaluate_full(op: Full, frame: Frame) -> Tile:
    """One constant everywhere, stored once."""
    tile_type = op.result.tile
    dtype = tile_type.dtype
    if dtype.is_integer:
        value = wrap_integer(int(op.value), dtype)
        return AffineTile(frame.lengths(tile_type.shape), value) if tile_type.shape else value
    if dtype.is_bool and not tile_type.shape:
        return bool(op.value)
    constant = torch.full((), op.value, dtype=to_torch(dtype), device=frame.device)
    return constant.expand(frame.lengths(tile_type.shape)) if tile_type.shape else constant


def evaluate_tile_index(op: TileIndex, frame: Frame) -> Tile:
    """The indices of the valid lanes."""
    return AffineTile((frame.extents[op.block],), frame.values[op.begin], 0)


def evaluate_arange(op: Arange, frame: Frame) -> Tile:
    """Positions along the axis."""
    return AffineTile(frame.lengths(op.result.tile.shape), 0, 0)


def evaluate_block_size(op: BlockSize, frame: Frame) -> Tile:
    """The configured size, whatever the present tile's length."""
    return frame.sizes[op.block]


def evaluate_mask(op: Mask, frame: Frame) -> Tile:
    """The identity: tiles hold only valid lanes."""
    return frame.values[op.x]


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


def evaluate_join(op: Join, frame: Frame) -> Tile:
    """Two tiles side by side; scalars and constants take their full shape before."""
    lengths = frame.lengths(op.lhs.tile.shape)
    return torch.stack([frame.tensor(x).expand(lengths) for x in (op.lhs, op.rhs)], -1)


def evaluate_select(op: Select, frame: Frame) -> Tile:
    """One position of an axis."""
    x = frame.tensor(op.x).expand(frame.lengths(op.x.tile.shape))
    return from_tensor(x.select(op.axis, op.position), op.result.tile)


def evaluate_gather(op: Gather, frame: Frame) -> Tile:
    """Elements at given positions."""
    x, index = (frame.tensor(v).expand(frame.lengths(v.tile.shape)) for v in (op.x, op.index))
    positions = index.to(torch.int64)
    if x.dtype.itemsize == 1:
        # torch gathers no 8-bit floats; their bits are moved alike.
        return torch.gather(x.view(torch.uint8), op.axis, positions).view(x.dtype)
    if x.dtype in _SIGNED:
        return torch.gather(x.view(_SIGNED[x.dtype]), op.axis, positions).view(x.dtype)
    return torch.gather(x, op.axis, positions)


_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


def evaluate_sort(op: Sort, frame: Frame) -> Tile:
    """Ascending order along the axis."""
    x = frame.tensor(op.x).expand(frame.lengths(op.x.tile.shape))
    return from_comparable(torch.sort(comparable(x), op.axis).values, x.dtype)


EVALUATORS: Evaluators = {
    Full: evaluate_full,
    TileIndex: evaluate_tile_index,
    Arange: evaluate_arange,
    BlockSize: evaluate_block_size,
    Mask: evaluate_mask,
    ExpandDims: evaluate_expand_dims,
    Broadcast: evaluate_broadcast,
    Reshape: evaluate_reshape,
    Permute: evaluate_permute,
    Join: evaluate_join,
    Select: evaluate_select,
    Gather: evaluate_gather,
    Sort: evaluate_sort,
}
