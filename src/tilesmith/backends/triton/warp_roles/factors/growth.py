"""Scores in bf16 times a factor of ``(1 + G) * 2^n``, where G is small: ``s * G + s``, then 2^n.

One multiply-add of pairs rounds it once; the power of two is part of the multiply-add in fp32 that
takes the maximum off. ``log2(e) / sqrt(128)`` is 1.02 times 2^-3. Whether the bits are those of
``bf16(bf16(x) * c)`` depends on the eight bits of ``s`` alone: all are tried. What is left out are
numbers below 2^-100, which no exponential notices, and those so close to the largest one that
``s * (1 + G)`` is infinite: scores above 3.2e38.

Multiply-adds of bf16 cost more than their number tells: 1.58 instead of 1.63 ms for 4x32x4096x128
on an H200, 7 % more than scores that are not rounded take (1.47). Having them take pairs apart as
well, which saves an instruction for each pair, made it slower: 1.65.
"""

from __future__ import annotations

from functools import cache
from math import frexp, isfinite

from tilesmith.backends.triton.emission.emitter import Emitter
from tilesmith.backends.triton.emission.spelling import call, literal
from tilesmith.backends.triton.warp_roles.factors.bits import (
    NEIGHBOURS,
    from_bits,
    in_bf16,
    in_both_halves,
    in_single,
    significands,
    to_bits,
)
from tilesmith.ir.ops.elementwise import Cast
from tilesmith.ir.types import Value

LARGEST_GROWTH = 1 / 16
"""More would make numbers infinite that are further from the largest one."""
GROWTH_FUNCTIONS = {
    "_grown_bf16": '''
@gluon.jit
def _grown_bf16(x, GROWTH: gl.constexpr):
    """Rounded to bf16, and that plus so many times that, rounded again; as fp32."""
    grown: gl.constexpr = """{
        .reg .b32 pair;
        cvt.rn.bf16x2.f32 pair, $3, $2;
        fma.rn.bf16x2 pair, pair, $4, pair;
        shl.b32 $0, pair, 16;
        and.b32 $1, pair, 0xffff0000;
    }"""
    return gl.inline_asm_elementwise(
        grown, "=r,=r,r,r,r,r", [x, GROWTH], gl.float32, is_pure=True, pack=2
    )
''',
}
"""Functions of a module, by name."""


@cache
def find_growth(factor: float) -> tuple[float, float] | None:
    """How much a number grows, and the power of two after that; None where bits would differ."""
    if not isfinite(factor) or not 2.0**-64 < factor < 2.0**64:
        return None
    exact = in_single(factor)
    fraction, exponent = frexp(exact)
    nearest, power = to_bits(in_bf16(2 * fraction - 1)), 2.0 ** (exponent - 1)
    for step in NEIGHBOURS if 0 < 2 * fraction - 1 <= LARGEST_GROWTH else ():
        growth = from_bits(nearest + (step << 16))
        if all(_grows_alike(number, exact, growth, power) for number in significands()):
            return growth, power
    return None


def _grows_alike(number: int, exact: float, growth: float, power: float) -> bool:
    return in_bf16(in_single(number * exact)) == in_bf16(number * growth + number) * power


def emit_grown(emitter: Emitter, op: Cast, source: Value, growth: tuple[float, float]) -> None:
    """A tile that is rounded, multiplied by a factor and rounded again."""
    name, word = emitter.spelling.helper("_grown_bf16"), literal(in_both_halves(growth[0]))
    grown = call(name, emitter.exact(source), word, shape=op.result.tile.shape)
    emitter.define(op.result, grown * literal(growth[1]))
