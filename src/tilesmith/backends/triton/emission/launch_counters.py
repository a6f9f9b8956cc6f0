"""Numbers in memory that all programs of a launch change: zero at each launch.

One counts programs at barriers between grids, a parameter of the device function beyond those of
the kernel. One numbers programs in the order in which they start: the last element of what they are
counted in where they wait for others of their grid, since a launch takes time to clear each tensor.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilesmith.dtypes import I32
from tilesmith.ir.function import Function, Parameter
from tilesmith.ir.ops.control_flow import Grid, GridBarrier, GroupBarrier
from tilesmith.ir.types import TensorType, Value


@dataclass(frozen=True)
class LaunchCounters:
    """What a function has of them; None for those it does not need."""

    arrivals: Value | None = None
    tickets: Value | None = None
    """The tensor whose last element is drawn from."""


def has_barriers(function: Function) -> bool:
    """Whether all programs wait for each other."""
    return any(isinstance(op, GridBarrier) for op in function.body.ops)


def find_tickets(function: Function) -> Value | None:
    """What programs of a grid are counted in, if they wait for others of it."""
    grids = (op for op in function.body.ops if isinstance(op, Grid))
    inside = (op for grid in grids for op in grid.body.ops)
    return next((op.counts for op in inside if isinstance(op, GroupBarrier)), None)


def find_counters(function: Function) -> LaunchCounters:
    """The counters of a function after ``add_counters``, which adds its parameter last."""
    arrivals = function.parameters[-1].value if has_barriers(function) else None
    return LaunchCounters(arrivals, find_tickets(function))


def add_counters(function: Function) -> Function:
    """The function with a parameter for the counter of its barriers; unchanged if it has none."""
    if not has_barriers(function):
        return function
    name = "barrier_counter"
    while any(parameter.value.name == name for parameter in function.parameters):
        name += "_"
    counter = Value(TensorType(I32, (1,), (1,), alias=-1), name)
    first = next(p for p in function.parameters if isinstance(p.value.type, TensorType))
    source = f"torch.zeros(1, dtype=torch.int32, device={first.source}.device)"
    parameters = (*function.parameters, Parameter(counter, source))
    return replace(function, parameters=parameters)
