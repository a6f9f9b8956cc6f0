"""Where an element of a tile lies, in terms of the loops around it.

A coordinate is an axis of the loop nest, zero (an axis of one element), or a digit of a
reinterpreted position (behind a reshape). ``operands_at`` follows coordinates through ops whose
results are computed on demand.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Arange, Full, Mask, TileIndex
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape
from tilesmith.ir.types import Shape
from tilesmith.ir.values import Value


@dataclass(frozen=True)
class Axis:
    """The index of the nest's loop of that number."""

    number: int


@dataclass(frozen=True)
class Zero:
    """The only position of an axis of one element."""


@dataclass(frozen=True)
class Digit:
    """Position along ``shape[axis]`` of the element that lies at ``coords`` of ``source``."""

    coords: tuple[Coord, ...]
    source: Shape
    shape: Shape
    axis: int


Coord = Axis | Zero | Digit
Coords = tuple[Coord, ...]
ZERO = Zero()
Place = tuple[Value, Coords]
"""A tile and the position of one of its elements."""

VIRTUAL_OPS = (
    Elementwise, Cast, Full, TileIndex, Arange, Mask, Load, ExpandDims, Broadcast, Reshape, Permute,
)  # fmt: skip
"""Ops whose results need no memory: their elements are computed where they are used."""


def space_of(shape: Shape) -> Shape:
    """The dimensions a loop is needed for."""
    return tuple(dim for dim in shape if not dim.is_one)


def own_coords(shape: Shape) -> Coords:
    """The coordinates of a tile in the nest over its own space."""
    numbers = iter(range(len(shape)))
    return tuple(ZERO if dim.is_one else Axis(next(numbers)) for dim in shape)


def operands_at(op: Operation, coords: Coords) -> list[Place]:
    """The elements that the element of ``op``'s result at ``coords`` is computed from."""
    if isinstance(op, (Elementwise, Cast, Mask)):
        args = op.args if isinstance(op, Elementwise) else (op.x,)
        return [(arg, coords) for arg in args]
    if isinstance(op, (ExpandDims, Broadcast, Reshape, Permute)):
        return [(op.x, _of_view(op, coords))]
    if isinstance(op, Load):
        return access_places(op, op.result.tile.shape, coords)
    return [(op.begin, ())] if isinstance(op, TileIndex) else []


def access_places(op: Load | Store | Atomic, shape: Shape, coords: Coords) -> list[Place]:
    """The elements of the indices, then of the mask, behind one accessed element."""
    parts = list(op.indices)
    if op.mask is not None:
        parts.append(op.mask)
    return [(part, aligned(part, shape, coords)) for part in parts]


def aligned(part: Value, shape: Shape, coords: Coords) -> Coords:
    """The coordinates in a tile that broadcasts to ``shape``, aligned at the last axis."""
    rank = part.tile.rank
    if not rank:
        return ()
    pairs = zip(part.tile.shape, shape[-rank:], coords[-rank:])
    return tuple(ZERO if dim.is_one and not full.is_one else c for dim, full, c in pairs)


def _of_view(op: ExpandDims | Broadcast | Reshape | Permute, coords: Coords) -> Coords:
    if isinstance(op, ExpandDims):
        return tuple(c for axis, c in enumerate(coords) if axis not in op.axes)
    if isinstance(op, Broadcast):
        return aligned(op.x, op.result.tile.shape, coords)
    if isinstance(op, Permute):
        found = dict(zip(op.order, coords))
        return tuple(found[axis] for axis in range(len(coords)))
    return _of_reshape(op.x.tile.shape, op.result.tile.shape, coords)


def _of_reshape(source: Shape, result: Shape, coords: Coords) -> Coords:
    if space_of(source) == space_of(result):
        wide = iter(c for c, dim in zip(coords, result) if not dim.is_one)
        return tuple(ZERO if dim.is_one else next(wide) for dim in source)
    digits = range(len(source))
    return tuple(
        ZERO if source[axis].is_one else Digit(coords, result, source, axis) for axis in digits
    )


def axes_of(coord: Coord) -> frozenset[int]:
    """The loops a coordinate moves with."""
    if isinstance(coord, Axis):
        return frozenset((coord.number,))
    if isinstance(coord, Digit):
        return frozenset().union(*map(axes_of, coord.coords))
    return frozenset()
