"""Barriers for all programs of a launch: each raises a counter in memory and waits for the others.

The counter is one more parameter of the device function, zero at each launch. All programs must be
resident, or those that wait would keep the others from starting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilesmith.backends.triton.emit import Emitter
from tilesmith.backends.triton.expressions import call, literal, multiply
from tilesmith.dtypes import I32
from tilesmith.ir.function import Function, Parameter
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import GridBarrier
from tilesmith.ir.types import TensorType
from tilesmith.ir.values import Value

COOPERATIVE = "launch_cooperative_grid"
"""The launch option that makes the driver refuse a grid that cannot be resident as a whole."""
_ZERO = "torch.zeros(1, dtype=torch.int32, device="
_WAIT = "_wait_for_all"


def has_barriers(function: Function) -> bool:
    """Whether programs wait for each other."""
    return any(isinstance(op, GridBarrier) for op in function.body.ops)


def with_counter(function: Function) -> Function:
    """The function with the parameter that its barriers count in; unchanged without barriers."""
    if not has_barriers(function):
        return function
    names = {parameter.value.name for parameter in function.parameters}
    name = "barrier_counter"
    while name in names:
        name += "_"
    first = next(p for p in function.parameters if isinstance(p.value.type, TensorType))
    counter = Value(TensorType(I32, (1,), (1,), alias=-1), name)
    made = Parameter(counter, f"{_ZERO}{first.source}.device)")
    return replace(function, parameters=(*function.parameters, made))


def split_at_barriers(ops: Sequence[Operation]) -> list[list[Operation]]:
    """The ops between barriers; each list but the first begins with its barrier."""
    phases: list[list[Operation]] = [[]]
    for op in ops:
        if isinstance(op, GridBarrier):
            phases.append([])
        phases[-1].append(op)
    return phases


def emit_grid_barrier(emitter: Emitter, op: GridBarrier) -> None:
    """Wait until every program has come to this barrier."""
    barriers = [op for op in emitter.function.body.ops if isinstance(op, GridBarrier)]
    counter = next(p.value for p in emitter.function.parameters if p.source.startswith(_ZERO))
    # The counter is never set back: at barrier n each program has counted n times.
    arrivals = multiply(call("tl.num_programs", 0), literal(barriers.index(op) + 1))
    emitter.spelling.needs.helpers[_WAIT] = None
    emitter.writer.line(str(call(_WAIT, emitter.expr(counter), arrivals)))
