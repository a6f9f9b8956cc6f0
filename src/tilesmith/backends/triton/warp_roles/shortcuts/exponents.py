"""Exponentials of scores, and hyperbolic tangents that they are taken of, in few instructions.

Tangents have no branches; for exponents they are made of an exponential and a reciprocal.

Scores that are bent are factors, sums and maxima away from an exponential: what counts there is
the size of an error, not its share of a number near zero. ``1 - 2 / (1 + e^2x)`` is off by 2^-20
at most, with exponentials and reciprocals as the device has them. That is no more than 16 units in
the last place of a tangent near one; close to zero all digits may be wrong.

Powers of e below a maximum are powers of two. Rounding the exponent makes ``2^(x log2 e)`` wrong
by ``|x| 2^-24`` of it; where x is a number minus a maximum, ``e^x |x|`` is 0.37 at most, so that
compared with the largest weight, which is one, less than half of its last bit is wrong, in sums
over weights too. Weights by themselves are rounded to 16 bits or fewer, which leaves more. The
exact function takes eight instructions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from math import e, inf, log2

from tilesmith.backends.triton.emission.emitter import Emitter
from tilesmith.backends.triton.emission.spelling import call, literal
from tilesmith.backends.triton.warp_roles.emitter import RoleEmitter
from tilesmith.backends.triton.warp_roles.layouts import Layout
from tilesmith.backends.triton.warp_roles.shortcuts.tangents import emit_bend
from tilesmith.dtypes import F32
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Yield
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Full, Mask
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.ops.shape import Broadcast, ExpandDims
from tilesmith.ir.types import Value

LARGEST_FACTOR = 256.0
"""Of a tangent in an exponent: weights are off by less than 2^-12 then."""
TANGENT_FUNCTIONS = {
    "_tanh": '''
@gluon.jit
def _tanh(x):
    """Without branches: a quotient of polynomials, within 8 units in the last place, at most 1."""
    size = gl.minimum(gl.abs(x), 9.0, propagate_nan=tl.PropagateNan.ALL)
    square = size * size
    above = gl.fma(square, 1.3354054750891464e-08, 2.0608693375834264e-05)
    above = gl.fma(above, square, 0.0034955672454088926)
    above = gl.fma(above, square, 0.13381008803844452)
    above = gl.fma(above, square, 1.0) * size
    below = gl.fma(square, 7.776323514008254e-07, 0.0003285598650109023)
    below = gl.fma(below, square, 0.025876905769109726)
    below = gl.fma(below, square, 0.4671432375907898)
    below = gl.fma(below, square, 1.0)
    quotient: gl.constexpr = """{
        .reg .f32 found;
        rcp.approx.ftz.f32 found, $2;
        mul.f32 found, found, $1;
        min.NaN.f32 found, found, 0f3F800000;
        copysign.f32 $0, $3, found;
    }"""
    args = [above, below, x]
    return gl.inline_asm_elementwise(quotient, "=r,r,r,r", args, gl.float32, is_pure=True, pack=1)
''',
}
"""Functions of a module, by name."""


def guard_bends(
    emitter: RoleEmitter,
    ops: Iterable[Operation],
    turn: Sequence[Operation],
    layouts: Mapping[Value, Layout],
) -> None:
    """Have tangents computed without branches: by an exponential where only others read them."""
    for op in ops:
        if not isinstance(op, Elementwise) or op.fn != "tanh" or op.result.tile.dtype != F32:
            continue
        emitter.guarded[op] = _emit_tanh
        if _bends_exponents(op, turn, emitter):
            source, rate = _find_rate(op, emitter)
            # Numbers that share a reciprocal share a NaN, which a selection may have to hide.
            layout = None if any(map(_is_selection, turn)) else layouts.get(op.result)
            emitter.guarded[op] = partial(emit_bend, source=source, rate=rate, layout=layout)


def _bends_exponents(op: Elementwise, ops: Sequence[Operation], emitter: RoleEmitter) -> bool:
    """Whether sums, maxima and constant factors alone lie between a tangent and exponentials."""
    pending: list[tuple[Value, float]] = [(op.result, 1.0)]
    seen, exponentials = {op.result}, 0
    while pending:
        value, factor = pending.pop()
        users = [user for user in ops if value in user.operand_values()]
        powers = [user for user in users if _is_power(user)]
        exponentials += len(powers)
        for user in (user for user in users if user not in powers):
            grown = factor * _growth(user, value, emitter)
            if grown > LARGEST_FACTOR:
                return False
            pending += [(result, grown) for result in user.results if result not in seen]
            seen.update(user.results)
    return exponentials > 0


def _is_selection(op: Operation) -> bool:
    """Not masks: lanes past the end hold zeros."""
    return isinstance(op, Elementwise) and op.fn == "where"


def _is_power(op: Operation) -> bool:
    return isinstance(op, Elementwise) and op.fn in ("exp", "exp2")


def _growth(op: Operation, value: Value, emitter: RoleEmitter) -> float:
    """What an op multiplies an error by; infinity where that is not known."""
    if isinstance(op, (Mask, Broadcast, ExpandDims, Yield)):
        return 1.0
    if isinstance(op, Reduce):
        return 1.0 if op.kind == "max" else inf
    if not isinstance(op, Elementwise) or op.results[0].tile.dtype != F32:
        return inf
    if op.fn in ("add", "sub", "maximum", "neg") or (op.fn == "where" and value in op.args[1:]):
        return 1.0
    factors = [emitter.uses.defining.get(arg) for arg in op.args if arg is not value]
    if op.fn == "mul" and len(factors) == 1 and isinstance(factors[0], Full):
        return abs(float(factors[0].value))
    return inf


def _find_rate(op: Elementwise, emitter: RoleEmitter) -> tuple[Value, float]:
    """The tile that a tangent bends a multiple of, and what goes into the exponential."""
    defining = emitter.uses.defining
    scaling = defining.get(op.args[0])
    if isinstance(scaling, Elementwise) and scaling.fn == "mul":
        factor = defining.get(scaling.args[1])
        if isinstance(factor, Full):
            emitter.uses.inlined.add(scaling.result)
            return scaling.args[0], 2 * log2(e) * float(factor.value)
    return op.args[0], 2 * log2(e)


def _emit_tanh(emitter: Emitter, op: Elementwise) -> None:
    name = emitter.spelling.helper("_tanh")
    emitter.define(op.result, call(name, emitter.exact(op.args[0]), shape=op.result.tile.shape))


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
