"""How large numbers can be, as far as the ops that make them tell. NaN is not counted.

Weights of attention are powers of at most 0: rounding them to eight bits needs no care, which
saves two instructions for each in the innermost loop.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from tilesmith.dtypes import F8E4M3
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Full, Mask
from tilesmith.ir.ops.reduction import Reduce, ReduceKind
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape
from tilesmith.ir.types import Value

Known = Mapping[Value, Operation]
Range = tuple[float, float]
ANY: Range = (-math.inf, math.inf)
_VIEWS = (Broadcast, ExpandDims, Permute, Reshape)
_FIXED: dict[str, Range] = {
    **dict.fromkeys(("sin", "cos", "tanh", "erf"), (-1.0, 1.0)),
    "sigmoid": (0.0, 1.0),
}
_MOST_EXPONENT = 80.0
_MOST_STEPS = 12
"""Longer chains of ops are not followed."""


def largest_size(value: Value, known: Known) -> float:
    """No element is further from 0, NaN aside; infinity where nothing is known."""
    low, high = _range(value, known, _MOST_STEPS)
    return max(abs(low), abs(high))


def _range(value: Value, known: Known, steps: int) -> Range:
    op, dtype = known.get(value), value.tile.dtype
    if isinstance(op, Full):
        return (float(op.value), float(op.value))
    if not dtype.is_float:
        return (float(dtype.lowest), float(dtype.highest))
    if dtype == F8E4M3:
        return (-448.0, 448.0)
    if not steps or op is None:
        return ANY
    if isinstance(op, _VIEWS):
        return _range(op.x, known, steps - 1)
    if isinstance(op, Mask):
        low, high = _range(op.x, known, steps - 1)
        return (min(low, float(op.fill)), max(high, float(op.fill)))
    if isinstance(op, Cast) and not op.bitcast:
        # Rounding may step past a bound, by less than a half of it.
        low, high = _range(op.x, known, steps - 1)
        return (1.5 * low, 1.5 * high) if op.x.tile.dtype.is_float else (low, high)
    return _of_function(op, known, steps) if isinstance(op, Elementwise) else ANY


def _of_function(op: Elementwise, known: Known, steps: int) -> Range:
    if op.fn in _FIXED:
        return _FIXED[op.fn]
    if op.fn == "sub" and is_at_least(op.args[1], op.args[0], known):
        return (-math.inf, 0.0)
    chosen = op.args[1:] if op.fn == "where" else op.args
    ranges = [_range(arg, known, steps - 1) for arg in chosen]
    lows, highs = [low for low, _ in ranges], [high for _, high in ranges]
    if op.fn in ("exp", "exp2"):
        high = max(highs[0], 0.0)
        return (0.0, 1.01 * math.exp(high) if high < _MOST_EXPONENT else math.inf)
    if op.fn == "mul":
        ends = [left * right for left in ranges[0] for right in ranges[1]]
        # Rounding may step past a bound; where zero meets infinity, nothing is known.
        return ANY if any(map(math.isnan, ends)) else (1.01 * min(ends), 1.01 * max(ends))
    if op.fn in ("where", "minimum", "maximum"):
        low, high = (max if op.fn == "maximum" else min), (min if op.fn == "minimum" else max)
        return (low(lows), high(highs))
    if op.fn == "abs":
        return (0.0, max(-lows[0], highs[0]))
    return (-highs[0], -lows[0]) if op.fn == "neg" else ANY


def is_at_least(bound: Value, value: Value, known: Known, axis: int | None = None) -> bool:
    """Whether a tile is the maximum of another along an axis (put back as ``axis``), or more."""
    op = known.get(bound)
    if isinstance(op, Broadcast):
        return is_at_least(op.x, value, known, axis)
    if isinstance(op, ExpandDims) and axis is None and len(op.axes) == 1:
        return is_at_least(op.x, value, known, op.axes[0])
    if isinstance(op, Elementwise) and op.fn == "maximum":
        return any(is_at_least(arg, value, known, axis) for arg in op.args)
    if isinstance(op, Elementwise) and op.fn == "mul":
        # A factor may have been taken out of the maximum.
        bound, factor = _factored(bound, known)
        value, other = _factored(value, known)
        return factor == other and factor > 0 and is_at_least(bound, value, known, axis)
    if isinstance(op, Reduce) and op.reduction is ReduceKind.MAX:
        is_same = _without_masks(op.x, known) is _without_masks(value, known)
        return is_same and axis == op.axis
    return False


def _factored(value: Value, known: Known) -> tuple[Value, float]:
    """A value and the constant that it is multiplied with; NaN if there is none."""
    op = known.get(_without_masks(value, known))
    if isinstance(op, Elementwise) and op.fn == "mul":
        for part, factor in (op.args, op.args[::-1]):
            low, high = _range(factor, known, _MOST_STEPS)
            if low == high:
                return part, low
    return value, math.nan


def _without_masks(value: Value, known: Known) -> Value:
    op = known.get(value)
    return _without_masks(op.x, known) if isinstance(op, Mask) else value
