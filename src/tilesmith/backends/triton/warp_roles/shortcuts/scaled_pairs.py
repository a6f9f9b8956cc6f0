"""Scores that are rounded to bf16, scaled and rounded again: two of them in each instruction.

``bf16(bf16(x) * c)`` multiplies in fp32. Multiply-adds of pairs of bf16 round once and take bf16
only, but with ``c`` as the sum of two such numbers they give the same bits::

    low = s * LOW                 rounded
    scaled = s * HIGH + low       rounded once

Whether they do depends on the eight bits of ``s`` alone, exponents aside: all are tried before
code is made. ``HIGH`` is not above ``c``, so that both terms of an infinity have its sign. Where
``s`` is below 2^-100 in size the sum may differ in its last bit, which no exponential notices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from math import isfinite
from typing import TypeGuard

from tilesmith.backends.triton.emission.emitter import Emitter
from tilesmith.backends.triton.emission.spelling import call, literal
from tilesmith.backends.triton.warp_roles.emitter import RoleEmitter
from tilesmith.backends.triton.warp_roles.factors.bits import (
    NEIGHBOURS,
    from_bits,
    in_bf16,
    in_both_halves,
    in_single,
    significands,
    to_bits,
)
from tilesmith.backends.triton.warp_roles.factors.growth import (
    emit_grown,
    find_growth,
)
from tilesmith.backends.triton.warp_roles.layouts import Layout
from tilesmith.backends.triton.warp_roles.nests.checks import find_users
from tilesmith.dtypes import BF16, F32
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Full, Mask
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.types import Value

PAIR_FUNCTIONS = {
    "_scaled_bf16": '''
@gluon.jit
def _scaled_bf16(x, HIGH: gl.constexpr, LOW: gl.constexpr):
    """Rounded to bf16, times both parts of a factor, rounded again; as fp32."""
    scaled: gl.constexpr = """{
        .reg .b32 pair, low;
        cvt.rn.bf16x2.f32 pair, $3, $2;
        mul.rn.bf16x2 low, pair, $6;
        fma.rn.bf16x2 pair, pair, $4, low;
        shl.b32 $0, pair, 16;
        and.b32 $1, pair, 0xffff0000;
    }"""
    return gl.inline_asm_elementwise(
        scaled, "=r,=r,r,r,r,r,r,r", [x, HIGH, LOW], gl.float32, is_pure=True, pack=2
    )
''',
    "_times_bf16": '''
@gluon.jit
def _times_bf16(x, FACTOR: gl.constexpr):
    """Rounded to bf16, times a factor that is such a number, rounded again; as fp32."""
    scaled: gl.constexpr = """{
        .reg .b32 pair;
        cvt.rn.bf16x2.f32 pair, $3, $2;
        mul.rn.bf16x2 pair, pair, $4;
        shl.b32 $0, pair, 16;
        and.b32 $1, pair, 0xffff0000;
    }"""
    return gl.inline_asm_elementwise(
        scaled, "=r,=r,r,r,r,r", [x, FACTOR], gl.float32, is_pure=True, pack=2
    )
''',
    "_larger_pair": """
@gluon.jit
def _larger_pair(a, b):
    return gl.inline_asm_elementwise(
        "max.NaN.bf16x2 $0, $1, $2;", "=r,r,r", [a, b], gl.int32, is_pure=True, pack=1
    )
