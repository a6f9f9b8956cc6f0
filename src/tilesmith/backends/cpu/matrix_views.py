"""Operands of products that can be read in place: plain loads with a fixed stride along each axis.

Conversions to a wider type and transpositions on the way do not matter: packing does them.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.backends.cpu.coordinates import Coords, access_places, operands_at, own_coords
from tilesmith.backends.cpu.virtual_tiles import VirtualTiles
from tilesmith.dtypes import DType, Kind
from tilesmith.ir.ops.elementwise import Cast
from tilesmith.ir.ops.indexing import Mask
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.ops.shape import ExpandDims, Permute, Reshape
from tilesmith.ir.values import Value


@dataclass(frozen=True)
class LoadedMatrix:
    """A tile that is one load seen from other axes."""

    load: Load
    coords: Coords
    """Position in the load of the tile's own coordinates."""
    steps: tuple[tuple[int, ...], ...]
    """For each axis of the tile's space, by how much each tensor index grows."""


def find_stored(value: Value, tiles: VirtualTiles) -> Value | None:
    """The stored tile that an operand is, if it is one: masks change nothing in cropped tiles."""
    op = tiles.definitions.get(value)
    while not tiles.is_stored(value) and isinstance(op, Mask):
        value = op.x
        op = tiles.definitions.get(value)
    return value if tiles.is_stored(value) else None


def find_matrix(value: Value, tiles: VirtualTiles) -> LoadedMatrix | None:
    """The load behind an operand, if it can be read in place."""
    place = (value, own_coords(value.tile.shape))
    op = tiles.definitions.get(value)
    while not tiles.is_stored(place[0]) and not isinstance(op, Load):
        if isinstance(op, Cast):
            if op.bitcast or not _is_exact(op.x.tile.dtype, op.dtype):
                return None
        elif not isinstance(op, (Mask, ExpandDims, Permute, Reshape)):
            return None
        (place,) = operands_at(op, place[1])
        op = tiles.definitions.get(place[0])
    if not isinstance(op, Load) or tiles.is_stored(place[0]):
        return None
    if op.mask is not None or op.bases is not None:
        return None
    places = access_places(op, op.result.tile.shape, place[1])
    rank = sum(not dim.is_one for dim in value.tile.shape)
    steps: list[tuple[int, ...]] = []
    for axis in range(rank):
        moved = [tiles.derivative(index, axis) for index in places]
        if any(step is None for step in moved):
            return None
        steps.append(tuple(step or 0 for step in moved))
    return LoadedMatrix(op, place[1], tuple(steps))


def _is_exact(source: DType, target: DType) -> bool:
    """Whether every value of one type is one of the other."""
    if source.is_float != target.is_float or source.is_bool or target.is_bool:
        return False
    if source.kind is Kind.SIGNED and target.kind is Kind.UNSIGNED:
        return False
    return source.bits < target.bits and source.precision <= target.precision
