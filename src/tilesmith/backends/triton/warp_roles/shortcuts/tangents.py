"""Hyperbolic tangents for exponents: ``1 - 2 / (1 + e^2x)``, one reciprocal for four of a row.

Exponentials and reciprocals share a unit that takes 16 numbers a clock, and scores that are bent
need three: e^2x, its reciprocal, the weight. Multiplications have eight times that rate::

    r = 1 / (a * b * c * d)
    1 / a = r * (c * d) * b

Nothing overflows: from 2^30 on the tangent is one. Numbers of one row share a reciprocal, so that a
NaN stays in its row, whose sum is NaN anyhow. Products and the reciprocal are off by 7 units of
2^-24 at most, so tangents by 2^-20; one by one by 2^-21. Attention with a soft cap, 4x32x4096x128,
takes 2.40 instead of 2.69 ms in bf16 on an H200; 2.52 with one reciprocal for two.
"""

from __future__ import annotations

from tilesmith.backends.triton.emission.emitter import Emitter
from tilesmith.backends.triton.emission.spelling import call, literal
from tilesmith.backends.triton.warp_roles.layouts import Layout, ProductLayout
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.types import Value

LEAST_COLUMNS = 16
"""Of a tile of which a thread has four numbers of a row: two neighbours, and two eight further."""
BEND_FUNCTIONS = {
    "_bend": '''
@gluon.jit
def _bend(x, RATE: gl.constexpr):
    """The tangent of a multiple of x, for exponents: within 2^-21, from -1 to 1."""
    power = gl.exp2(x * RATE) + 1.0
    inverse = gl.inline_asm_elementwise(
        "rcp.approx.ftz.f32 $0, $1;", "=r,r", [power], gl.float32, is_pure=True, pack=1
    )
    return gl.fma(inverse, -2.0, 1.0)
''',
    "_bend_rows": '''
@gluon.jit
def _bend_rows(x, RATE: gl.constexpr, LAYOUT: gl.constexpr):
    """The tangent of a multiple of x, for exponents: within 2^-20, at most 1."""
    power = gl.exp2(gl.minimum(x * RATE, 30.0, propagate_nan=tl.PropagateNan.ALL)) + 1.0
    # Four numbers that one thread has of a row, whatever its lane.
    quads = power.reshape([x.shape[0], x.shape[1] // 16, 2, 4, 2])
    left, right = gl.split(gl.permute(quads, (0, 1, 3, 2, 4)))
    a, b = gl.split(left)
    c, d = gl.split(right)
    first, second = a * c, b * d
    inverse = gl.inline_asm_elementwise(
        "rcp.approx.ftz.f32 $0, $1;", "=r,r", [first * second], gl.float32, is_pure=True, pack=1
    )
    first, second = inverse * second, inverse * first
    left, right = gl.join(first * c, second * d), gl.join(first * a, second * b)
    whole = gl.permute(gl.join(left, right), (0, 1, 3, 2, 4)).reshape(x.shape)
    return gl.fma(gl.convert_layout(whole, LAYOUT), -2.0, 1.0)
''',
}
"""Functions of a module, by name."""


def emit_bend(
    emitter: Emitter, op: Elementwise, source: Value, rate: float, layout: Layout | None
) -> None:
    """The tangent of a multiple of a tile, for exponents."""
    is_wide = isinstance(layout, ProductLayout) and layout.columns % LEAST_COLUMNS == 0
    name = emitter.spelling.helper("_bend_rows" if is_wide else "_bend")
    more = [layout] if is_wide else []
    given, shape = (emitter.exact(source), literal(rate), *more), op.result.tile.shape
    emitter.define(op.result, call(name, *given, shape=shape))
