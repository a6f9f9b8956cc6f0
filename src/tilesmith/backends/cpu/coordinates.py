"""Where an element of a tile lies, in terms of the loops around it.

A coordinate is an axis of the loop nest, zero (an axis of one element), a digit of a
reinterpreted position (behind a reshape), a fixed position, or one that a tile says.
``operands_at`` follows coordinates through ops whose results are computed on demand.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Arange, Full, Mask, TileIndex
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.ops.rearrangement import Gather, Join, Select
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


@dataclass(frozen=True)
class Fixed:
    """A position known in advance."""

    position: int


@dataclass(frozen=True)
class Told:
    """The position that an element of a tile of integers says."""

    value: Value
    coords: tuple[Coord, ...]


Coord = Axis | Zero | Digit | Fixed | Told
Coords = tuple[Coord, ...]
ZERO = Zero()
Place = tuple[Value, Coords]
"""A tile and the position of one of its elements."""

VIRTUAL_OPS = (
    Elementwise, Cast, Full, TileIndex, Arange, Mask, Load, ExpandDims, Broadcast, Reshape, Permute,
    Join, Select, Gather,
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
    if isinstance(op, (Join, Select, Gather)):
        return _rearranged(op, coords)
    return [(op.begin, ())] if isinstance(op, TileIndex) else []


def _rearranged(op: Join | Select | Gather, coords: Coords) -> list[Place]:
    """One side of a join where it is known which; the positions of a gather before its element."""
    if isinstance(op, Join):
        sides = [(op.lhs, coords[:-1]), (op.rhs, coords[:-1])]
        last = coords[-1]
        return [sides[last.position]] if isinstance(last, Fixed) else sides
    if isinstance(op, Select):
        size = op.x.tile.shape[op.axis]
        picked = ZERO if size.is_one else Fixed(op.position)
        return [(op.x, (*coords[: op.axis], picked, *coords[op.axis :]))]
    told = ZERO if op.x.tile.shape[op.axis].is_one else Told(op.index, coords)
    moved = (*coords[: op.axis], told, *coords[op.axis + 1 :])
    return [(op.index, coords), (op.x, moved)]


def access_places(op: Load | Store | Atomic, shape: Shape, coords: Coords) -> list[Place]:
    """The elements of the indices, then of an address or expected value, last of the mask."""
    extra = op.expected if isinstance(op, Atomic) else op.bases
    parts = [*op.indices, *(part for part in (extra, op.mask) if part is not None)]
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
    if isinstance(coord, (Digit, Told)):
        return frozenset().union(*map(axes_of, coord.coords))
    return frozenset()
