"""Where a rounding, or an error of a few units in the last place of fp32, can be seen.

A correctly rounded quotient on an NVIDIA GPU branches for every number: there are cases that its
few instructions get wrong, and these are computed elsewhere. An approximate one does not branch and
is off by 2 ulp. Numbers of 16 bits have 13 bits less, so where a quotient is only multiplied,
divided, chosen and then rounded to such a type, its error is one in 2,000 of what rounding adds.
"""

from __future__ import annotations

from tilesmith.dtypes import F32
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Mask
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape
from tilesmith.ir.traversal import walk_function
from tilesmith.ir.types import Value

_SCALING = ("mul", "div", "neg", "abs")
"""Functions that leave relative errors as they are, or add them up."""
_VIEWS = (Mask, Broadcast, ExpandDims, Permute, Reshape)


def find_rounded_values(function: Function) -> frozenset[Value]:
    """Values of which nothing is seen but after a cast to a float of 16 bits or less."""
    rounded: set[Value] = set()
    others: set[Value] = set()
    # All that reads a result comes after it.
    for op in reversed(list(walk_function(function))):
        is_rounding = isinstance(op, Cast) and not op.bitcast and op.dtype.is_low_precision_float
        is_passed = bool(op.results) and rounded.issuperset(op.results)
        passed = set(op.operand_values()) if is_rounding else find_passed(op) if is_passed else ()
        seen = set(op.operand_values()).difference(passed)
        rounded.difference_update(seen)
        others.update(seen)
        rounded.update(value for value in passed if value not in others)
    return frozenset(rounded)


def find_passed(op: Operation) -> set[Value]:
    """The operands whose relative errors become the result's."""
    if isinstance(op, Elementwise) and op.fn == "where":
        return set(op.args[1:]) - {op.args[0]}
    is_scaling = isinstance(op, Elementwise) and op.fn in _SCALING
    return set(op.operand_values()) if is_scaling or isinstance(op, _VIEWS) else set()


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
