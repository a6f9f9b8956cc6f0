"""The IR's scalar functions as LLVM instructions, one row for each.

``apply`` takes registers, computes in register form and rounds what an element type of low
precision cannot hold. Quotients and remainders are rounded towards zero or towards -inf; division
of integers by zero gives 0, as does its remainder; the smallest integer by -1 wraps.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

from tilesmith.backends.cpu.llvm.builder import Builder
from tilesmith.backends.cpu.llvm.registers import Register, number, register_element
from tilesmith.backends.cpu.math import elementary, exponentials
from tilesmith.backends.cpu.math.casts import round_to
from tilesmith.backends.cpu.math.term import Term, call_libm, unless
from tilesmith.dtypes import F32, F64, DType, ElementKind
from tilesmith.ir.ops.elementwise import PYTHON_FUNCTIONS, SCALAR_FUNCTIONS

ScalarEmitter = Callable[..., Term]
"""Takes the operands' element type (that of the values for ``where``), then the operands."""


def apply(builder: Builder, fn: str, dtype: DType, args: Sequence[Register]) -> Register:
    """The function of these operands, rounded to ``dtype``; comparisons give booleans."""
    result = SCALAR_FUNCTIONS_LLVM[fn](dtype, *(Term(builder, arg) for arg in args)).register
    if SCALAR_FUNCTIONS[fn].is_exact or not result.type.is_float:
        return result
    return round_to(builder, dtype, result)


def _sign(dtype: DType) -> str:
    """How LLVM's comparisons of integers begin."""
    return "s" if dtype.kind is ElementKind.SIGNED else "u"


def _compare(predicate: str) -> ScalarEmitter:
    return lambda dtype, x, y: x.compare(("o" if dtype.is_float else _sign(dtype)) + predicate, y)


def _extremum(name: str, of_floats: str, of_booleans: str) -> ScalarEmitter:
    def emit(dtype: DType, x: Term, y: Term) -> Term:
        if dtype.is_bool:
            return x.combine(of_booleans, y)
        if dtype.is_integer:
            return x.intrinsic(_sign(dtype) + name, y)
        # Half the instructions of llvm.maximum, which also tells the zeros apart. The first
        # operand, the accumulator of a reduction, waits for one comparison only.
        wins = y.compare(of_floats, x)
        return y.is_nan().where(y, wins.where(y, x))

    return emit


def _rounding(intrinsic: str) -> ScalarEmitter:
    """Whole numbers are what they are."""
    return lambda dtype, x: x.intrinsic(intrinsic) if dtype.is_float else x


def _plain(function: Callable[..., Term]) -> ScalarEmitter:
    """The same formula whatever the element type."""
    return lambda _, *args: function(*args)


def _single(function: Callable[..., Term]) -> ScalarEmitter:
    """Inline for single floats; doubles call libm's function of the same name."""

    def emit(_: DType, *args: Term) -> Term:
        if args[0].register.type.element == "double":
            return call_libm(function.__name__, *args)
        return function(*args)

    return emit


def _absolute(dtype: DType, x: Term) -> Term:
    if dtype.is_float:
        return abs(x)
    return x.intrinsic("smax", -x) if dtype.kind is ElementKind.SIGNED else x


def _never(x: Term) -> Term:
    return Term(x.builder, number("i1", 0, x.register.lanes))


def _shift_left(dtype: DType, x: Term, count: Term) -> Term:
    """Counts outside the type shift everything out."""
    return _is_within(dtype, count).where(x << (count & (dtype.bits - 1)), x.number(0))


def _shift_right(dtype: DType, x: Term, count: Term) -> Term:
    last = count.number(dtype.bits - 1)
    if dtype.kind is ElementKind.SIGNED:
        return x >> _is_within(dtype, count).where(count, last)
    return _is_within(dtype, count).where(x.logical_right(count & last), x.number(0))


def _is_within(dtype: DType, count: Term) -> Term:
    return count.compare("ult", dtype.bits)


def _multiply_high(dtype: DType, x: Term, y: Term) -> Term:
    wide, narrow = f"i{2 * dtype.bits}", f"i{dtype.bits}"
    product = x.convert("zext", wide) * y.convert("zext", wide)
    return product.logical_right(dtype.bits).convert("trunc", narrow)


def _truncdiv(dtype: DType, x: Term, y: Term) -> Term:
    """The quotient without its fraction."""
    if dtype.is_float:
        return (x / y).intrinsic("trunc")
    return _integer_quotient(dtype, x, y)


