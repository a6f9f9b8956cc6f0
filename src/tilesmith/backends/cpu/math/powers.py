"""Powers of integers and of floats."""

from __future__ import annotations

import math

from tilesmith.backends.cpu.math.exponentials import LOG2E, exp2
from tilesmith.backends.cpu.math.libm import any_lane, call_libm
from tilesmith.backends.cpu.math.logarithms import log
from tilesmith.backends.cpu.math.term import Term
from tilesmith.backends.cpu.registers import Register
from tilesmith.dtypes import DType, Kind


def power(dtype: DType, x: Term, y: Term) -> Term:
    """``x`` to the power ``y``."""
    if not dtype.is_float:
        return _integer_power(dtype, x, y)
    if x.register.type.element == "double":
        return call_libm("pow", x, y)
    return _single_power(x, y)


def _single_power(x: Term, y: Term) -> Term:
    """By logarithms in double precision, which leave the error of one rounding."""
    magnitude = abs(x).convert("fpext", "double")
    exponent = y.convert("fpext", "double") * (log(magnitude) * LOG2E)
    result = exp2(exponent).convert("fptrunc", "float")
    half = y * 0.5
    is_whole = y.intrinsic("trunc") == y
    is_odd = is_whole & (half.intrinsic("trunc") != half)
    is_negative = x.bits() < 0
    result = (is_negative & is_odd).where(-result, result)
    has_no_root = (x < 0.0) & (abs(x) < math.inf) & ~is_whole
    result = has_no_root.where(math.nan, result)
    # Also of powers and roots that are not numbers.
    is_one = (y == 0.0) | (x == 1.0) | ((x == -1.0) & (abs(y) == math.inf))
    return is_one.where(1.0, result)


def _integer_power(dtype: DType, x: Term, y: Term) -> Term:
    """By squaring, modulo the type's size; negative powers are zero, but those of 1 and -1."""
    b = x.builder

    def is_unfinished(state: tuple[Register, ...]) -> Register:
        return any_lane(b, (Term(b, state[1]) != 0).register)

    def square(state: tuple[Register, ...]) -> list[Register]:
        base, exponent, product = (Term(b, register) for register in state)
        grown = ((exponent & 1) != 0).where(product * base, product)
        following = (base * base, exponent.logical_right(1), grown)
        return [term.register for term in following]

    state = b.repeat(is_unfinished, square, [x.register, y.register, x.number(1).register])
    power = Term(b, state[2])
    if dtype.kind is Kind.UNSIGNED:
        return power
    # 1 and -1 to a power modulo 2^bits are right for negative exponents too.
    is_unit = (x == 1) | (x == -1)
    return ((y < 0) & ~is_unit).where(0, power)
