"""Programs that walk tiles: which one comes next, and results that nobody waits for.

Programs take one tile of each round. If every round began with the longest, the first program would
have the longest tile of all rounds: where tiles differ in length, every other round goes backwards.
So tiles of a head follow one another, and its keys stay in the cache, while programs end at the
same time: with 1024 queries of 128 heads in tiles of 128, at 1.03 times the mean instead of 1.33.

Results go through shared memory and the copy engine where there is room. A program that walks does
not wait until a result has left: it goes on with the next tile, and waits when that one's result
needs the buffer. Where there is no room for such a buffer, results take the place of kept tiles,
which are handed back once they have left.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from tilesmith.backends.triton.emission.emitter import Emitter
from tilesmith.backends.triton.emission.spelling import Expr
from tilesmith.backends.triton.warp_roles.copies import Buffers, CopiedTile, find_copy
from tilesmith.backends.triton.warp_roles.emitter import GROUP, RoleEmitter
from tilesmith.backends.triton.warp_roles.loading import Shared
from tilesmith.backends.triton.warp_roles.plan import RolePlan
from tilesmith.backends.triton.warp_roles.protocol import KEPT, SHARED_BYTES
from tilesmith.ir.ops.memory import Store
from tilesmith.schedule.config import is_persistent
from tilesmith.schedule.rules import TargetedKernel

GROUPINGS = (1, 2, 4, 8, 16, 32)
SHARED_CACHE = 1 << 25
"""Bytes of tensors that programs running at the same time may use without losing them again."""
WAIT = "tma.store_wait(0)"
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


class ResultStores:
    """Emits stores of one module, and knows the buffers that they need."""

    def __init__(
        self,
        buffers: Buffers,
        find_shared: Callable[[], Shared],
        plain_rule: Callable[[Emitter, Store], None],
    ) -> None:
        self._buffers = buffers
        self._find_shared = find_shared
        self._plain_rule = plain_rule
        self.staged: dict[str, CopiedTile] = {}
        """Buffers that results are stored through, by name."""

    @property
    def last_words(self) -> list[str]:
        """What a group does when it has no tile left."""
        return [WAIT] if self.staged and self._is_looped else []

    @property
    def _last_store(self) -> Store | None:
        """The one that nothing of the same tile waits for."""
        stores = [op for op in self._buffers.plan.after if isinstance(op, Store)]
        matrices = [op for op in stores if op.value.tile.rank > 1]
        return matrices[-1] if matrices else None

    @property
    def _is_looped(self) -> bool:
        return is_persistent(self._buffers.schedule.pid_type)

    def emit(self, emitter: Emitter, op: Store) -> None:
        """Through shared memory and the copy engine where there is room, else by each thread."""
        assert isinstance(emitter, RoleEmitter)
        is_matrix = sum(not dim.is_one for dim in op.value.tile.shape) > 1
        tile = find_copy(emitter, op) if is_matrix else None
        shared = self._find_shared()
        kept = None if tile is None else self._find_kept(tile, shared)
        is_wanted = kept is None or (self._is_looped and op is self._last_store)
        own = self._find_own(tile) if tile is not None and is_wanted else None
        buffer = own or kept
        if tile is None or buffer is None:
            self._plain_rule(emitter, op)
            return
        writer, is_late = emitter.writer, own is not None and self._is_looped
        value = emitter.in_layout(op.value, shared.layouts.get(op.value))
        if is_late:
            writer.line(WAIT)
        writer.statement(f"{tile.view(buffer)}.store", [str(value)])
        # The copy engine reads memory by another way than threads write it.
        writer.line("fence_async_shared()")
        arguments = [tile.descriptor.name, tile.position(GROUP), buffer]
        writer.statement("tma.async_copy_shared_to_global", arguments)
        if not is_late:
            writer.line(WAIT)

    def _find_kept(self, tile: CopiedTile, shared: Shared) -> str | None:
        """A kept tile that is done with."""
        kept = shared.rings.get(KEPT)
        for load in kept.loads if kept is not None else ():
            other = self._buffers.tiles[load]
            is_alike = (other.block, other.dtype) == (tile.block, tile.dtype)
            if kept is not None and is_alike and other.has_group_rows:
                return shared.place(load, kept, "piece", GROUP)
        return None

    def _find_own(self, tile: CopiedTile) -> str | None:
        """A buffer of its own, where there is room."""
        taken = sum(other.num_bytes for other in self.staged.values()) + tile.num_bytes
        has_room = self._buffers.num_bytes + self._buffers.groups * taken <= SHARED_BYTES
        if not has_room or not tile.has_group_rows:
            return None
        name = f"{tile.descriptor.name.removesuffix('_desc')}_staged"
        self.staged[name] = tile
        return f"{name}.index({GROUP if self._buffers.groups > 1 else 0})"
