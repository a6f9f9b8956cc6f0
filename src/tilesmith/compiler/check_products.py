"""Remarks on sums over k that lose precision: a product rounded to a half type, then added.

``acc += a @ b`` becomes one accumulating dot and loses nothing; what stands between the product
and the sum, such as a scale, keeps the rounding of the product as torch has it.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilesmith.diagnostics.kernel_warnings import TiledKMatmulAccumulationWarning, WarningLog
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Loop
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.traversal import definitions, walk_function
from tilesmith.ir.values import Value

Definitions = Mapping[Value, Operation]


def check_products(function: Function, log: WarningLog) -> None:
    """Warn of loops that add products of half type to a carried value."""
    defined_by = definitions(function.body)
    for loop in walk_function(function):
        if isinstance(loop, Loop):
            for carried, yielded in zip(loop.carried, loop.body.yielded):
                _check_sum(carried, yielded, defined_by, log)


def _check_sum(carried: Value, yielded: Value, defined_by: Definitions, log: WarningLog) -> None:
    op = _behind_casts(yielded, defined_by)
    if not isinstance(op, Elementwise) or op.fn != "add":
        return
    sources = [_source(arg, defined_by) for arg in op.args]
    if carried not in sources:
        return
    added = op.args[1 - sources.index(carried)]
    if _has_rounded_product(added, defined_by):
        log.warn(TiledKMatmulAccumulationWarning, loc=op.loc, name=carried.name or "accumulator")


def _behind_casts(value: Value, defined_by: Definitions) -> Operation | None:
    op = defined_by.get(value)
    while isinstance(op, Cast):
        op = defined_by.get(op.x)
    return op


def _source(value: Value, defined_by: Definitions) -> Value:
    op = defined_by.get(value)
    return _source(op.x, defined_by) if isinstance(op, Cast) else value


def _has_rounded_product(value: Value, defined_by: Definitions) -> bool:
    """Whether a product is rounded to the half type of its operands on the way to ``value``."""
    op = defined_by.get(value)
    if isinstance(op, Cast) and not op.bitcast:
        dot = defined_by.get(op.x)
        if isinstance(dot, Dot) and op.dtype.is_low_precision_float:
            return op.dtype in (dot.lhs.tile.dtype, dot.rhs.tile.dtype)
    if op is None or not op.form.is_lane_wise:
        return False
    return any(_has_rounded_product(operand, defined_by) for operand in op.operand_values())
