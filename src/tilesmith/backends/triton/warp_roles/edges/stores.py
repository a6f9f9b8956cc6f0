"""How groups store results: through shared memory and the copy engine where there is room.

A program that walks several tiles does not wait until a result has left shared memory: it goes on
with the next tile, and waits when that one's result needs the buffer. Where there is no room for
such a buffer, results take the place of kept tiles, which are handed back once they have left.
"""

from __future__ import annotations

from collections.abc import Callable

from tilesmith.backends.triton.emission.emitter import Emitter
from tilesmith.backends.triton.warp_roles.copies import Buffers, CopiedTile, find_copy
from tilesmith.backends.triton.warp_roles.emitter import GROUP, RoleEmitter
from tilesmith.backends.triton.warp_roles.loading import Shared
from tilesmith.backends.triton.warp_roles.protocol import KEPT, SHARED_BYTES
from tilesmith.ir.ops.memory import Store
from tilesmith.schedule.config import is_persistent

WAIT = "tma.store_wait(0)"


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
