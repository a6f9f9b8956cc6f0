"""Which values are only ever rounded to a half type, so that fp32's last bits cannot be seen."""

from __future__ import annotations

from tilesmith.ir.function import Function
from tilesmith.ir.ops.elementwise import Cast
from tilesmith.ir.traversal import walk_function
from tilesmith.ir.values import Value


def find_rounded_values(function: Function) -> frozenset[Value]:
    """Values whose every use is a cast to a float of 16 bits or less."""
    rounded: set[Value] = set()
    others: set[Value] = set()
    for op in walk_function(function):
        is_rounding = isinstance(op, Cast) and not op.bitcast and op.dtype.is_low_precision_float
        (rounded if is_rounding else others).update(op.operand_values())
    return frozenset(rounded - others)
