"""The roundings that GPU code has and the plain meaning of ops has not, made explicit.

Two of them grow without bound: exponentials go through powers of two, and products in tf32 drop
the last thirteen bits of their operands.
"""

from __future__ import annotations

import math

from tilesmith.dtypes import F32, I32
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.traversal import Definitions, apply_rules
from tilesmith.ir.types import Value

_LOG2_E = 1 / math.log(2)
_KEPT_BITS = -(1 << 13)
"""As a mask: what tf32 keeps of an fp32."""


def round_like_gpu(function: Function) -> Function:
    """Spell ops of fp32 as GPUs compute them.

    Before::

        %b = elementwise(%a) {fn="exp"} : f32[tile]

    After::

        %c = full() {value=1.4426950408889634} : f32[tile]
        %d = elementwise(%a, %c) {fn="mul"} : f32[tile]
        %b = elementwise(%d) {fn="exp2"} : f32[tile]
    """
    return apply_rules(function, (_spell_exponential, _round_operands))


def _spell_exponential(op: Operation, defined_by: Definitions) -> list[Operation] | None:
    if not isinstance(op, Elementwise) or op.fn != "exp" or op.result.tile.dtype != F32:
        return None
    factor, power = op.result.like(), op.result.like()
    return [
        Full(value=_LOG2_E, results=(factor,), loc=op.loc),
        Elementwise(args=(op.args[0], factor), fn="mul", results=(power,), loc=op.loc),
        Elementwise(args=(power,), fn="exp2", results=op.results, loc=op.loc),
    ]


def _round_operands(op: Operation, defined_by: Definitions) -> list[Operation] | None:
    if not isinstance(op, Dot) or op.precision != "tf32" or op.lhs.tile.dtype != F32:
        return None
    ops: list[Operation] = []
    lhs, rhs = _round(op.lhs, ops), _round(op.rhs, ops)
    rounded = Dot(lhs=lhs, rhs=rhs, acc=op.acc, precision="ieee", results=op.results, loc=op.loc)
    return [*ops, rounded]


def _round(value: Value, ops: list[Operation]) -> Value:
    integer = value.tile.with_dtype(I32)
    bits, mask, kept = value.like(integer), value.like(integer), value.like(integer)
    result = value.like()
    ops += [
        Cast(x=value, bitcast=True, results=(bits,), loc=value.loc),
        Full(value=_KEPT_BITS, results=(mask,), loc=value.loc),
        Elementwise(args=(bits, mask), fn="and", results=(kept,), loc=value.loc),
        Cast(x=kept, bitcast=True, results=(result,), loc=value.loc),
    ]
    return result
