"""Floats of numbers that four bits hold, made by putting those bits into a float.

``128 + n`` in bf16 has the bits of 128 with ``n`` in the last ones, up to 127; in fp16 that begins
at 1024. So a half of a byte needs no conversion: it is cut out, given the sign's offset and the
bits of the large number, and the large number is subtracted again. Both steps are exact.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.dtypes import BF16, F16, I8, I16, U8, DType
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.traversal import Definitions, apply_rules
from tilesmith.ir.types import Value

HALF, LOW_BITS, SIGN = 4, 0xF, 0x8
LARGE = {BF16: 128, F16: 1024}
"""The numbers from which on neighbours are 1 apart."""
LARGE_BITS = {BF16: 0x4300, F16: 0x6400}


def convert_halves_by_bits(function: Function) -> Function:
    """The same with fewer steps from halves of bytes to floats of 16 bits.

    Before::

        %up = elementwise(%bytes, %four) {fn="shl"} : i8[k, n]
        %low = elementwise(%up, %four) {fn="shr"} : i8[k, n]
        %y = cast(%low) : bf16[k, n]

    After::

        %bits = elementwise(%bytes, %fifteen) {fn="and"} : i8[k, n]
        %moved = elementwise(%bits, %eight) {fn="xor"} : i8[k, n]
        %wide = cast(%moved) : i16[k, n]
        %made = elementwise(%wide, %large) {fn="or"} : i16[k, n]
        %float = cast(%made) {bitcast=true} : bf16[k, n]
        %y = elementwise(%float, %offset) {fn="sub"} : bf16[k, n]
    """
    return apply_rules(function, [_by_bits])


@dataclass(frozen=True)
class _Half:
    """Four bits of each byte."""

    bytes: Value
    is_high: bool
    is_signed: bool


def _by_bits(op: Operation, defined_by: Definitions) -> list[Operation] | None:
    if not isinstance(op, Cast) or op.bitcast or op.dtype not in LARGE:
        return None
    half = _find_half(op.x, defined_by)
    return None if half is None else _Writer(op, half).ops


def _find_half(value: Value, defined_by: Definitions) -> _Half | None:
    """What a byte is a half of: ``(b << 4) >> 4``, ``b >> 4`` or ``b & 15``."""
    op, kind = defined_by(value), value.tile.dtype
    if not isinstance(op, Elementwise) or kind not in (I8, U8) or len(op.args) != 2:
        return None
    source, constant = op.args[0], _constant(op.args[1], defined_by)
    before = defined_by(source)
    if op.fn == "and" and constant == LOW_BITS:
        is_shifted = isinstance(before, Elementwise) and _is_shift(before, "shr", defined_by)
        if isinstance(before, Elementwise) and is_shifted:
            return _Half(before.args[0], is_high=True, is_signed=False)
        return _Half(source, is_high=False, is_signed=False)
    if not _is_shift(op, "shr", defined_by):
        return None
    if isinstance(before, Elementwise) and _is_shift(before, "shl", defined_by):
        return _Half(before.args[0], is_high=False, is_signed=kind == I8)
    return _Half(source, is_high=True, is_signed=kind == I8)


def _is_shift(op: Elementwise, fn: str, defined_by: Definitions) -> bool:
    return op.fn == fn and _constant(op.args[1], defined_by) == HALF


def _constant(value: Value, defined_by: Definitions) -> float | None:
    op = defined_by(value)
    return op.value if isinstance(op, Full) else None


class _Writer:
    """The ops of one conversion."""

    def __init__(self, op: Cast, half: _Half) -> None:
        self._cast = op
        self.ops: list[Operation] = []
        dtype = op.dtype
        x = self._apply("shr", half.bytes, HALF) if half.is_high else half.bytes
        x = self._apply("and", x, LOW_BITS)
        if half.is_signed:
            # -8 becomes 0, and 7 becomes 15.
            x = self._apply("xor", x, SIGN)
        wide = self._add(Cast(x=x, results=self._results(I16), loc=op.loc))
        made = self._apply("or", wide, LARGE_BITS[dtype])
        number = self._add(Cast(x=made, bitcast=True, results=self._results(dtype), loc=op.loc))
        self._apply("sub", number, float(LARGE[dtype] + (SIGN if half.is_signed else 0)))

    def _results(self, dtype: DType) -> tuple[Value]:
        tile = self._cast.result.tile.with_dtype(dtype)
        return (Value(tile, self._cast.result.name, self._cast.loc),)

    def _apply(self, fn: str, x: Value, constant: float) -> Value:
        """A function of a tile and a constant."""
        results = self._results(x.tile.dtype)
        full = self._add(Full(value=constant, results=(results[0].like(),), loc=self._cast.loc))
        return self._add(Elementwise(fn=fn, args=(x, full), results=results, loc=self._cast.loc))

    def _add(self, op: Operation) -> Value:
        self.ops.append(op)
        return op.result
