"""Conditions that hold at one position along an axis: ``arange(n) == j``.

What such a condition selects is one element: a sum of it is a lookup, and a tile that it changes
is written there and nowhere else. Lanes that go along a whole axis do that work on a GPU; here one
address does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilesmith.backends.cpu.loop_ir.elements import Fixed, LoopIndex
from tilesmith.backends.cpu.planning import coordinates
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region, Trait
from tilesmith.ir.ops.control_flow import Grid, Loop
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Arange, Full
from tilesmith.ir.ops.rearrangement import Gather, Select
from tilesmith.ir.ops.reduction import Reduce, ReduceKind
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.traversal import Definitions, apply_rules, definitions, walk
from tilesmith.ir.types import ONE, Shape, TileType, Value

Bounds = Mapping[Value, tuple[int, int]]
"""Indices of loops, each with its first value and one past its last."""
_MOST_LOOKED_THROUGH = 16


def index_bounds(region: Region, defined_by: Definitions) -> dict[Value, tuple[int, int]]:
    """Of the loops in a region that count single steps between constants."""
    found: dict[Value, tuple[int, int]] = {}
    for op in walk(region):
        if not isinstance(op, (Grid, Loop)):
            continue
        for arg, begin, end, block in zip(op.body.args, op.begins, op.ends, op.blocks):
            ends = defined_by(begin), defined_by(end)
            if not block and all(isinstance(side, Full) for side in ends):
                first, last = (int(side.value) for side in ends if isinstance(side, Full))
                found[arg] = first, last
    return found


@dataclass(frozen=True)
class Single:
    """A tile's axis, and the position along it: a number or the element that says it."""

    axis: int
    position: coordinates.Place | int


def find_single(
    condition: Value, shape: Shape, defined_by: Definitions, bounds: Bounds
) -> Single | None:
    """Where a condition over a shape holds, if that is one position inside of one axis."""
    place = _behind_views((condition, coordinates.own_coords(shape)), defined_by)
    op = defined_by(place[0])
    if not isinstance(op, Elementwise) or op.fn != "eq":
        return None
    sides = [_behind_views(side, defined_by) for side in coordinates.operands_at(op, place[1])]
    for line, other in (sides, sides[::-1]):
        numbers = defined_by(line[0])
        if not isinstance(numbers, Arange) or not isinstance(line[1][0], LoopIndex):
            continue
        loop, (dim,) = line[1][0], numbers.result.tile.shape
        axis = coordinates.own_coords(shape).index(loop)
        if shape[axis] != dim or not _is_below(other[0], dim.constant, defined_by, bounds):
            continue
        known = defined_by(other[0])
        if isinstance(known, Full):
            return Single(axis, int(known.value))
        if loop.axis not in coordinates.axes_of(other[1]):
            return Single(axis, other)
    return None


def _behind_views(place: coordinates.Place, defined_by: Definitions) -> coordinates.Place:
    """The element that a view shows, or that was made wider without a change."""
    for _ in range(_MOST_LOOKED_THROUGH):
        op = defined_by(place[0])
        is_view = op is not None and Trait.VIEW in op.traits and coordinates.is_virtual(type(op))
        if op is None or not (is_view or (isinstance(op, Cast) and _is_wider(op))):
            break
        places = coordinates.operands_at(op, place[1])
        if len(places) != 1:
            break
        (place,) = places
    return place


def _is_wider(op: Cast) -> bool:
    source = op.x.tile.dtype
    return not op.bitcast and source.is_integer and source.is_held_by(op.dtype)


def _is_below(value: Value, size: int | None, defined_by: Definitions, bounds: Bounds) -> bool:
    """Whether an integer is surely a position along an axis of that size."""
    if size is None:
        return False
    op = defined_by(value)
    if isinstance(op, Full):
        return 0 <= op.value < size
    if isinstance(op, Reduce):
        return op.reduction.is_arg and op.x.tile.shape[op.axis].constant == size > 0
    first, last = bounds.get(value, (-1, 0))
    return first >= 0 and last <= size


def look_up_single_elements(function: Function) -> Function:
    """Replace reductions of what one position of a row holds by that element.

    Before::

        %w = elementwise(%is_j, %x, %zero) {fn="where"} : f32[n, m]
        %s = reduce(%w) {axis=1, kind="sum"} : f32[n]

    After::

        %g = gather(%x, %j) {axis=1} : f32[n, 1]
        %s = reshape(%g) : f32[n]

    or a ``select`` where ``%j`` is a constant; ``%is_j`` holds at ``%j`` of every row. A sum
    adds zero, for the sign of zeros.
    """
    defined = definitions(function.body)
    bounds = index_bounds(function.body, defined.get)

    def rule(op: Operation, defined_by: Definitions) -> Sequence[Operation] | None:
        if not isinstance(op, Reduce) or op.reduction.is_arg:
            return None
        return _look_up(op, defined_by, bounds)

    return apply_rules(function, (rule,))


