"""The IR's scalar functions as LLVM instructions, one row for each.

``apply`` takes registers, computes in register form and rounds what an element type of low
precision cannot hold. Quotients and remainders are rounded towards zero or towards -inf; division
of integers by zero gives 0, as does its remainder; the smallest integer by -1 wraps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilesmith.backends.cpu.llvm.builder import Builder
from tilesmith.backends.cpu.llvm.registers import Register, number, register_element
from tilesmith.backends.cpu.math import elementary, exponentials
from tilesmith.backends.cpu.math.casts import round_to
from tilesmith.backends.cpu.math.term import Term, call_libm, unless
from tilesmith.dtypes import F32, F64, DType, ElementKind

ScalarEmitter = Callable[..., Term]
"""Takes the operands' element type (that of the values for ``where``), then the operands."""


def apply(builder: Builder, fn: str, dtype: DType, args: Sequence[Register]) -> Register:
    """The function of these operands, rounded to ``dtype``; comparisons give booleans."""
    result = SCALAR_FUNCTIONS_LLVM[fn](dtype, *(Term(builder, arg) for arg in args)).register
    if fn in _EXACT or not result.type.is_float:
        return result
    return round_to(builder, dtype, result)


_EXACT = frozenset(
    ["neg", "abs", "floor", "ceil", "round", "trunc", "maximum", "minimum", "fmod", "where"]
)  # a float type holds what these make of its numbers


def _by_kind(of_floats: str, of_integers: str, of_booleans: str = "") -> ScalarEmitter:
    """Instructions for floats, integers and booleans."""

    def emit(dtype: DType, x: Term, y: Term) -> Term:
        operation = of_booleans if dtype.is_bool and of_booleans else of_integers
        if dtype.is_float:
            operation = of_floats
        return Term(x.builder, x.builder.binary(operation, x.register, y.register))

    return emit


def _compare(of_floats: str, of_signed: str, of_others: str) -> ScalarEmitter:
    def emit(dtype: DType, x: Term, y: Term) -> Term:
        predicate = of_signed if dtype.kind is ElementKind.SIGNED else of_others
        if dtype.is_float:
            predicate = of_floats
        return Term(x.builder, x.builder.compare(predicate, x.register, y.register))

    return emit


def _extremum(of_floats: str, of_signed: str, of_unsigned: str, of_booleans: str) -> ScalarEmitter:
    def emit(dtype: DType, x: Term, y: Term) -> Term:
        if dtype.is_bool:
            return Term(x.builder, x.builder.binary(of_booleans, x.register, y.register))
        if dtype.is_integer:
            return x.intrinsic(of_signed if dtype.kind is ElementKind.SIGNED else of_unsigned, y)
        # Half the instructions of llvm.maximum, which also tells the zeros apart. The first
        # operand, the accumulator of a reduction, waits for one comparison only.
        wins = Term(x.builder, x.builder.compare(of_floats, y.register, x.register))
        return y.is_nan().where(y, wins.where(y, x))

    return emit


def _rounding(intrinsic: str) -> ScalarEmitter:
    """Whole numbers are what they are."""
    return lambda dtype, x: x.intrinsic(intrinsic) if dtype.is_float else x


def _of_floats(function: Callable[..., Term]) -> ScalarEmitter:
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
    limit = count.number(dtype.bits)
    return Term(count.builder, count.builder.compare("ult", count.register, limit.register))


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
        return -x if int(text) == -1 and is_signed else _divide(x, y, is_signed=is_signed)
    zero = y == 0
    minus_one = (y == -1) if is_signed else zero
    divisor = (zero | minus_one).where(1, y)
    quotient = _safe_quotient(dtype, x, divisor)
    if is_signed:
        quotient = minus_one.where(-x, quotient)
    return zero.where(0, quotient)


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


SCALAR_FUNCTIONS_LLVM: dict[str, ScalarEmitter] = {
    "neg": lambda _, x: -x,
    "abs": _absolute,
    "floor": _rounding("floor"),
    "ceil": _rounding("ceil"),
    "round": _rounding("roundeven"),
    "trunc": _rounding("trunc"),
    "sqrt": lambda _, x: x.intrinsic("sqrt"),
    "rsqrt": lambda _, x: 1.0 / x.intrinsic("sqrt"),
    "not": lambda _, x: ~x,
    "exp": _of_floats(exponentials.exp),
    "exp2": _of_floats(exponentials.exp2),
    "expm1": _of_floats(exponentials.expm1),
    "log": _of_floats(elementary.log),
    "log2": _single(elementary.log2),
    "log10": _single(elementary.log10),
    "log1p": _single(elementary.log1p),
    "sin": _single(elementary.sin),
    "cos": _single(elementary.cos),
    "tan": _single(elementary.tan),
    "asin": _single(elementary.asin),
    "acos": _single(elementary.acos),
    "atan": _single(elementary.atan),
    "sinh": _single(elementary.sinh),
    "cosh": _single(elementary.cosh),
    "tanh": _of_floats(elementary.tanh),
    "asinh": _single(elementary.asinh),
    "acosh": _single(elementary.acosh),
    "atanh": _single(elementary.atanh),
    "erf": _single(exponentials.erf),
    "erfc": _single(exponentials.erfc),
    "sigmoid": _of_floats(exponentials.sigmoid),
    "isnan": lambda dtype, x: x.is_nan() if dtype.is_float else _never(x),
    "isinf": lambda dtype, x: abs(x) == float("inf") if dtype.is_float else _never(x),
    "add": _by_kind("fadd", "add", "or"),
    "mul": _by_kind("fmul", "mul", "and"),
    "mulhi": _multiply_high,
    "maximum": _extremum("ogt", "smax", "umax", "or"),
    "minimum": _extremum("olt", "smin", "umin", "and"),
    "and": _by_kind("and", "and"),
    "or": _by_kind("or", "or"),
    "xor": _by_kind("xor", "xor"),
    "sub": _by_kind("fsub", "sub", "xor"),
    "div": lambda _, x, y: x / y,
    "floordiv": _floordiv,
    "truncdiv": _truncdiv,
    "mod": _mod,
    "fmod": _fmod,
    "shl": _shift_left,
    "shr": _shift_right,
    "pow": elementary.power,
    "atan2": _single(elementary.atan2),
    "eq": _compare("oeq", "eq", "eq"),
    "ne": _compare("une", "ne", "ne"),
    "lt": _compare("olt", "slt", "ult"),
    "le": _compare("ole", "sle", "ule"),
    "gt": _compare("ogt", "sgt", "ugt"),
    "ge": _compare("oge", "sge", "uge"),
    "fma": lambda dtype, x, y, z: x.intrinsic("fma", y, z) if dtype.is_float else x * y + z,
    "where": lambda _, condition, x, y: condition.where(x, y),
}
