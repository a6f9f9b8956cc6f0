"""Barriers for programs of a launch: each raises a counter in memory and waits for the others.

At a barrier between grids all programs wait for all, so all must be resident, or those that wait
would keep the others from starting. At a barrier inside a grid programs wait for those of their
group only. They are numbered in the order in which they start: where members of a group have
neighbouring numbers, those who wait keep no earlier group from being complete.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.backends.triton.accesses import offset
from tilesmith.backends.triton.emit import Emitter
from tilesmith.backends.triton.expressions import Expr, binary, call, literal, multiply
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import GridBarrier, GroupBarrier

COOPERATIVE = "launch_cooperative_grid"
"""The launch option that makes the driver refuse a grid that cannot be resident as a whole."""
_WAIT = "_wait_for_arrivals"


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
    counter = emitter.counters.arrivals
    assert counter is not None
    # The counter is never set back: at barrier n each program has counted n times.
    arrivals = multiply(call("tl.num_programs", 0), literal(barriers.index(op) + 1))
    _emit_wait(emitter, emitter.expr(counter), arrivals)


def emit_group_barrier(emitter: Emitter, op: GroupBarrier) -> None:
    """Wait until as many programs as the op says have come to its place."""
    counter, place = emitter.expr(op.counts), offset(emitter, op.counts, (op.place,))
    if place.constant != 0:
        counter = binary("+", counter, place)
    _emit_wait(emitter, counter, emitter.expr(op.arrivals))


def _emit_wait(emitter: Emitter, counter: Expr, arrivals: Expr) -> None:
    emitter.spelling.needs.helpers[_WAIT] = None
    wait = call(_WAIT, counter, arrivals)
    emitter.writer.statement(wait.text, wait.arguments)


def first_number(emitter: Emitter) -> Expr:
    """The number of a program along the first launch axis.

    Where programs wait for others of their grid, it is a ticket: the hardware may start programs
    in any order, and one that has drawn a number has started after all with a lower one.
    """
    tickets = emitter.counters.tickets
    if tickets is None:
        return call("tl.program_id", 0)
    (size,) = tickets.tensor.shape
    assert isinstance(size, int)
    last = binary("+", emitter.expr(tickets), literal(size - 1))
    return call("tl.atomic_add", last, 1, 'sem="relaxed"', 'scope="gpu"')
