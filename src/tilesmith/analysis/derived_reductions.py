"""Sums over a row that need another reduction of it first, and can do with one of a part of it.

The variance of a row is summed around its mean, a softmax's powers under its maximum. For a part of
the row its own mean or maximum does as well: such sums are put together afterwards, with what the
parts' anchors are off from that of the row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import Full, Mask
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Reshape
from tilesmith.ir.values import Value

_POWERS = ("exp", "exp2")


class Rule(Enum):
    """How a sum hangs on its anchor."""

    SQUARES = "squares"
    """``sum((x - mean)**2)``"""
    POWERS = "powers"
    """``sum(exp(x - maximum))``"""


@dataclass(frozen=True, eq=False)
class DerivedReduction:
    """A sum over the rows of ``x`` around what ``base``, another reduction of them, gave."""

    rule: Rule
    op: Reduce
    base: Reduce
    x: Value
    anchor: Value
    """The mean or the maximum, one for each row, maybe with an axis of length 1."""
    fn: str
    """Of powers, ``exp`` or ``exp2``."""


def find_derived(
    op: Reduce, defined_by: Mapping[Value, Operation], length: int
) -> DerivedReduction | None:
    """What a sum over rows of that length is derived from, if it is one of those known."""
    if op.kind != "sum":
        return None
    summand = defined_by.get(_unmasked(op.x, defined_by))
    if not isinstance(summand, Elementwise):
        return None
    if summand.fn in _POWERS:
        return _find_powers(op, summand, defined_by)
    if summand.fn == "mul" and summand.args[0] is summand.args[1]:
        return _find_squares(op, summand, defined_by, length)
    return None


def _find_powers(
    op: Reduce, summand: Elementwise, defined_by: Mapping[Value, Operation]
) -> DerivedReduction | None:
    parts = _find_difference(summand.args[0], defined_by)
    if parts is None:
        return None
    x, anchor = parts
    # Where a maximum is infinite, torch.logsumexp takes 0 instead.
    maximum = _finite_of(anchor, defined_by) or anchor
    base = defined_by.get(_reshaped(maximum, defined_by))
    if not _reduces(base, "max", x, op.axis, defined_by):
        return None
    assert isinstance(base, Reduce)
    return DerivedReduction(Rule.POWERS, op, base, x, anchor, summand.fn)


def _find_squares(
    op: Reduce, summand: Elementwise, defined_by: Mapping[Value, Operation], length: int
) -> DerivedReduction | None:
    parts = _find_difference(summand.args[0], defined_by)
    if parts is None:
        return None
    x, anchor = parts
    quotient = defined_by.get(_reshaped(anchor, defined_by))
    if not isinstance(quotient, Elementwise) or quotient.fn != "div":
        return None
    total, count = (defined_by.get(_reshaped(value, defined_by)) for value in quotient.args)
    if not isinstance(count, Full) or count.value != length:
        return None
    if not _reduces(total, "sum", x, op.axis, defined_by):
        return None
    assert isinstance(total, Reduce)
    return DerivedReduction(Rule.SQUARES, op, total, x, anchor, "")


def _find_difference(
    value: Value, defined_by: Mapping[Value, Operation]
) -> tuple[Value, Value] | None:
    """Of ``x - anchor`` the two, the anchor before it is spread over columns."""
    op = defined_by.get(value)
    if not isinstance(op, Elementwise) or op.fn != "sub":
        return None
    spread = defined_by.get(op.args[1])
    return (op.args[0], spread.x) if isinstance(spread, Broadcast) else None


def _finite_of(value: Value, defined_by: Mapping[Value, Operation]) -> Value | None:
    """Of ``where(isinf(x), 0, x)`` the x."""
    op = defined_by.get(value)
    if not isinstance(op, Elementwise) or op.fn != "where":
        return None
    test, zero = (defined_by.get(arg) for arg in op.args[:2])
    is_test = isinstance(test, Elementwise) and test.fn == "isinf" and test.args[0] is op.args[2]
    is_zero = isinstance(zero, Full) and zero.value == 0
    return op.args[2] if is_test and is_zero else None


def _reduces(
    op: Operation | None, kind: str, x: Value, axis: int, defined_by: Mapping[Value, Operation]
) -> bool:
    if not isinstance(op, Reduce) or op.kind != kind or op.axis != axis:
        return False
    return _unmasked(op.x, defined_by) is _unmasked(x, defined_by)


def _unmasked(value: Value, defined_by: Mapping[Value, Operation]) -> Value:
    op = defined_by.get(value)
    return op.x if isinstance(op, Mask) else value


def _reshaped(value: Value, defined_by: Mapping[Value, Operation]) -> Value:
    """What a value of each row was before it got, or lost, an axis of length 1."""
    op = defined_by.get(value)
    while isinstance(op, (ExpandDims, Reshape)):
        value = op.x
        op = defined_by.get(value)
    return value