def _fmod(dtype: DType, x: Term, y: Term) -> Term:
    """The remainder that has the sign of ``x``."""
    if dtype.is_float:
        return _float_remainder(x, y)
    remainder = x - _integer_quotient(dtype, x, y) * y
    return (y == 0).where(0, remainder)


def _mod(dtype: DType, x: Term, y: Term) -> Term:
    """The remainder that has the sign of ``y``."""
    remainder = _fmod(dtype, x, y)
    if dtype.kind is ElementKind.UNSIGNED:
        return remainder
    return _needs_step(remainder, y).where(remainder + y, remainder)


def _floordiv(dtype: DType, x: Term, y: Term) -> Term:
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
    text = y.register.text
    if text.startswith("splat"):
        text = text.rstrip(")").split()[-1]
    if text.lstrip("-").isdigit():
        # LLVM multiplies instead; only the two divisors that would trap are looked for.
        if int(text) == 0:
            return y
        return -x if int(text) == -1 and is_signed else x.combine(_sign(dtype) + "div", y)
    zero = y == 0
    minus_one = (y == -1) if is_signed else zero
    divisor = (zero | minus_one).where(1, y)
    quotient = _safe_quotient(dtype, x, divisor)
    if is_signed:
        quotient = minus_one.where(-x, quotient)
    return zero.where(0, quotient)


def _safe_quotient(dtype: DType, x: Term, divisor: Term) -> Term:
    sign = _sign(dtype)
    if not x.register.type.is_vector or dtype.bits == 64:
        return x.combine(f"{sign}div", divisor)
    # No vector unit divides integers. Floats with more than twice the bits get every quotient
    # right: it is at least 1/divisor away from the next whole number.
    element = register_element(F32 if dtype.bits <= 16 else F64)
    ratio = x.convert(f"{sign}itofp", element) / divisor.convert(f"{sign}itofp", element)
    return ratio.convert(f"fpto{sign}i", x.register.type.element)


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


_OF_FLOATS = (
    exponentials.exp, exponentials.exp2, exponentials.expm1, elementary.log, elementary.tanh,
    exponentials.sigmoid,
)  # fmt: skip
_OF_SINGLES = (
    elementary.log2, elementary.log10, elementary.log1p, elementary.sin, elementary.cos,
    elementary.tan, elementary.asin, elementary.acos, elementary.atan, elementary.sinh,
    elementary.cosh, elementary.asinh, elementary.acosh, elementary.atanh, exponentials.erf,
    exponentials.erfc, elementary.atan2,
)  # fmt: skip
SCALAR_FUNCTIONS_LLVM: dict[str, ScalarEmitter] = {
    **{function.__name__: _plain(function) for function in _OF_FLOATS},
    **{function.__name__: _single(function) for function in _OF_SINGLES},
    **{name: _plain(PYTHON_FUNCTIONS[name]) for name in ("neg", "and", "or", "xor", "eq", "ne")},
    "abs": _absolute,
    **{name: _rounding(name) for name in ("floor", "ceil", "trunc")},
    "round": _rounding("roundeven"),
    "sqrt": lambda _, x: x.intrinsic("sqrt"),
    "rsqrt": lambda _, x: 1.0 / x.intrinsic("sqrt"),
    "not": lambda _, x: ~x,
    "isnan": lambda dtype, x: x.is_nan() if dtype.is_float else _never(x),
    "isinf": lambda dtype, x: abs(x) == float("inf") if dtype.is_float else _never(x),
    "add": lambda dtype, x, y: x | y if dtype.is_bool else x + y,
    "mul": lambda dtype, x, y: x & y if dtype.is_bool else x * y,
    "mulhi": _multiply_high,
    "maximum": _extremum("max", "ogt", "or"),
    "minimum": _extremum("min", "olt", "and"),
    "sub": lambda dtype, x, y: x ^ y if dtype.is_bool else x - y,
    "div": _plain(operator.truediv),
    "floordiv": _floordiv,
    "truncdiv": _truncdiv,
    "mod": _mod,
    "fmod": _fmod,
    "shl": _shift_left,
    "shr": _shift_right,
    "pow": elementary.power,
    **{name: _compare(name) for name in ("lt", "le", "gt", "ge")},
    "fma": lambda dtype, x, y, z: x.intrinsic("fma", y, z) if dtype.is_float else x * y + z,
    "where": _plain(Term.where),
}
