"""Carried values that a loop only adds to: their cotangents are the same in every turn."""

from __future__ import annotations

from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Loop
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.traversal import count_uses
from tilesmith.ir.types import Value


def is_only_added_to(op: Loop, place: int) -> bool:
    """Whether a turn adds to a carried value and uses it for nothing else."""
    uses = count_uses(op.body)
    value, target = op.carried[place], op.body.yielded[place]
    while value is not target:
        user = _only_user(op.body, value) if uses.get(value) == 1 else None
        following = None if user is None else _sum_with(user, value)
        if following is None:
            return False
        value = following
    # One more use than the yield would see the running sum.
    return uses.get(target, 0) == 1


def _only_user(region: Region, value: Value) -> Operation | None:
    return next((op for op in region.ops if value in op.operand_values()), None)


def _sum_with(op: Operation, value: Value) -> Value | None:
    """The result of an op that only adds something to a value."""
    if isinstance(op, Elementwise) and op.fn in ("add", "sub"):
        return op.result if op.fn == "add" or op.args[0] is value else None
    if isinstance(op, Cast):
        return op.result if op.dtype.is_float and not op.bitcast else None
    if isinstance(op, Dot):
        return op.result if op.acc is value and value not in (op.lhs, op.rhs) else None
    if isinstance(op, Loop) and value in op.init:
        place = op.init.index(value)
        return op.results[place] if is_only_added_to(op, place) else None
    return None
