"""Sums of powers of differences to the maximum of the same elements."""

from __future__ import annotations

from collections.abc import Mapping

from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import Mask
from tilesmith.ir.ops.reduction import Reduce, ReduceKind
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Reshape
from tilesmith.ir.types import Value

POWERS = ("exp", "exp2")
Known = Mapping[Value, Operation]


def find_peak(total: Reduce, known: Known) -> Reduce | None:
    """The reduction to the maximum that a sum of powers is around; None for other sums."""
    power = known.get(unmasked(total.x, known))
    if total.kind != ReduceKind.SUM or not isinstance(power, Elementwise):
        return None
    off = known.get(power.args[0]) if power.fn in POWERS else None
    if not isinstance(off, Elementwise) or off.fn != "sub":
        return None
    peak = known.get(source(off.args[1], known))
    is_found = (
        isinstance(peak, Reduce)
        and peak.kind == ReduceKind.MAX
        and (peak.axis, peak.x.tile.shape) == (total.axis, total.x.tile.shape)
        and unmasked(peak.x, known) is unmasked(off.args[0], known)
    )
    return peak if is_found and isinstance(peak, Reduce) else None


def unmasked(value: Value, known: Known) -> Value:
    """The same with whatever is in lanes that do not exist."""
    op = known.get(value)
    return op.x if isinstance(op, Mask) else value


def source(value: Value, known: Known) -> Value:
    """What is only repeated, or given axes of one lane."""
    op = known.get(value)
    while isinstance(op, (Broadcast, ExpandDims, Reshape)):
        value = op.x
        op = known.get(value)
    return value
