"""Programs that walk tiles: which one comes next.

Programs take one tile of each round. If every round began with the longest, the first program would
have the longest tile of all rounds: where tiles differ in length, every other round goes backwards.
So tiles of a head follow one another, and its keys stay in the cache, while programs end at the
same time: with 1024 queries of 128 heads in tiles of 128, at 1.03 times the mean instead of 1.33.
"""

from __future__ import annotations

from math import prod

from tilesmith.backends.triton.emission.spelling import Expr
from tilesmith.backends.triton.warp_roles.emitter import RoleEmitter
from tilesmith.backends.triton.warp_roles.plan import RolePlan
from tilesmith.schedule.rules import TargetedKernel

GROUPINGS = (1, 2, 4, 8, 16, 32)
SHARED_CACHE = 1 << 25
"""Bytes of tensors that programs running at the same time may use without losing them again."""
ROUND_FUNCTIONS = {
    "_next_tile": '''
@gluon.jit
def _next_tile(tile, tiles, PROGRAMS: gl.constexpr):
    """Every other round backwards, counted from the last, which may not be full."""
    number = tile // PROGRAMS
    is_back = (tiles // PROGRAMS - number) % 2
    return tile + is_back * ((2 * number + 1) * PROGRAMS - 1 - 2 * tile)
''',
}
"""Functions of a module, by name."""


def go_back(emitter: RoleEmitter, tile: Expr, tiles: Expr, programs: Expr) -> Expr:
    """The tile that a program takes instead."""
    name = emitter.spelling.helper("_next_tile")
    return emitter.named("next_tile", Expr(f"{name}({tile}, {tiles}, {programs})"))


def tile_order(kernel: TargetedKernel, plan: RolePlan) -> tuple[int, ...]:
    """Tiles of rows of one head one after the other; of a sequence, its heads beside them."""
    (grid,) = kernel.outline.grids
    axes = list(range(len(grid.blocks)))
    if plan.is_uneven and plan.branch is not None:
        return tuple(reversed(axes))
    rows = grid.blocks.index(plan.rows)
    return (rows, *(axis for axis in axes if axis != rows))


def head_grouping(kernel: TargetedKernel, plan: RolePlan) -> int:
    """Heads side by side; few enough for the cache."""
    traffic = kernel.facts.bytes or 0
    (grid,) = kernel.outline.grids
    axes = kernel.outline.axes_of(grid)
    heads = prod(axis.extent or 1 for axis in axes if axis.block != plan.rows)
    room = int(SHARED_CACHE * max(1, heads) // max(1, traffic))
    return max(size for size in GROUPINGS if size <= max(1, room))