def _look_up(op: Reduce, defined_by: Definitions, bounds: Bounds) -> Sequence[Operation] | None:
    here = coordinates.own_coords(op.x.tile.shape)
    x, coords = _behind_views((op.x, here), defined_by)
    selected = defined_by(x)
    if coords != here or not isinstance(selected, Elementwise) or selected.fn != "where":
        return None
    if x.tile.dtype != op.result.tile.dtype:
        return None
    condition, chosen, other = selected.args
    identity = op.reduction.identity(x.tile.dtype)
    if not _is_filled(other, identity, defined_by):
        return None
    single = find_single(condition, x.tile.shape, defined_by, bounds)
    if single is None or single.axis != op.axis:
        return None
    writer = TileWriter(lambda: op.loc)
    found = _element(writer, chosen, single, op.result.tile)
    if found is None:
        return None
    # A sum begins with zero, which makes 0 of -0.
    begins_with_zero = op.reduction is ReduceKind.SUM and x.tile.dtype.is_float
    if begins_with_zero:
        zero = writer.full(found.tile, 0.0)
        same = Elementwise(args=(found, zero), fn="add", results=op.results, loc=op.loc)
        writer.insert(same)
    return writer.close_region(()).ops


def _is_filled(value: Value, number: float, defined_by: Definitions) -> bool:
    place = _behind_views((value, coordinates.own_coords(value.tile.shape)), defined_by)
    op = defined_by(place[0])
    return isinstance(op, Full) and op.value == number


def _element(writer: TileWriter, x: Value, single: Single, kind: TileType) -> Value | None:
    """What a tile holds at a position, without its axis."""
    axis, shape = single.axis, x.tile.shape
    if isinstance(single.position, int):
        return writer.create(Select, kind, x=x, axis=axis, position=single.position)
    value, coords = single.position
    row, own = (*shape[:axis], ONE, *shape[axis + 1 :]), coordinates.own_coords(shape)
    if not value.tile.rank:
        positions = writer.spread(value, 0, row)
    elif coords == own[:axis] + own[axis + 1 :]:
        positions = writer.line(value, row)
    else:
        return None
    found = writer.create(Gather, x.tile.with_shape(row), x=x, index=positions, axis=axis)
    if kind.rank:
        return writer.line(found, kind.shape)
    return writer.create(Select, kind, x=found, axis=0, position=0)


@dataclass(frozen=True)
class Update:
    """A tile that differs from ``old`` at one position of an axis only, where it is ``new``."""

    new: Value
    old: Value
    coords: coordinates.Coords
    """Of the elements that differ, in a nest over the other axes."""


def find_update(value: Value, defined: Mapping[Value, Operation], bounds: Bounds) -> Update | None:
    """What a tile changes of another, if that is one position of each row."""
    op = defined.get(value)
    if not isinstance(op, Elementwise) or op.fn != "where":
        return None
    condition, new, old = op.args
    shape = value.tile.shape
    single = find_single(condition, shape, defined.get, bounds)
    if single is None:
        return None
    moved = dict(_renumbered(shape, single.axis))
    at = _moved_position(single.position, moved)
    if at is None:
        return None
    own = [_moved(coord, moved) for coord in coordinates.own_coords(shape)]
    own[single.axis] = at
    return Update(new, old, tuple(own))


def _moved(coord: coordinates.Coord, moved: Mapping[int, LoopIndex]) -> coordinates.Coord:
    return moved.get(coord.axis, coord) if isinstance(coord, LoopIndex) else coord


def _moved_position(
    position: coordinates.Place | int, moved: Mapping[int, LoopIndex]
) -> coordinates.Coord | None:
    if isinstance(position, int):
        return Fixed(position)
    value, coords = position
    if not all(isinstance(coord, (LoopIndex, coordinates.Zero)) for coord in coords):
        return None
    return coordinates.Indirect(value, tuple(_moved(coord, moved) for coord in coords))


def _renumbered(shape: Shape, without: int) -> Iterator[tuple[int, LoopIndex]]:
    """The loops of a tile's own nest as those of a nest without one axis."""
    number = 0
    for axis, coord in enumerate(coordinates.own_coords(shape)):
        if isinstance(coord, LoopIndex) and axis != without:
            yield coord.axis, LoopIndex(number)
            number += 1
