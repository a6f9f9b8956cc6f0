"""What a backend asks for: tiles without lanes beyond the end of a loop, a pass of its own."""

from __future__ import annotations

from collections.abc import Callable

from tilesmith.backends.interface import Backend
from tilesmith.ir.function import Function
from tilesmith.passes.carried_lines import carry_sums_of_lines as carry
from tilesmith.passes.settled_conditions import settle_conditions as settle
from tilesmith.schedule.schedule import Schedule

SUMS_SIDE_BY_SIDE = 4
"""Accumulators of a sum: a line of as many vectors is worth reducing in every turn."""
BackendStep = Callable[[Function, Backend, Schedule], Function]


def settle_conditions(function: Function, backend: Backend, schedule: Schedule) -> Function:
    """Positions are before the end of their loop."""
    return settle(function) if backend.crops_tiles else function


def carry_sums_of_lines(function: Function, backend: Backend, schedule: Schedule) -> Function:
    """Sums instead of lines, where a line is long."""
    if not backend.crops_tiles:
        return function
    least = SUMS_SIDE_BY_SIDE * schedule.target.vector_lanes
    return carry(function, lambda dim: schedule.physical(dim) >= least)


def prepare(function: Function, backend: Backend, schedule: Schedule) -> Function:
    """The backend's own pass."""
    return backend.prepare(function, schedule)


BACKEND_STEPS: tuple[tuple[BackendStep, str], ...] = (
    (settle_conditions, "Once rows of one are rows no more: lengths are scalars then."),
    (carry_sums_of_lines, "Once axes of one element are gone: tiles show their lines."),
    (
        prepare,
        "What one backend alone needs: Triton counts programs that wait for each other in memory.",
    ),
)
