"""How groups store results: through shared memory and the copy engine where there is room.

Whole tiles need as much room as operands do. So sums that nothing follows are stored in pieces of
128 bytes a row: a group writes the next piece while the copy engine reads the one before. A program
that has one tile is done with its operands by then, and takes their place. Stores of single threads
are the last choice: 4096^3 in bf16 on an H200 took 0.203 ms so, 0.186 through shared memory.

A program that walks tiles does not wait until a whole result has left: it goes on with the next
tile, and waits when that one's result needs the buffer. Where there is no room for such a buffer,
results take the place of kept tiles, which are handed back once they have left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Protocol

from tilesmith.backends.triton.emission.emitter import Emitter, Rules
from tilesmith.backends.triton.warp_roles.asides import stores_after
from tilesmith.backends.triton.warp_roles.copies import Buffers, CopiedTile, Shared, find_copy
from tilesmith.backends.triton.warp_roles.emitter import GROUP, RoleEmitter
from tilesmith.backends.triton.warp_roles.layouts import Layout
from tilesmith.backends.triton.warp_roles.protocol import KEPT, LATE, SHARED_BYTES
from tilesmith.ir.ops.memory import Store
from tilesmith.ir.types import Value
from tilesmith.schedule.config import is_persistent

PIECE_BYTES = 128
"""Of a row: what the copy engine moves without conflicts."""
WAIT = "tma.store_wait(0)"
HALVES = "_halves"
PIECE_FUNCTIONS = {
    HALVES: '''
@gluon.jit
def _halves(tile):
    """The left and the right half of a tile; every thread has the same rows of both."""
    pairs = gl.reshape(tile, [tile.shape[0], 2, tile.shape[1] // 2])
    return gl.split(gl.permute(pairs, (0, 2, 1)))
'''
}


class Surroundings(Protocol):
    """What stores must know of the module that they are in."""

    rules: Rules
    buffers: Buffers
    groups: int

    @property
    def shared(self) -> Shared:
        """Rings and tiles."""
        ...

    @property
    def layouts(self) -> Mapping[Value, Layout]:
        """Where tiles lie in registers."""
        ...


@dataclass(frozen=True)
class StagedTile:
    """Buffers of one kind: so many for each group."""

    tile: CopiedTile
    slots: int = 1

    @property
    def num_bytes(self) -> int:
        """For one group."""
        return self.slots * self.tile.num_bytes


class ResultStores:
    """The rule of stores, and the buffers that it takes."""

    def __init__(self, module: Surroundings) -> None:
        self._module = module
        self.staged: dict[str, StagedTile] = {}
        """Buffers that results are stored through, by name."""
        self._used: Counter[str] = Counter()
        """How many pieces of a tile went through each kind of buffers."""

    @property
    def is_pending(self) -> bool:
        """Whether the copy engine may still read buffers when a tile is done."""
        return bool(self._used) or (bool(self.staged) and self._is_looped)

    @property
    def _last_store(self) -> Store | None:
        """The one that nothing of the same tile waits for."""
        stores = stores_after(self._module.buffers.plan.after)
        matrices = [op for op in stores if op.value.tile.rank > 1]
        return matrices[-1] if matrices else None

    @property
    def _is_looped(self) -> bool:
        return is_persistent(self._module.buffers.schedule.pid_type)

    def emit(self, emitter: Emitter, op: Store) -> None:
        """Through shared memory and the copy engine where there is room, else by each thread."""
        assert isinstance(emitter, RoleEmitter)
        is_matrix = sum(not dim.is_one for dim in op.value.tile.shape) > 1
        if is_matrix and self._try_pieces(emitter, op):
            return
        tile = find_copy(emitter, op) if is_matrix else None
        kept = None if tile is None else self._find_kept(tile)
        is_wanted = kept is None or (self._is_looped and op is self._last_store)
        own = self._stage(tile, 1) if tile is not None and is_wanted else None
        buffer = own or kept
        if tile is None or buffer is None:
            self._module.rules[Store](emitter, op)
            return
        is_late = own is not None and self._is_looped
        if is_late:
            emitter.writer.line(WAIT)
        self._copy(emitter, tile, buffer, (self._value(emitter, op), 0))
        if not is_late:
            emitter.writer.line(WAIT)

    def _value(self, emitter: RoleEmitter, op: Store) -> str:
        return str(emitter.in_layout(op.value, self._module.layouts.get(op.value)))

    def _copy(
        self, emitter: RoleEmitter, tile: CopiedTile, buffer: str, piece: tuple[str, int]
    ) -> None:
        """Hand one piece to the copy engine: its value, and how far along a row it begins."""
        writer, (value, further) = emitter.writer, piece
        writer.statement(f"{tile.view(buffer)}.store", [value])
        # The copy engine reads memory by another way than threads write it.
        writer.line("fence_async_shared()")
        arguments = [tile.descriptor.name, tile.piece_position(GROUP, further), buffer]
        writer.statement("tma.async_copy_shared_to_global", arguments)

    def _find_kept(self, tile: CopiedTile) -> str | None:
        """A kept tile that is done with."""
        shared = self._module.shared
        kept = shared.rings.get(KEPT)
        for load in kept.loads if kept is not None else ():
            other = self._module.buffers.tiles[load]
            is_alike = (other.block, other.dtype) == (tile.block, tile.dtype)
            if kept is not None and is_alike and other.has_group_rows:
                return shared.place(load, kept, "piece", GROUP)
        return None

    def _stage(self, tile: CopiedTile, slots: int) -> str | None:
        """The first buffer of a group, if there is room; those of one kind are shared."""
        name = f"{tile.descriptor.name.removesuffix('_desc')}_staged"
        staged = {**self.staged, name: StagedTile(tile, slots)}
        own = sum(item.num_bytes for item in staged.values())
        needed = self._module.buffers.num_bytes + self._module.groups * own
        if needed > SHARED_BYTES or not tile.has_group_rows:
            return None
        self.staged = staged
        return self._slot(name, 0)

    def _slot(self, name: str, number: int) -> str:
        slots, groups = self.staged[name].slots, self._module.groups
        index = GROUP if groups > 1 else "0"
        if slots > 1:
            index = f"{index} * {slots} + {number % slots}" if groups > 1 else str(number % slots)
        return f"{name}.index({index})"

    def _try_pieces(self, emitter: RoleEmitter, op: Store) -> bool:
        """Store one piece of each row after the other, where nothing but sums takes registers."""
        columns = emitter.schedule.physical(op.value.tile.shape[-1])
        count = max(1, columns * op.value.tile.dtype.itemsize // PIECE_BYTES)
        is_along = op.tensor.tensor.strides[-1] == 1 and op.indices[-1].tile.rank > 0
        if self._module.shared.plan.early or not is_along:
            return False
        tile = find_copy(emitter, op, parts=count)
        name = None if tile is None else self._stage_pieces(emitter, tile)
        if tile is None or name is None:
            return False
        pieces = self._cut(emitter, self._value(emitter, op), count)
        for number, value in enumerate(pieces):
            buffer = self._next_buffer(emitter, name)
            self._copy(emitter, tile, buffer, (value, number * columns // count))
        return True

    def _next_buffer(self, emitter: RoleEmitter, name: str) -> str:
        """The next one of a kind, once the copy engine has read what was there."""
        number = self._used[name]
        slots = self._num_slots(emitter, name)
        if number >= slots:
            emitter.writer.line(f"tma.store_wait({slots - 1})")
        elif not self._used and self._is_looped:
            # Of the tile before, all pieces have been read.
            emitter.writer.line(WAIT)
        self._used[name] += 1
        if name in self.staged:
            return self._slot(name, number)
        index = (
            f"{number % slots} * GROUPS + {GROUP}" if self._module.groups > 1 else number % slots
        )
        return f"{name}.index({index})"

    def _num_slots(self, emitter: RoleEmitter, name: str) -> int:
        return self.staged[name].slots if name in self.staged else emitter.schedule.num_stages

    def _stage_pieces(self, emitter: RoleEmitter, tile: CopiedTile) -> str | None:
        """Buffers for pieces: those that others of the same kind have, or two, or one."""
        done = {} if self._is_looped else self._operands
        known = {**done, **{name: other.tile for name, other in self.staged.items()}}
        for name, other in known.items():
            if (other.block, other.dtype) == (tile.block, tile.dtype):
                return name
        name = self._stage(tile, 2 if self._has_room_for_pairs(emitter) else 1)
        return None if name is None else name.partition(".")[0]

    @property
    def _operands(self) -> dict[str, CopiedTile]:
        """Tiles of the loop that only their own group reads: after it, nobody does."""
        shared = self._module.shared
        ring = shared.rings.get(LATE)
        loads = ring.loads if ring is not None else ()
        own = {load: shared.tiles[load] for load in loads if shared.tiles[load].has_group_rows}
        return {shared.buffer(load): tile for load, tile in own.items()}

    def _has_room_for_pairs(self, emitter: RoleEmitter) -> bool:
        """Whether there is room for two buffers of each kind that the stores of a tile need."""
        stores = stores_after(self._module.shared.plan.after)
        kinds = {(op.value.tile.shape, op.value.tile.dtype) for op in stores}
        rows = {(emitter.schedule.physical_shape(shape), dtype) for shape, dtype in kinds}
        sizes = {
            prod(shape[:-1]) * min(PIECE_BYTES, shape[-1] * dtype.itemsize)
            for shape, dtype in rows
            if shape
        }
        needed = 2 * self._module.groups * sum(sizes) // emitter.programs
        return self._module.buffers.num_bytes + needed <= SHARED_BYTES

    def _cut(self, emitter: RoleEmitter, value: str, count: int) -> list[str]:
        """Variables of the pieces, from left to right."""
        if count == 1:
            return [value]
        halves = emitter.spelling.helper(HALVES)
        low, high = (emitter.spelling.names.fresh(name) for name in ("left", "right"))
        emitter.writer.line(f"{low}, {high} = {halves}({value})")
        return [piece for half in (low, high) for piece in self._cut(emitter, half, count // 2)]