""",
    "_largest_bf16": '''
@gluon.jit
def _largest_bf16(x, LAYOUT: gl.constexpr):
    """The largest number of each row, rounded to bf16: rounding keeps the order."""
    low, high = gl.split(x.reshape([x.shape[0], x.shape[1] // 2, 2]))
    pairs = gl.inline_asm_elementwise(
        "cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,r,r", [low, high], gl.int32, is_pure=True, pack=1
    )
    low, high = gl.inline_asm_elementwise(
        "shl.b32 $0, $2, 16; and.b32 $1, $2, 0xffff0000;",
        "=r,=r,r",
        [gl.reduce(pairs, 1, _larger_pair)],
        (gl.float32, gl.float32),
        is_pure=True,
        pack=1,
    )
    largest = gl.maximum(low, high, propagate_nan=tl.PropagateNan.ALL)
    return gl.convert_layout(largest, LAYOUT)
''',
}
"""Functions of a module, by name."""


def guard_scaled_pairs(
    emitter: RoleEmitter,
    ops: Sequence[Operation],
    turn: Sequence[Operation],
    layouts: Mapping[Value, Layout],
) -> None:
    """Have tiles that are rounded, scaled and rounded again go through pairs, and their maxima."""
    defining, users = emitter.uses.defining, find_users(turn)
    rounded = {
        _unmasked(op.x, defining) for op in ops if is_rounding(op) and op.result in _widened(ops)
    }
    for op in ops:
        found = find_scaled(op, defining) if isinstance(op, Cast) else None
        parts = None if found is None else split_factor(found.factor)
        growth = None if found is None else find_growth(found.factor)
        if found is not None and growth is not None:
            emitter.guarded[op] = partial(emit_grown, source=found.source, growth=growth)
            emitter.uses.inlined.update(found.steps)
        elif found is not None and parts is not None:
            emitter.guarded[op] = partial(_emit_scaled, source=found.source, parts=parts)
            # Mostly nothing else reads what comes before.
            emitter.uses.inlined.update(found.steps)
        if not isinstance(op, Reduce) or op.kind != "max" or op.x.tile.rank < 2:
            continue
        source = _find_rounded(op, defining)
        if _unmasked(op.x, defining) in rounded and all(map(is_rounding, users[op.result])):
            source = op.x
        if source is not None:
            layout = layouts[op.result]
            emitter.guarded[op] = partial(_emit_largest, source=source, layout=layout)


class Scaled:
    """A tile in fp32 that is rounded, multiplied by a factor and rounded again."""

    def __init__(self, source: Value, factor: float, steps: tuple[Value, ...]) -> None:
        self.source = source
        self.factor = factor
        self.steps = steps
        """What lies between it and its use."""


def find_scaled(op: Cast, defining: Mapping[Value, Operation]) -> Scaled | None:
    """What a tile in fp32 was, before it was rounded to bf16 for the first of two times."""
    rounding = defining.get(op.x)
    scaling = defining.get(rounding.x) if _is_widening(op) and is_rounding(rounding) else None
    if not isinstance(scaling, Elementwise) or scaling.fn != "mul":
        return None
    factor, widening = defining.get(scaling.args[1]), defining.get(scaling.args[0])
    first = defining.get(widening.x) if _is_widening(widening) else None
    if not isinstance(factor, Full) or not is_rounding(first):
        return None
    steps = (op.x, scaling.result, scaling.args[0], first.result)
    return Scaled(first.x, factor.value, steps)


def _find_rounded(op: Reduce, defining: Mapping[Value, Operation]) -> Value | None:
    """What a tile in fp32 was before it was rounded to bf16."""
    widening = defining.get(op.x)
    rounding = defining.get(widening.x) if _is_widening(widening) else None
    return rounding.x if is_rounding(rounding) else None


def is_rounding(op: Operation | None) -> TypeGuard[Cast]:
    """Whether an op rounds fp32 to bf16."""
    return isinstance(op, Cast) and not op.bitcast and (op.x.tile.dtype, op.dtype) == (F32, BF16)


def _is_widening(op: Operation | None) -> TypeGuard[Cast]:
    return isinstance(op, Cast) and not op.bitcast and (op.x.tile.dtype, op.dtype) == (BF16, F32)


def _unmasked(value: Value, defining: Mapping[Value, Operation]) -> Value:
    """A tile before lanes past the end were left out, which few turns do."""
    op = defining.get(value)
    return _unmasked(op.x, defining) if isinstance(op, Mask) else value


def _widened(ops: Iterable[Operation]) -> set[Value]:
    return {op.x for op in ops if _is_widening(op)}


def _emit_scaled(emitter: Emitter, op: Cast, source: Value, parts: tuple[float, ...]) -> None:
    name = emitter.spelling.helper("_scaled_bf16" if len(parts) > 1 else "_times_bf16")
    numbers, shape = [literal(in_both_halves(part)) for part in parts], op.result.tile.shape
    emitter.define(op.result, call(name, emitter.exact(source), *numbers, shape=shape))


def _emit_largest(emitter: Emitter, op: Reduce, source: Value, layout: Layout) -> None:
    emitter.spelling.helper("_larger_pair")
    name = emitter.spelling.helper("_largest_bf16")
    shape = op.result.tile.shape
    emitter.define(op.result, call(name, emitter.exact(source), layout, shape=shape))


@cache
def split_factor(factor: float) -> tuple[float, ...] | None:
    """A factor as one number in bf16, or as the sum of two that scales to the same bits.

    None where there are no such two.
    """
    if not isfinite(factor) or not 2.0**-64 < factor < 2.0**64:
        return None
    exact = in_single(factor)
    high = from_bits(to_bits(exact) & 0xFFFF0000)
    if high == exact:
        return (high,)
    nearest = to_bits(in_bf16(exact - high))
    for step in NEIGHBOURS:
        low = from_bits(nearest + (step << 16))
        if all(_scales_alike(number, exact, high, low) for number in significands()):
            return high, low
    return None


def _scales_alike(number: int, exact: float, high: float, low: float) -> bool:
    # Products of two numbers in fp32, and these sums, are exact in Python's.
    wanted = in_bf16(in_single(number * exact))
    return wanted == in_bf16(number * high + in_bf16(number * low))
