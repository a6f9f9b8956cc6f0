"""Loops whose bounds are computed from block sizes: as many turns as a sum has parts.

The last program of a tile walks ``range(last // size + 1)``: how long that is, only a Config says.
Bounds that are loaded, and runtime sizes, stay unknown here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilesmith.ir.ops.elementwise import PYTHON_FUNCTIONS, Cast, Elementwise
from tilesmith.ir.ops.indexing import BlockSize
from tilesmith.ir.types import Value
from tilesmith.schedule.facts.outline import FunctionOutline, LoopAxis

_FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    **{name: PYTHON_FUNCTIONS[name] for name in ("add", "sub", "mul")},
    "floordiv": lambda left, right: left // right if right else 0,
    "minimum": min,
    "maximum": max,
}


def length_under(
    outline: FunctionOutline, axis: LoopAxis, symbols: Mapping[str, int]
) -> int | None:
    """How far an axis ranges with blocks of these sizes; None where data or launches decide."""
    bounds = (axis.loop.begins[axis.position], axis.loop.ends[axis.position])
    first, last = (_scalar(outline, bound, symbols) for bound in bounds)
    return None if first is None or last is None else max(0, last - first)


def _scalar(outline: FunctionOutline, value: Value, symbols: Mapping[str, int]) -> int | None:
    op, constant = outline.definitions.get(value), outline.find_constant(value)
    if constant is not None:
        return constant
    if isinstance(op, BlockSize):
        return symbols.get(op.block)
    if isinstance(op, Cast):
        return _scalar(outline, op.x, symbols)
    function = _FUNCTIONS.get(op.fn) if isinstance(op, Elementwise) else None
    if function is None or op is None:
        return None
    left, right = (_scalar(outline, arg, symbols) for arg in op.operand_values())
    return None if left is None or right is None else function(left, right)
