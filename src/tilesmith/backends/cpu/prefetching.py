"""Loads that fetch the next program's elements while this one computes.

A nest that reads a row for the second time finds it in the cache, so memory would be idle: there
the row of the program that comes next is fetched.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilesmith.analysis.affine import find_affine
from tilesmith.backends.cpu.coordinates import Coords, access_places
from tilesmith.backends.cpu.nests import Form, Nest, PlannedGrid
from tilesmith.backends.cpu.virtual_tiles import VirtualTiles
from tilesmith.ir.ops.memory import Load
from tilesmith.schedule.schedule import Schedule


def mark_prefetches(grid: PlannedGrid, schedule: Schedule) -> None:
    """Note in each nest which loads are to fetch ahead, and how far each index moves for that."""
    options = schedule.grids.get(grid.op.slot)
    axis = options.order[0] if options is not None else len(grid.op.blocks) - 1
    seen: set[Load] = set()
    done: set[Load] = set()
    for step in grid.program.steps:
        if not isinstance(step, Nest):
            continue
        loads = list(_contiguous_loads(step, grid.tiles))
        for op in loads:
            distance = _to_next_program(op, grid, axis, schedule)
            if op in seen and op not in done and any(distance):
                step.prefetched[op] = distance
                done.add(op)
        seen.update(loads)


def _contiguous_loads(nest: Nest, tiles: VirtualTiles) -> Iterator[Load]:
    """Loads that go through memory element by element along the lanes."""
    if nest.layout.form is not Form.ROWS or nest.layout.vector_axis < 0:
        return
    for root in nest.roots:
        for (_, coords), op in root.closure(tiles).nodes.items():
            if not isinstance(op, Load) or op.bases is not None:
                continue
            if _is_contiguous(op, coords, nest, tiles):
                yield op


def _is_contiguous(op: Load, coords: Coords, nest: Nest, tiles: VirtualTiles) -> bool:
    places = access_places(op, op.result.tile.shape, coords)[: len(op.indices)]
    steps = [tiles.derivative(place, nest.layout.vector_axis) for place in places]
    moved = [(step, by) for step, by in zip(steps, op.tensor.tensor.strides) if step != 0]
    return moved == [(1, 1)]


def _to_next_program(op: Load, grid: PlannedGrid, axis: int, schedule: Schedule) -> tuple[int, ...]:
    begin, block = grid.op.body.args[axis], grid.op.blocks[axis]
    size = schedule.symbols[block] if block else 1
    found: list[int] = []
    for index in op.indices:
        form = find_affine(index, grid.tiles.definitions)
        found.append(0 if form is None else dict(form.base).get(begin, 0) * size)
    return tuple(found)
