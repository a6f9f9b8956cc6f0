"""Where numbers below the normal ones of fp32 count.

Triton links NVIDIA's functions so that they take such numbers for zero, as torch's do not: the
ceiling of 1e-45 becomes 0, its reciprocal root infinite, a remainder by it NaN. They have as many
instructions either way, but powers of two (``exp2``, of which attention is made) have more.
"""

from __future__ import annotations

from tilesmith.dtypes import BF16, F32
from tilesmith.ir.function import Function
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.traversal import walk_function
from tilesmith.schedule.schedule import Schedule

_WRONG = {"floor", "ceil", "rsqrt", "mod", "fmod", "floordiv", "truncdiv", "pow", "atan2"}
"""Functions whose results are far off where an operand is taken for zero."""
_SMALL = {
    *("sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh"),
    *("erf", "erfc", "expm1", "log1p"),
}
"""Functions whose results are zero then, and would be as small as the operand."""
_SLOWER = {"exp2"}


def subnormal_options(function: Function, schedule: Schedule) -> dict[str, bool]:
    """How Triton is told to keep such numbers in a kernel whose results show it."""
    if schedule.target.kind != "cuda" or schedule.backend_options.get("fast_math"):
        return {}
    used = {
        op.fn
        for op in walk_function(function)
        if isinstance(op, Elementwise) and op.args[-1].tile.dtype in (F32, BF16)
    }
    keeps = used & _WRONG or (used & _SMALL and not used & _SLOWER)
    return {"enable_reflect_ftz": False} if keeps else {}
