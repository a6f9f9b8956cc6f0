"""The IR's scalar functions as LLVM instructions, one row for each.

``apply`` takes registers, computes in register form and rounds what an element type of low
precision cannot hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilesmith.backends.cpu.llvm.builder import Builder
from tilesmith.backends.cpu.llvm.registers import Register, number
from tilesmith.backends.cpu.math import (
    division,
    exponentials,
    logarithms,
    trigonometry,
)
from tilesmith.backends.cpu.math.casts import round_to
from tilesmith.backends.cpu.math.term import Term, call_libm
from tilesmith.dtypes import DType, ElementKind

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


def _negate(_: DType, x: Term) -> Term:
    return -x


def _absolute(dtype: DType, x: Term) -> Term:
    if dtype.is_float:
        return abs(x)
    return x.intrinsic("smax", -x) if dtype.kind is ElementKind.SIGNED else x


def _is_nan(dtype: DType, x: Term) -> Term:
    return x.is_nan() if dtype.is_float else _never(x)


def _is_infinite(dtype: DType, x: Term) -> Term:
    return abs(x) == float("inf") if dtype.is_float else _never(x)


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


def _fused_multiply_add(dtype: DType, x: Term, y: Term, z: Term) -> Term:
    return x.intrinsic("fma", y, z) if dtype.is_float else x * y + z


SCALAR_FUNCTIONS_LLVM: dict[str, ScalarEmitter] = {
    "neg": _negate,
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
    "log": _of_floats(logarithms.log),
    "log2": _single(logarithms.log2),
    "log10": _single(logarithms.log10),
    "log1p": _single(logarithms.log1p),
    "sin": _single(trigonometry.sin),
    "cos": _single(trigonometry.cos),
    "tan": _single(trigonometry.tan),
    "asin": _single(trigonometry.asin),
    "acos": _single(trigonometry.acos),
    "atan": _single(trigonometry.atan),
    "sinh": _single(logarithms.sinh),
    "cosh": _single(logarithms.cosh),
    "tanh": _of_floats(logarithms.tanh),
    "asinh": _single(logarithms.asinh),
    "acosh": _single(logarithms.acosh),
    "atanh": _single(logarithms.atanh),
    "erf": _single(exponentials.erf),
    "erfc": _single(exponentials.erfc),
    "sigmoid": _of_floats(exponentials.sigmoid),
    "isnan": _is_nan,
    "isinf": _is_infinite,
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
    "floordiv": division.floordiv,
    "truncdiv": division.truncdiv,
    "mod": division.mod,
    "fmod": division.fmod,
    "shl": _shift_left,
    "shr": _shift_right,
    "pow": logarithms.power,
    "atan2": _single(trigonometry.atan2),
    "eq": _compare("oeq", "eq", "eq"),
    "ne": _compare("une", "ne", "ne"),
    "lt": _compare("olt", "slt", "ult"),
    "le": _compare("ole", "sle", "ule"),
    "gt": _compare("ogt", "sgt", "ugt"),
    "ge": _compare("oge", "sge", "uge"),
    "fma": _fused_multiply_add,
    "where": lambda _, condition, x, y: condition.where(x, y),
}
