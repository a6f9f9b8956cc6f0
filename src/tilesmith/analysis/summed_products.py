"""Loops that add products to a tile, whose sums may be split over several programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tilesmith.analysis.effects import is_elsewhere, is_pure
from tilesmith.analysis.row_products import needed_by
from tilesmith.dtypes import F32
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Grid, Loop, Yield
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Load, ProgramBarrier, Store
from tilesmith.ir.traversal import definitions, values_used_by, walk
from tilesmith.ir.types import Dim, Value

LEAST_SIDE = 16
"""Of tiles, where a matrix has as much."""


@dataclass(frozen=True, eq=False)
class SummedProduct:
    """A loop that adds products to a tile, and what comes of the tile."""

    grid: Grid
    loop: Loop
    before: tuple[Operation, ...]
    after: tuple[Operation, ...]
    """Ops of the grid that the stores need, less the loop."""
    sides: tuple[int, int]
    """Rows and columns of the result."""
    length: int
    """How far the loop goes."""


def find_summed_product(function: Function) -> SummedProduct | None:
    """Of several grids, the one whose programs are fewest for the longest sums."""
    grids = [op for op in function.body.ops if isinstance(op, Grid)]
    if not all(is_pure(op) for op in function.body.ops if op not in grids):
        return None
    sites = [site for grid in grids if (site := _find_in(function, grid)) is not None]
    return max(sites, key=lambda site: site.length / prod(site.sides), default=None)


def _find_in(function: Function, grid: Grid) -> SummedProduct | None:
    loops = [op for op in walk(grid.body) if isinstance(op, Loop)]
    dots = [op for op in walk(grid.body) if isinstance(op, Dot)]
    if len(loops) != 1 or not dots or loops[0] not in grid.body.ops:
        return None
    loop, known = loops[0], definitions(function.body)
    if not _only_adds(loop, dots, grid, known):
        return None
    ends = [_end(known, x.begins[i], x.ends[i]) for x, i in ((grid, 0), (grid, 1), (loop, 0))]
    position = grid.body.ops.index(loop)
    before, after = grid.body.ops[:position], grid.body.ops[position + 1 :]
    if not all(ends) or not all(map(_is_followed, (*before, *after, *loop.body.ops))):
        return None
    if any(isinstance(op, Store) for op in (*before, *loop.body.ops)):
        return None
    if any(b.high is not None and b.high < LEAST_SIDE for b in map(function.block, grid.blocks)):
        return None
    stores = [op for op in after if isinstance(op, Store)]
    needed = needed_by((*before, *after), stores)
    sides = (ends[0] or 0, ends[1] or 0)
    return SummedProduct(grid, loop, needed_by(before, [loop]), needed, sides, ends[2] or 0)


def _only_adds(loop: Loop, dots: Sequence[Dot], grid: Grid, known: dict[Value, Operation]) -> bool:
    """Whether a loop adds products to a tile of a grid of two axes, from nothing on."""
    if len(grid.blocks) != 2 or not all((*grid.blocks, *loop.blocks)) or loop.rank != 1:
        return False
    if len(loop.init) != 1 or loop.steps or not set(dots) <= set(loop.body.ops):
        return False
    start = known.get(loop.init[0])
    starts = isinstance(start, Full) and start.value == 0 and loop.init[0].tile.dtype == F32
    shape = tuple(map(Dim.of, grid.blocks))
    # Each product adds to the one before it, and nothing else reads what is not all of the sum.
    before, after = [dot.acc for dot in dots], [dot.result for dot in dots]
    used = list(values_used_by(loop.body.ops))
    adds = before == [loop.carried[0], *after[:-1]] and loop.body.yielded == (after[-1],)
    are_used_once = all(used.count(value) == 1 for value in before if value is not None)
    return starts and adds and are_used_once and all(x.tile.shape == shape for x in after)


def _end(known: dict[Value, Operation], begin: Value, end: Value) -> int | None:
    first, last = known.get(begin), known.get(end)
    is_known = isinstance(first, Full) and first.value == 0 and isinstance(last, Full)
    return int(last.value) if is_known and isinstance(last, Full) else None


def _is_followed(op: Operation) -> bool:
    is_access = isinstance(op, (Load, Store, ProgramBarrier)) and not is_elsewhere(op)
    return is_pure(op) or is_access or isinstance(op, Yield)
