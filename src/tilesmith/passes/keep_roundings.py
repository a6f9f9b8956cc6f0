"""Roundings that stay when everything else becomes fp64: they are spelled as bits.

Together with ``widen_floats`` this gives a function with any choice of its own roundings.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tilesmith.dtypes import I8, I16, I32
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Cast
from tilesmith.ir.traversal import rewrite_function
from tilesmith.ir.values import Value

_INTEGERS = {dtype.bits: dtype for dtype in (I8, I16, I32)}


def keep_roundings(function: Function, kept: Collection[Value]) -> Function:
    """Make ``widen_floats`` round these values to the type they have here.

    Before::

        %b = cast(%a) : bf16[tile]

    After::

        %c = cast(%a) : bf16[tile]
        %d = cast(%c) {bitcast=true} : i16[tile]
        %b = cast(%d) {bitcast=true} : bf16[tile]
    """

    def rewrite(op: Operation) -> Operation | list[Operation]:
        return _spell_out(op) if op.results and op.results[0] in kept else op

    return rewrite_function(function, rewrite)


def _spell_out(op: Operation) -> list[Operation]:
    value = op.result
    rounded = value.like()
    bits = value.like(value.tile.with_dtype(_INTEGERS[value.tile.dtype.bits]))
    return [
        replace(op, results=(rounded,)),
        Cast(x=rounded, bitcast=True, results=(bits,), loc=op.loc),
        Cast(x=bits, bitcast=True, results=(value,), loc=op.loc),
    ]
