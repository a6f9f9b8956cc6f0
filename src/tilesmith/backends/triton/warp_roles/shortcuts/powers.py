"""Powers of e below a maximum, as powers of two.

``e^x`` is ``2^(x log2 e)``; rounding the exponent makes that wrong by ``|x| 2^-24`` of it. Where x
is a number minus a maximum, ``e^x |x|`` is 0.37 at most: compared with the largest weight, which
is one, that is less than half of its last bit, in sums over weights too. Weights by themselves are
rounded to 16 bits or fewer, which leaves more. An exact ``exp`` takes eight instructions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import e, log2

from tilesmith.backends.triton.emission.emitter import Emitter
from tilesmith.backends.triton.emission.spelling import call, literal
from tilesmith.backends.triton.warp_roles.emitter import RoleEmitter
from tilesmith.dtypes import F32
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Mask
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.ops.shape import Broadcast, ExpandDims
from tilesmith.ir.types import Value


def guard_powers(emitter: RoleEmitter, ops: Iterable[Operation], turn: Sequence[Operation]) -> None:
    """Have exponentials of differences from a maximum computed to the base of two."""
    for op in ops:
        if not isinstance(op, Elementwise) or op.fn != "exp" or op.result.tile.dtype != F32:
            continue
        if _is_below_maximum(op, emitter) and _is_weight(op.result, turn):
            emitter.guarded[op] = _emit_power


def _is_below_maximum(op: Elementwise, emitter: RoleEmitter) -> bool:
    """Whether a maximum was taken off; of what, the caller of the kernel knows."""
    defining = emitter.uses.defining
    difference = defining.get(op.args[0])
    if not isinstance(difference, Elementwise) or difference.fn != "sub":
        return False
    peak = _spread_from(difference.args[1], defining)
    is_larger = isinstance(peak, Elementwise) and peak.fn == "maximum"
    return is_larger or (isinstance(peak, Reduce) and peak.kind == "max")


def _spread_from(value: Value, defining: Mapping[Value, Operation]) -> Operation | None:
    op = defining.get(value)
    while isinstance(op, (Broadcast, ExpandDims)):
        op = defining.get(op.x)
    return op


def _is_weight(value: Value, turn: Sequence[Operation]) -> bool:
    """Whether a power is summed up, a factor of sums, or rounded: nothing reads its last bits."""
    for user in turn:
        if value not in user.operand_values():
            continue
        is_factor = isinstance(user, Elementwise) and user.fn == "mul"
        is_sum = isinstance(user, Reduce) and user.kind == "sum"
        is_rounded = isinstance(user, Cast) and user.dtype.bits < F32.bits
        is_view = isinstance(user, (Broadcast, ExpandDims, Mask))
        if is_view and not _is_weight(user.results[0], turn):
            return False
        if not (is_factor or is_sum or is_rounded or is_view):
            return False
    return True


def _emit_power(emitter: Emitter, op: Elementwise) -> None:
    exponent = emitter.exact(op.args[0]) * literal(log2(e))
    emitter.define(op.result, call("tl.exp2", exponent, shape=op.result.tile.shape))
