"""The first turns of a program of one tile: their copies are started before roles begin.

Warps need some hundred cycles to take their roles: the one that loads is told where to begin, all
change their number of registers. Slots are free then, so the first copies need to wait for nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from tilesmith.backends.triton.emission.axes import start_name
from tilesmith.backends.triton.warp_roles.copies import Shared
from tilesmith.backends.triton.warp_roles.emitter import RoleEmitter
from tilesmith.backends.triton.warp_roles.listed.turns import emit_start
from tilesmith.backends.triton.warp_roles.loading import emit_copy, entering, is_scalar
from tilesmith.backends.triton.warp_roles.plan import RolePlan
from tilesmith.backends.triton.warp_roles.protocol import LATE
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.ops.memory import Load
from tilesmith.schedule.config import is_persistent

MOST_TURNS = 2
"""Roles begin once all first copies are started. bf16 1536^3 on an H200, us: none 17.2, two turns
16.7, five 16.9; 1536x2048x1440 19.7, 19.4 with two; 1440x2048x1536 20.0, 19.6."""


def count_first(emitter: RoleEmitter, plan: RolePlan) -> int:
    """Turns whose copies are started so: of sums of known length."""
    is_alone = not plan.early and not plan.kept and plan.branch is None and plan.listing is None
    has_others = any(isinstance(op, Load) for op in plan.between)
    if (
        not is_alone
        or has_others
        or is_persistent(emitter.schedule.pid_type)
        or emitter.programs > 1
    ):
        return 0
    return min(MOST_TURNS, emitter.schedule.num_stages, known_turns(emitter, plan))


def known_turns(emitter: RoleEmitter, plan: RolePlan) -> int:
    """Turns of every tile; 0 where the number is not known."""
    loop = plan.loop
    begin, end = (emitter.uses.defining.get(value) for value in (loop.begins[0], loop.ends[0]))
    if not isinstance(begin, Full) or not isinstance(end, Full):
        return 0
    return max(0, -(-int(end.value - begin.value) // emitter.schedule.symbols[loop.blocks[0]]))


def emit_first(
    emitter: RoleEmitter, shared: Shared, role: Callable[[RoleEmitter, Callable[[], None]], str]
) -> str:
    """Text of copies into slots that are free; ``role`` writes what it takes to know a tile."""
    plan = shared.plan
    loop, count = plan.loop, count_first(emitter, plan)

    def emit_tile() -> None:
        emitter.bind(loop.body.args[0], start_name(loop.blocks[0], loop.body.args[0]))
        header = f"for turn in gl.static_range({count})"
        with entering(emitter, plan, is_scalar), emitter.writer.block(header):
            emit_start(emitter, plan, "turn")
            emit_copy(emitter, shared, shared.rings[LATE], "turn")

    return role(emitter, emit_tile) if count else ""
