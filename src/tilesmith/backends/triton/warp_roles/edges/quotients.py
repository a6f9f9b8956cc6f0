"""Quotients by one number for a whole row: one reciprocal, then products.

A correctly rounded quotient takes ten instructions and a branch for each number, and those of a
tile of 64 x 128 as long as two turns of attention. With the rounded reciprocal of the divisor,
three do: the product is at most two units in the last place off, what it leaves of the dividend is
exact in one fused instruction, and adding the quotient of that rounds correctly. It does where
nothing on the way is smaller than the smallest normal number or infinite: a result that is not
finite is the product itself, as a division would give it. Where a quotient is rounded to 16 bits,
the product with a reciprocal that is one unit off is enough (``rounded_quotients.py``), and where
the dividend is a sum of products of 8-bit numbers: the matrix units keep 14 bits of such a sum.
"""

from __future__ import annotations

from functools import partial

from tilesmith.backends.triton.emission.emitter import Emitter
from tilesmith.backends.triton.emission.spelling import call
from tilesmith.backends.triton.warp_roles.emitter import RoleEmitter
from tilesmith.backends.triton.warp_roles.plan import RolePlan
from tilesmith.dtypes import F32
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.shape import Broadcast, ExpandDims

COARSE_BITS = 8
"""Of operands whose sums have fewer bits than fp32 has."""
QUOTIENT_FUNCTIONS = {
    "_inverse": '''
@gluon.jit
def _inverse(x):
    """One divided by each number, to a unit in the last place."""
    return gl.inline_asm_elementwise(
        "rcp.approx.ftz.f32 $0, $1;", "=r,r", [x], gl.float32, is_pure=True, pack=1
    )
''',
    "_divide": '''
@gluon.jit
def _divide(x, by):
    """Rows by one number each: what the product with its inverse leaves is made up for."""
    exact: gl.constexpr = """{
        .reg .f32 near, left;
        .reg .pred is_done;
        mul.rn.f32 near, $1, $3;
        neg.f32 left, near;
        fma.rn.f32 left, left, $2, $1;
        fma.rn.f32 left, left, $3, near;
        testp.finite.f32 is_done, left;
        selp.f32 $0, left, near, is_done;
    }"""
    inverse = gl.inline_asm_elementwise(
        "rcp.rn.f32 $0, $1;", "=r,r", [by], gl.float32, is_pure=True, pack=1
    )
    args = [x, by, inverse]
    return gl.inline_asm_elementwise(exact, "=r,r,r,r", args, gl.float32, is_pure=True, pack=1)
''',
}
"""Functions of a module, by name."""


def guard_quotients(emitter: RoleEmitter, plan: RolePlan) -> None:
    """Have rows divided by way of a reciprocal."""
    coarse = {
        plan.loop.results[plan.loop.body.yielded.index(product.dot.result)]
        for product in plan.late
        if product.dot.rhs.tile.dtype.bits <= COARSE_BITS
    }
    for op in plan.after:
        if isinstance(op, Elementwise) and op.fn == "div" and _divides_rows(op, emitter):
            is_coarse = op.args[0] in coarse
            emitter.guarded[op] = partial(_emit_quotient, is_coarse=is_coarse)


def _divides_rows(op: Elementwise, emitter: RoleEmitter) -> bool:
    """Whether the divisor of a tile is a number for each row, or one for all."""
    divisor = emitter.uses.defining.get(op.args[1])
    is_spread = False
    while isinstance(divisor, (Broadcast, ExpandDims)):
        is_spread |= isinstance(divisor, ExpandDims)
        divisor = emitter.uses.defining.get(divisor.x)
    return is_spread and all(arg.tile.dtype == F32 for arg in op.args)


def _emit_quotient(emitter: Emitter, op: Elementwise, *, is_coarse: bool) -> None:
    spelling, (x, by) = emitter.spelling, map(emitter.expr, op.args)
    if is_coarse or op.result in emitter.rounded_values:
        emitter.define(op.result, x * call(spelling.helper("_inverse"), by, shape=by.shape))
    else:
        quotient = call(spelling.helper("_divide"), x, by, shape=op.result.tile.shape)
        emitter.define(op.result, quotient)
