"""Takes positive factors out of maxima: ``max(x * c)`` is ``max(x) * c``, bit for bit.

Rounding keeps order, so the largest product is the product of the largest. What is left of the
factor in a softmax, ``exp2(x * c - peak)``, is one fused instruction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf, isfinite

from tilesmith.dtypes import F32
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import Full, Mask
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.traversal import Definitions, apply_rules
from tilesmith.ir.types import Value


def take_factors_out_of_maxima(function: Function) -> Function:
    """Maxima of scaled tiles as scaled maxima.

    Before::

        %y = elementwise(%x, %c) {fn="mul"} : f32[m, n]
        %z = mask(%y) {fill=-inf, axes=[1]} : f32[m, n]
        %peak = reduce(%z) {axis=1, kind="max"} : f32[m]

    After::

        %z = mask(%x) {fill=-inf, axes=[1]} : f32[m, n]
        %largest = reduce(%z) {axis=1, kind="max"} : f32[m]
        %peak = elementwise(%largest, %c) {fn="mul"} : f32[m]
    """
    return apply_rules(function, [_take_out])


def _take_out(op: Operation, defined: Definitions) -> Sequence[Operation] | None:
    if not isinstance(op, Reduce) or op.kind != "max" or op.x.tile.dtype != F32:
        return None
    selections: list[Mask | Elementwise] = []
    source = defined(op.x)
    while isinstance(source, (Mask, Elementwise)) and _drops_lanes(source, defined):
        selections.append(source)
        source = defined(source.x if isinstance(source, Mask) else source.args[1])
    if not isinstance(source, Elementwise) or source.fn != "mul":
        return None
    x, factor = source.args
    constant = defined(factor)
    if not isinstance(constant, Full) or constant.value <= 0 or not isfinite(constant.value):
        return None
    ops: list[Operation] = []
    for selection in reversed(selections):
        ops.append(_of_other(selection, x))
        x = ops[-1].results[0]
    largest = replace(op, x=x, results=(op.result.like(),))
    scale = replace(constant, results=(constant.result.like(op.result.type),))
    scaled = replace(source, args=(largest.result, scale.result), results=(op.result,), loc=op.loc)
    return [*ops, largest, scale, scaled]


def _drops_lanes(op: Mask | Elementwise, defined: Definitions) -> bool:
    """Whether an op keeps some lanes and gives the others no say in a maximum."""
    if isinstance(op, Mask):
        return op.fill == -inf
    other = defined(op.args[2]) if op.fn == "where" else None
    return isinstance(other, Full) and other.value == -inf


def _of_other(op: Mask | Elementwise, x: Value) -> Operation:
    results = (op.results[0].like(),)
    if isinstance(op, Mask):
        return replace(op, x=x, results=results)
    return replace(op, args=(op.args[0], x, op.args[2]), results=results)
