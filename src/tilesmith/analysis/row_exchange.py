"""Sums around another reduction of a row, which programs that share the row compute of parts.

A sum that needs another reduction of the row first (a variance its mean, a softmax its maximum) can
do with that of a part: such sums are put together afterwards, with what the parts' anchors are off
from that of the row.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tilesmith.analysis.affine import Definitions
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import Full, Mask
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Reshape
from tilesmith.ir.types import Value

_POWERS = ("exp", "exp2")


class SumForm(Enum):
    """How a sum hangs on its anchor."""

    SQUARES = "squares"
    """``sum((x - mean)**2)``"""
    POWERS = "powers"
    """``sum(exp(x - maximum))``"""


@dataclass(frozen=True, eq=False)
class DerivedReduction:
    """A sum over the rows of ``x`` around what ``base``, another reduction of them, gave."""

    rule: SumForm
    op: Reduce
    base: Reduce
    x: Value
    anchor: Value
    """The mean or the maximum, one for each row, maybe with an axis of length 1."""
    fn: str
    """Of powers, ``exp`` or ``exp2``."""


def find_derived(op: Reduce, defined_by: Definitions, length: int) -> DerivedReduction | None:
    """What a sum over rows of that length is derived from, if it is one of those known."""
    summand = defined_by.get(_unmasked(op.x, defined_by))
    if op.kind != "sum" or not isinstance(summand, Elementwise):
        return None
    is_square = summand.fn == "mul" and summand.args[0] is summand.args[1]
    difference = defined_by.get(summand.args[0])
    if not isinstance(difference, Elementwise) or difference.fn != "sub":
        return None
    x, spread = difference.args[0], defined_by.get(difference.args[1])
    if not isinstance(spread, Broadcast) or not (is_square or summand.fn in _POWERS):
        return None
    anchor = spread.x
    rule, kind, fn = (
        (SumForm.SQUARES, "sum", "") if is_square else (SumForm.POWERS, "max", summand.fn)
    )
    # Where a maximum is infinite, torch.logsumexp takes 0 instead.
    found = _divided_by(anchor, length, defined_by) if is_square else _finite(anchor, defined_by)
    base = None if found is None else defined_by.get(_reshaped(found, defined_by))
    if not isinstance(base, Reduce) or base.kind != kind or base.axis != op.axis:
        return None
    is_same = _unmasked(base.x, defined_by) is _unmasked(x, defined_by)
    return DerivedReduction(rule, op, base, x, anchor, fn) if is_same else None


def _divided_by(value: Value, count: int, defined_by: Definitions) -> Value | None:
    """Of ``x / count`` the x."""
    op = defined_by.get(_reshaped(value, defined_by))
    if not isinstance(op, Elementwise) or op.fn != "div":
        return None
    divisor = defined_by.get(_reshaped(op.args[1], defined_by))
    return op.args[0] if isinstance(divisor, Full) and divisor.value == count else None


def _finite(value: Value, defined_by: Definitions) -> Value:
    """Of ``where(isinf(x), 0, x)`` the x."""
    op = defined_by.get(value)
    if not isinstance(op, Elementwise) or op.fn != "where":
        return value
    test, zero = (defined_by.get(arg) for arg in op.args[:2])
    is_test = isinstance(test, Elementwise) and test.fn == "isinf" and test.args[0] is op.args[2]
    is_zero = isinstance(zero, Full) and zero.value == 0
    return op.args[2] if is_test and is_zero else value


def _unmasked(value: Value, defined_by: Definitions) -> Value:
    op = defined_by.get(value)
    return op.x if isinstance(op, Mask) else value


def _reshaped(value: Value, defined_by: Definitions) -> Value:
    """What a value of each row was before it got, or lost, an axis of length 1."""
    op = defined_by.get(value)
    while isinstance(op, (ExpandDims, Reshape)):
        value = op.x
        op = defined_by.get(value)
    return value
