"""The role that loads: one warp that has tiles copied as slots of the rings become free.

Both roles go through the same turns and count the same events; ``Shared`` is what they know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from tilesmith.backends.triton.warp_roles.copies import Shared
from tilesmith.backends.triton.warp_roles.emitter import RoleEmitter
from tilesmith.backends.triton.warp_roles.listed.turns import emit_start
from tilesmith.backends.triton.warp_roles.plan import RolePlan
from tilesmith.backends.triton.warp_roles.protocol import EARLY, KEPT, LATE, Ring
from tilesmith.ir.operation import Operation


@contextmanager
def entering(
    emitter: RoleEmitter, plan: RolePlan, is_run: Callable[[Operation], bool]
) -> Iterator[None]:
    """What a role runs before the loop, and where all else stands: in a branch, if there is one."""
    for op in filter(is_run, plan.always):
        emitter.op(op)
    branch = plan.branch
    with (
        nullcontext()
        if branch is None
        else emitter.writer.block(f"if {emitter.expr(branch.condition)}")
    ):
        for op in filter(is_run, plan.entering):
            emitter.op(op)
        yield


def is_scalar(op: Operation) -> bool:
    """Whether an op gives numbers: positions of tiles and the ends of the loop depend on these."""
    return bool(op.results) and not any(value.tile.rank for value in op.results)


def emit_copies(emitter: RoleEmitter, shared: Shared, first: int) -> None:
    """The role that loads: tiles of each ring, as slots become free; from the ``first`` turn on."""
    plan, writer = shared.plan, emitter.writer
    kept = shared.rings.get(KEPT)
    if kept is not None:
        writer.line(kept.wait_empty("piece"))
        emit_copy(emitter, shared, kept, "piece")
    with writer.block(f"for turn in range({f'{first}, ' * bool(first)}turns)"):
        emit_start(emitter, plan, "turn")
        for ring in (shared.rings[kind] for kind in (EARLY, LATE) if kind in shared.rings):
            writer.line(ring.wait_empty("step + turn"))
            emit_copy(emitter, shared, ring, "step + turn")
    emit_next(emitter, shared)


def emit_copy(emitter: RoleEmitter, shared: Shared, ring: Ring, event: str) -> None:
    """All tiles of one event of a ring, whose slot is free: one barrier counts their bytes."""
    writer = emitter.writer
    copies = [
        (tile, group)
        for tile in (shared.tiles[load] for load in ring.loads)
        for group in range(shared.groups if tile.has_group_rows else 1)
    ]
    total = sum(tile.num_bytes for tile, _ in copies)
    writer.line(f"ready = {ring.full}.index({ring.slot(event)})")
    writer.line(f"mbarrier.expect(ready, {total})")
    for load in ring.loads:
        tile = shared.tiles[load]
        writer.origin(load.loc)
        for group in range(shared.groups if tile.has_group_rows else 1):
            place = shared.place(load, ring, event, str(group))
            arguments = [tile.descriptor.name, tile.position(str(group)), "ready", place]
            arguments += ["multicast=True"] * (tile.programs > 1 and not tile.has_group_rows)
            writer.statement("tma.async_copy_global_to_shared", arguments)


def emit_next(emitter: RoleEmitter, shared: Shared) -> None:
    """Count the events of this tile, for the one after it."""
    emitter.writer.line("step += turns")
    if KEPT in shared.rings:
        emitter.writer.line("piece += 1")
