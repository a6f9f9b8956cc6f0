"""Loops that end before they begin, and scans along one element.

Triton counts the turns of a loop that it unrolls without signs (3.6, 3.7.1): ``range(90, 27, 32)``
would have 134 million, of which the last few, with indices below 0, are run. A scan along an axis
of one element fails an assertion of its compiler (3.6), which ends the process.
"""

from __future__ import annotations

from tilesmith.backends.triton.emission.emitter import Emitter
from tilesmith.backends.triton.emission.spelling import Expr, call
from tilesmith.ir.ops.control_flow import Loop
from tilesmith.ir.ops.reduction import Scan, ScanWith
from tilesmith.schedule.schedule import LoopOptions


def reached_end(emitter: Emitter, op: Loop, axis: int, options: LoopOptions) -> Expr:
    """Where a loop ends: not before it begins where it is unrolled."""
    begin, end = emitter.expr(op.begins[axis]), emitter.expr(op.ends[axis])
    if options.unroll_factor <= 1 or options.is_static:
        return end
    first, last = begin.constant, end.constant
    if first == 0 and emitter.signs.is_non_negative(op.ends[axis]):
        return end
    is_in_order = first is not None and last is not None and first <= last
    return end if is_in_order else call("max", begin, end)


def is_alone(emitter: Emitter, op: Scan | ScanWith) -> bool:
    """Whether a scan has one element to combine: itself."""
    x = op.x if isinstance(op, Scan) else op.xs[0]
    return emitter.schedule.physical(x.tile.shape[op.axis]) == 1
