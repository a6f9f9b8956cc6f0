"""The slots of the ``cpu_*`` keys."""

from __future__ import annotations

from tilesmith.ir.ops.control_flow import Grid
from tilesmith.schedule.cpu_facts import has_uneven_programs, largest_streamed_bytes
from tilesmith.schedule.facts.collect import Facts
from tilesmith.schedule.facts.outline import FunctionOutline
from tilesmith.schedule.space.fragments import (
    BooleanFragment,
    EnumFragment,
    Fragment,
    IntegerFragment,
    PowerOfTwoFragment,
)
from tilesmith.schedule.space.slots import Slot

MAX_THREADS = 1024
STREAMED_BYTES = 64 << 20
"""Outputs from here on do not stay in any cache, so stores may as well bypass them."""


def cpu_slots(structure: FunctionOutline, facts: Facts) -> dict[str, Slot]:
    """One slot for each key."""
    is_uneven = has_uneven_programs(structure)
    is_streamed = largest_streamed_bytes(structure) >= STREAMED_BYTES
    schedules = EnumFragment(("static", "dynamic"))
    unrolls = PowerOfTwoFragment(1, 8, 4)
    return {
        "cpu_threads": _slot("cpu_threads", IntegerFragment(0, MAX_THREADS), 0, False),
        "cpu_unroll": _slot("cpu_unroll", unrolls, 4, bool(facts.reductions)),
        # Smaller outputs are likely to be read from the cache by whatever comes next, which a
        # search does not see.
        "cpu_streaming_stores": _slot(
            "cpu_streaming_stores", BooleanFragment(), is_streamed, is_streamed
        ),
        "cpu_schedule": _slot(
            "cpu_schedule", schedules, "dynamic" if is_uneven else "static", bool(structure.grids)
        ),
    }


def program_order(grid: Grid, facts: Facts) -> list[int]:
    """Axes from the fastest on: a thread's programs go along memory, or stay with one matrix."""
    sides = {axis.block for fact in facts.matmuls for axis in (fact.m, fact.n)}
    fast = [i for i, block in enumerate(grid.blocks) if block and block in sides]
    slow = [i for i in range(len(grid.blocks)) if i not in fast]
    return fast + slow[::-1]


def _slot(name: str, valid: Fragment, default: object, is_searched: bool) -> Slot:
    return Slot(name, valid, valid if is_searched else EnumFragment((default,)), default)
