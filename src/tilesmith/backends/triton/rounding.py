"""Where a rounding more or less can be seen: half types, and fp32 that becomes half at once."""

from __future__ import annotations

from tilesmith.dtypes import F32
from tilesmith.ir.function import Function
from tilesmith.ir.ops.elementwise import Cast, Elementwise
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


def rounds_visibly(function: Function) -> bool:
    """Whether fusing a multiply with an add would be seen: it rounds once where eager does twice.

    In fp32 the difference is the last bit and every GPU compiler takes it; in half types it is a
    visible part of the result, and fp64 is asked for by those who compare bits.
    """
    return any(
        isinstance(op, Elementwise)
        and op.fn in ("add", "sub", "mul")
        and op.result.tile.dtype.is_float
        and op.result.tile.dtype != F32
        for op in walk_function(function)
    )
