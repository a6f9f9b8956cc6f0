"""Quotients and remainders of integers and floats, rounded towards zero or towards -inf.

Division of integers by zero gives 0, as does its remainder; the smallest integer by -1 wraps.
"""

from __future__ import annotations

from tilesmith.backends.cpu.llvm.registers import register_element
from tilesmith.backends.cpu.math.term import Term, unless
from tilesmith.dtypes import F32, F64, DType, ElementKind


def truncdiv(dtype: DType, x: Term, y: Term) -> Term:
    """The quotient without its fraction."""
    if dtype.is_float:
        return (x / y).intrinsic("trunc")
    return _integer_quotient(dtype, x, y)


def fmod(dtype: DType, x: Term, y: Term) -> Term:
    """The remainder that has the sign of ``x``."""
    if dtype.is_float:
        return _float_remainder(x, y)
    remainder = x - _integer_quotient(dtype, x, y) * y
    return (y == 0).where(0, remainder)


def mod(dtype: DType, x: Term, y: Term) -> Term:
    """The remainder that has the sign of ``y``."""
    remainder = fmod(dtype, x, y)
    if dtype.kind is ElementKind.UNSIGNED:
        return remainder
    return _needs_step(remainder, y).where(remainder + y, remainder)


def floordiv(dtype: DType, x: Term, y: Term) -> Term:
    """The largest whole number that is at most the quotient."""
    if dtype.is_float:
        return _float_floordiv(x, y)
    quotient = _integer_quotient(dtype, x, y)
    if dtype.kind is ElementKind.UNSIGNED:
        return quotient
    remainder = x - quotient * y
    step = _needs_step(remainder, y) & (y != 0)
    return quotient + step.convert("sext", x.register.type.element)


def _needs_step(remainder: Term, y: Term) -> Term:
    """Where the remainder is not zero and has the other sign than ``y``."""
    return (remainder != 0) & ((remainder < 0) ^ (y < 0))


def _integer_quotient(dtype: DType, x: Term, y: Term) -> Term:
    is_signed = dtype.kind is ElementKind.SIGNED
    constant = _uniform_constant(y)
    if constant is not None:
        return _constant_quotient(x, y, constant, is_signed=is_signed)
    zero = y == 0
    minus_one = (y == -1) if is_signed else zero
    divisor = (zero | minus_one).where(1, y)
    quotient = _safe_quotient(dtype, x, divisor)
    if is_signed:
        quotient = minus_one.where(-x, quotient)
    return zero.where(0, quotient)


def _uniform_constant(x: Term) -> int | None:
    """The integer that all lanes are known to be."""
    text = x.register.text
    if text.startswith("splat"):
        text = text.rstrip(")").split()[-1]
    return int(text) if text.lstrip("-").isdigit() else None


def _constant_quotient(x: Term, y: Term, constant: int, *, is_signed: bool) -> Term:
    """LLVM multiplies instead; only the two divisors that would trap are looked for."""
    if constant == 0:
        return y
    if constant == -1 and is_signed:
        return -x
    return _divide(x, y, is_signed=is_signed)


def _divide(x: Term, y: Term, *, is_signed: bool) -> Term:
    operation = "sdiv" if is_signed else "udiv"
    return Term(x.builder, x.builder.binary(operation, x.register, y.register))


def _safe_quotient(dtype: DType, x: Term, divisor: Term) -> Term:
    is_signed = dtype.kind is ElementKind.SIGNED
    if not x.register.type.is_vector or dtype.bits == 64:
        return _divide(x, divisor, is_signed=is_signed)
    # No vector unit divides integers. Floats with more than twice the bits get every quotient
    # right: it is at least 1/divisor away from the next whole number.
    element = register_element(F32 if dtype.bits <= 16 else F64)
    to_float, to_integer = ("sitofp", "fptosi") if is_signed else ("uitofp", "fptoui")
    ratio = x.convert(to_float, element) / divisor.convert(to_float, element)
    return ratio.convert(to_integer, x.register.type.element)


def _float_remainder(x: Term, y: Term) -> Term:
    """``x - trunc(x / y) y``, which a fused operation gets exactly while the quotient is exact."""
    ratio = x / y
    limit = 2.0**22 if y.register.type.element == "float" else 2.0**51
    whole = ratio.intrinsic("trunc")
    remainder = (-whole).intrinsic("fma", y, x)
    # The ratio may have been rounded up to a whole number: one divisor too many was taken away.
    overshot = _needs_step(remainder, x)
    corrected = overshot.where(remainder + abs(y).with_sign_of(x), remainder).with_sign_of(x)
    is_common = (abs(ratio) < limit) & (abs(y) < float("inf"))
    return unless(~is_common, corrected, "fmod", x, y)


def _float_floordiv(x: Term, y: Term) -> Term:
    """Python's rule: from the exact remainder, so that it agrees with ``mod``."""
    remainder = _float_remainder(x, y)
    quotient = (x - remainder) / y
    lowered = _needs_step(remainder, y).where(quotient - 1.0, quotient)
    floor = lowered.intrinsic("floor")
    nearest = ((lowered - floor) > 0.5).where(floor + 1.0, floor)
    ratio = x / y
    signed_zero = ratio.number(0.0).with_sign_of(ratio)
    whole = (lowered == 0.0).where(signed_zero, nearest)
    return (y == 0.0).where(ratio, whole)
