"""Which loop the lanes of a nest go along: the one that moves through memory element by element."""

from __future__ import annotations

from tilesmith.backends.cpu.coordinates import Place, access_places, aligned, space_of
from tilesmith.backends.cpu.nests import Form, Layout, Root
from tilesmith.backends.cpu.virtual_tiles import VirtualTiles
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.types import Dim
from tilesmith.schedule.schedule import Schedule

_CONTIGUOUS, _BROKEN = 4, -3
_SHORT_AXIS = 5


def choose_layout(root: Root, tiles: VirtualTiles, schedule: Schedule) -> Layout:
    """The nest a root wants to be computed in."""
    shape = root.place[0].tile.shape
    space = space_of(shape)
    if not root.is_keep and isinstance(root.op, Atomic):
        return Layout(space, Form.ONE_BY_ONE, -1)
    if not space:
        return Layout(space, Form.ROWS, -1)
    axis = _best_axis(root, space, tiles, schedule)
    if root.is_keep or not isinstance(root.op, Reduce):
        return Layout(space, Form.ROWS, axis)
    if shape[root.op.axis].is_one:
        return Layout(space, Form.ROWS, -1)
    reduced = sum(not dim.is_one for dim in shape[: root.op.axis])
    if axis == reduced:
        return Layout(space, Form.ROWS, axis)
    return Layout(space, Form.COLUMNS, axis, reduced)


def _best_axis(root: Root, space: tuple[Dim, ...], tiles: VirtualTiles, schedule: Schedule) -> int:
    scores = [_score(root, axis, tiles) for axis in range(len(space))]
    for axis, dim in enumerate(space):
        if schedule.physical(dim) < schedule.target.vector_lanes:
            scores[axis] -= _SHORT_AXIS
    # The last of equal ones: tiles are row-major.
    return max(range(len(space)), key=lambda axis: (scores[axis], axis))


def _score(root: Root, axis: int, tiles: VirtualTiles) -> int:
    closure = root.closure(tiles)
    total = 0
    for (_, coords), op in closure.nodes.items():
        if isinstance(op, Load):
            places = access_places(op, op.result.tile.shape, coords)
            total += _access_score(op, places, axis, tiles)
    if not root.is_keep and isinstance(root.op, Store):
        places = root.places()[1:]
        total += 2 * _access_score(root.op, places, axis, tiles)
    if root.is_keep:
        wide = [c for c in aligned(root.place[0], root.place[0].tile.shape, root.place[1])]
        total += 1 if axis == len(wide) - 1 else 0
    return total


def _access_score(
    op: Load | Store | Atomic, places: list[Place], axis: int, tiles: VirtualTiles
) -> int:
    strides = op.tensor.tensor.strides
    steps = [tiles.derivative(place, axis) for place in places[: len(op.indices)]]
    has_bases = not isinstance(op, Atomic) and op.bases is not None
    if has_bases and axis in tiles.axes(places[len(op.indices)]):
        return _BROKEN
    if all(step == 0 for step in steps):
        return 0
    moved = [(step, stride) for step, stride in zip(steps, strides) if step != 0]
    return _CONTIGUOUS if moved == [(1, 1)] else _BROKEN
