"""What a backend asks for: tiles without lanes beyond the end of a loop, a pass of its own."""

from __future__ import annotations

from dataclasses import replace

from tilesmith.compiler.lowering import Lowering, Pass, known, step
from tilesmith.passes.carried_lines.carried import carry_sums_of_lines as carry
from tilesmith.passes.settled_conditions.settled import settle_conditions as settle

SUMS_SIDE_BY_SIDE = 4
"""Accumulators of a sum: a line of as many vectors is worth reducing in every turn."""


def settle_conditions(state: Lowering) -> Lowering:
    """Positions are before the end of their loop."""
    if not known(state.backend).crops_tiles:
        return state
    return replace(state, function=settle(state.function))


def carry_sums_of_lines(state: Lowering) -> Lowering:
    """Sums instead of lines, where a line is long."""
    if not known(state.backend).crops_tiles:
        return state
    schedule = known(state.schedule)
    least = SUMS_SIDE_BY_SIDE * schedule.target.vector_lanes
    found = carry(state.function, lambda dim: schedule.physical(dim) >= least)
    return replace(state, function=found)


def prepare(state: Lowering) -> Lowering:
    """The backend's own pass."""
    own = known(state.backend).prepare
    return replace(state, function=own(state.function, known(state.schedule)))


BACKEND_STEPS: tuple[Pass, ...] = (
    step(settle_conditions, "Once rows of one are rows no more: lengths are scalars then."),
    step(carry_sums_of_lines, "Once axes of one element are gone: tiles show their lines."),
    step(
        prepare,
        "What one backend alone needs: Triton counts programs that wait for each other in memory.",
    ),
)
