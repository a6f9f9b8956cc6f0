"""Which tile a program takes next, where tiles differ in length.

Programs that walk tiles take one of each round. If every round began with the longest, the first
program would have the longest tile of all rounds: every other round goes backwards. So tiles of a
head follow one another, and its keys stay in the cache, while programs end at the same time: with
1024 queries of 128 heads in tiles of 128, at 1.03 times the mean instead of 1.33.
"""

from __future__ import annotations

from tilesmith.backends.triton.emission.spelling import Expr
from tilesmith.backends.triton.warp_roles.emitter import RoleEmitter

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
