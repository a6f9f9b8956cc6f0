"""Evaluates constants, tile positions, block sizes and masks."""

from __future__ import annotations

import torch

from tilesmith.interpreter.affine_tile import AffineTile
from tilesmith.interpreter.frame import Frame, Tile
from tilesmith.interpreter.integer_functions import wrap_integer
from tilesmith.interpreter.torch_dtypes import to_torch
from tilesmith.ir.ops.indexing import Arange, BlockSize, Full, Mask, TileIndex


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
