"""Tiles between loops: cropping to the valid lanes of a tile, and putting them back.

A tile axis holds exactly its valid lanes. A tile made where its block had another length (outside
the loop over that block, as a rule) is cropped when used inside; lanes it never had read as 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import torch

from tilesmith.diagnostics.catalogue import InternalError
from tilesmith.interpreter.affine_tile import AffineTile
from tilesmith.interpreter.frame import Frame, Tile, length_of
from tilesmith.ir.types import Dim, TileType


def fit(tile: Tile, tile_type: TileType, frame: Frame) -> Tile:
    """The tile with every axis as long as it is in the present scope."""
    if isinstance(tile, int):
        return tile
    if isinstance(tile, AffineTile):
        if all(len(dim.factors) <= 1 for dim in tile_type.shape):
            return tile.with_shape(frame.lengths(tile_type.shape))
        tile = frame.as_tensor(tile, tile_type)
    lengths = frame.lengths(tile_type.shape)
    if tuple(tile.shape) == lengths:
        return tile
    for axis, dim in enumerate(tile_type.shape):
        if tile.shape[axis] != lengths[axis]:
            tile = _fit_axis(tile, axis, dim, frame)
    return tile


def paste(old: Tile, new: Tile, tile_type: TileType, frame: Frame) -> Tile:
    """``old`` with its valid lanes replaced by ``new``, which holds just those."""
    old, new = frame.as_tensor(old, tile_type), frame.as_tensor(new, tile_type)
    if old.shape == new.shape:
        return new
    split_old, split_new = old.clone(), new
    # From the last axis on, so that positions of axes still to be split do not move.
    for axis, dim in reversed(list(enumerate(tile_type.shape))):
        if old.shape[axis] != new.shape[axis]:
            split_old = split_old.unflatten(axis, _factor_lengths(dim, frame.sizes))
            split_new = split_new.unflatten(axis, _factor_lengths(dim, frame.extents))
    split_old[tuple(slice(length) for length in split_new.shape)] = split_new
    return split_old.reshape(old.shape)


def _factor_lengths(dim: Dim, extents: Mapping[str, int]) -> list[int]:
    return [length_of(Dim((factor,)), extents) for factor in dim.factors]


def _fit_axis(tile: torch.Tensor, axis: int, dim: Dim, frame: Frame) -> torch.Tensor:
    """In a product of symbols the lanes of each are cropped, not the first ones of the product."""
    wanted = _factor_lengths(dim, frame.extents)
    if len(wanted) == 1:
        return _fit_length(tile, axis, wanted[0])
    full = _factor_lengths(dim, frame.sizes)
    if prod(full) != tile.shape[axis]:
        raise InternalError(problem=f"axis {dim} of length {tile.shape[axis]} fits no tile")
    split = tile.unflatten(axis, full)
    for position, length in enumerate(wanted):
        split = _fit_length(split, axis + position, length)
    return split.flatten(axis, axis + len(full) - 1)


def _fit_length(tile: torch.Tensor, axis: int, length: int) -> torch.Tensor:
    present = tile.shape[axis]
    if present >= length:
        return tile.narrow(axis, 0, length)
    missing = list(tile.shape)
    missing[axis] = length - present
    return torch.cat([tile, tile.new_zeros(missing)], axis)
