"""The absolute value and the negative of int16, which are wrong for the least one as they are.

``abs.s16`` and ``neg.s16`` of PTX become instructions of 32 bits, and ptxas takes what they leave
for extended: -(-32768) is 32768 to what reads it as int32 or compares it (docs/decisions/0012).
LLVM makes them of selections, maxima and wider arithmetic too. Here the number stands in the upper
half of 32 bits, where it wraps as in 16. The negative is found by a flip of all bits but the sign,
which LLVM leaves as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilesmith.backends.triton.emission.emitter import Emitter
from tilesmith.backends.triton.emission.spelling import Expr, call, literal
from tilesmith.dtypes import I16, DType

Form = Callable[[Emitter, Sequence[Expr], DType], Expr]
"""How a function is written for operands of one type."""

LOW_BITS = 0x7FFFFFFF
"""A flip of these is a difference from their sum, beside a sign that stays."""
ROUNDING = 0x7FFF7FFF
"""Turns the sign and leaves 0x8000 below the number: the shift back drops it."""


def magnitude(x: Expr) -> Expr:
    """The absolute value of a tile of int16."""
    return _lower_half(call("tl.abs", _upper_half(x), shape=x.shape))


def negative(x: Expr) -> Expr:
    """A tile of int16 times -1."""
    flipped = _upper_half(x).infix("^", literal(LOW_BITS))
    return _lower_half(flipped.infix("-", literal(ROUNDING)))


def _upper_half(x: Expr) -> Expr:
    return x.method("to", "tl.int32").infix("<<", literal(16))


def _lower_half(x: Expr) -> Expr:
    return x.infix(">>", literal(16)).method("to", "tl.int16")


def magnitude_of(otherwise: Form) -> Form:
    """The absolute value, by another form where it is not int16."""
    return _chosen(magnitude, otherwise)


def negative_of(otherwise: Form) -> Form:
    """The negative, by another form where it is not int16."""
    return _chosen(negative, otherwise)


def _chosen(form: Callable[[Expr], Expr], otherwise: Form) -> Form:
    def choose(emitter: Emitter, args: Sequence[Expr], dtype: DType) -> Expr:
        is_short = dtype == I16 and args[0].constant is None
        return form(args[0]) if is_short else otherwise(emitter, args, dtype)

    return choose


def total(emitter: Emitter, args: Sequence[Expr], dtype: DType) -> Expr:
    """A sum of integers."""
    return args[0] + args[1]


def product(emitter: Emitter, args: Sequence[Expr], dtype: DType) -> Expr:
    """A product of integers; -1 times a number is its negative."""
    others = [arg for arg in args if arg.constant != -1]
    is_negative = dtype == I16 and len(others) == 1
    return negative(others[0]) if is_negative else args[0] * args[1]


def difference(emitter: Emitter, args: Sequence[Expr], dtype: DType) -> Expr:
    """A difference of integers; that from 0 is a negative."""
    is_negative = dtype == I16 and args[0].constant == 0
    return negative(args[1]) if is_negative else args[0] - args[1]
