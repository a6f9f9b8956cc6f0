"""Rules for lane-by-lane ops: one row per scalar function, and casts.

Rows say how a function is written for each class of element type so that it rounds like eager
torch: libdevice quality for transcendental functions, IEEE division and square root,
NaN-propagating extremes, floor semantics for ``//`` and ``%``. Half floats are computed in fp32
where Triton has no half form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilesmith.analysis.scalar_arithmetic import convert as convert_constant
from tilesmith.backends.source_writer import Precedence
from tilesmith.backends.triton.emission.emitter import Emitter, Rules
from tilesmith.backends.triton.emission.spelling import (
    Expr,
    broadcast_shapes,
    call,
    literal,
    triton_dtype,
)
from tilesmith.backends.triton.ops.verbatim import uses_libdevice
from tilesmith.backends.triton.workarounds.narrow_conversions import narrowing, passes_through_fp32
from tilesmith.backends.triton.workarounds.short_integers import (
    Form,
    difference,
    magnitude_of,
    negative_of,
    product,
    total,
)
from tilesmith.backends.triton.workarounds.special_values import is_narrow_float, rounded
from tilesmith.backends.triton.workarounds.view_order import expanded, find_expansion
from tilesmith.dtypes import BF16, BOOL, F32, F64, I32, I64, DType
from tilesmith.ir.ops.elementwise import INFIX, Cast, Elementwise


@dataclass(frozen=True)
class Template:
    """How one scalar function is written."""

    default: Form
    integer: Form | None = None
    boolean: Form | None = None
    double: Form | None = None
    fast: Form | None = None
    """Used instead of ``default`` under fast_math."""
    widens: bool = False
    """Whether half floats are computed in fp32 and rounded back."""

    def form(self, dtype: DType, is_fast: bool) -> Form:
        """The form for operands of that type."""
        if dtype.is_bool:
            return self.boolean or self.integer or self.default
        if dtype.is_integer:
            return self.integer or self.default
        if dtype == F64:
            return self.double or self.default
        return (self.fast if is_fast else None) or self.default


def _negated(emitter: Emitter, args: Sequence[Expr], dtype: DType) -> Expr:
    # Triton's unary minus is 0 - x, which makes -(0.0) a positive zero.
    return args[0].infix("*", literal(-1.0))


def _infix(symbol: str) -> Form:
    return lambda emitter, args, dtype: args[0].infix(symbol, args[1])


def _function(name: str, *options: str) -> Form:
    def form(emitter: Emitter, args: Sequence[Expr], dtype: DType) -> Expr:
        if name.startswith("libdevice."):
            emitter.spelling.needs.has_libdevice = True
        shape = broadcast_shapes(*(arg.shape for arg in args))
        if dtype not in (F32, I32, I64, BOOL):
            # A call would guess another type for a literal.
            args = [a if a.constant is None else emitter.spelling.typed(a, dtype) for a in args]
        return call(name, *args, *options, shape=shape)

    return form


def _helper(name: str) -> Form:
    def form(emitter: Emitter, args: Sequence[Expr], dtype: DType) -> Expr:
        if uses_libdevice(name):
            emitter.spelling.needs.has_libdevice = True
        # A helper asks its arguments for their type, which a Python number does not have.
        tensors = [emitter.spelling.typed(arg, dtype) for arg in args]
        shape = broadcast_shapes(*(arg.shape for arg in args))
        return call(emitter.spelling.helper(name), *tensors, shape=shape)

    return form


def _prefix(symbol: str) -> Form:
    def form(emitter: Emitter, args: Sequence[Expr], dtype: DType) -> Expr:
        text = f"{symbol}{args[0].at(Precedence.UNARY)}"
        return Expr(text, Precedence.UNARY, args[0].shape, is_untyped=args[0].is_untyped)

    return form


def _identity(emitter: Emitter, args: Sequence[Expr], dtype: DType) -> Expr:
    return args[0]


def _extreme(name: str) -> Form:
    plain = _function(name, "propagate_nan=tl.PropagateNan.ALL")

    def form(emitter: Emitter, args: Sequence[Expr], dtype: DType) -> Expr:
        result = plain(emitter, args, dtype)
        # Triton compares bfloat16 in fp32 and leaves the result there.
        return result.method("to", triton_dtype(BF16)) if dtype == BF16 else result

    return form


def _truncated_quotient(emitter: Emitter, args: Sequence[Expr], dtype: DType) -> Expr:
    quotient = SCALAR_TEMPLATES["div"].form(dtype, is_fast=False)(emitter, args, dtype)
    return SCALAR_TEMPLATES["trunc"].default(emitter, [quotient], dtype)


def _sigmoid(*, is_rounded: bool) -> Form:
    def form(emitter: Emitter, args: Sequence[Expr], dtype: DType) -> Expr:
        negated = _prefix("-")(emitter, args, dtype)
        exponential = SCALAR_TEMPLATES["exp"].default(emitter, [negated], dtype)
        divide = SCALAR_TEMPLATES["div"].form(dtype, is_fast=is_rounded)
        return divide(emitter, [literal(1.0), literal(1.0).infix("+", exponential)], dtype)

    return form


def _is_nan(emitter: Emitter, args: Sequence[Expr], dtype: DType) -> Expr:
    return args[0].infix("!=", args[0])


def _never(emitter: Emitter, args: Sequence[Expr], dtype: DType) -> Expr:
    return literal(False)


def _is_infinite(emitter: Emitter, args: Sequence[Expr], dtype: DType) -> Expr:
    return call("tl.abs", args[0], shape=args[0].shape).infix("==", literal(float("inf")))


def _where(emitter: Emitter, args: Sequence[Expr], dtype: DType) -> Expr:
    condition, chosen, other = args
    if condition.constant is not None:
        return chosen if condition.constant else other
    if chosen.is_untyped and other.is_untyped and dtype not in (F32, I32, BOOL):
        other = emitter.spelling.typed(other, dtype)
    shape = broadcast_shapes(*(arg.shape for arg in args))
    return call("tl.where", condition, chosen, other, shape=shape)


def _libdevice(name: str, **forms: Form) -> Template:
    return Template(_function(f"libdevice.{name}"), widens=True, **forms)


def _language(name: str, **forms: Form) -> Template:
    return Template(_function(f"tl.{name}"), widens=True, **forms)


_LIBDEVICE = (
    *("expm1", "log10", "log1p", "erfc", "tan", "asin", "acos", "atan", "atan2"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
)
_LANGUAGE = ("log", "log2", "sin", "cos", "erf", "fma")
SCALAR_TEMPLATES: dict[str, Template] = {
    **{name: _libdevice(name) for name in _LIBDEVICE},
    **{name: _language(name) for name in _LANGUAGE},
    **{name: Template(_infix(symbol)) for name, symbol in INFIX.items()},
    "neg": Template(_negated, integer=negative_of(_prefix("-"))),
    "abs": Template(_function("tl.abs"), integer=magnitude_of(_function("tl.abs"))),
    "floor": _language("floor", integer=_identity),
    "ceil": _language("ceil", integer=_identity),
    "round": _libdevice("nearbyint", integer=_identity),
    "trunc": _libdevice("trunc", integer=_identity),
    "sqrt": _language("sqrt_rn", double=_function("libdevice.sqrt"), fast=_function("tl.sqrt")),
    "rsqrt": _libdevice("rsqrt", fast=_function("tl.rsqrt")),
    "not": Template(_prefix("~")),
    # tl.exp multiplies by log2(e) in fp32 first, which loses bits as |x| grows.
    "exp": _libdevice("exp", fast=_function("tl.exp")),
    # ex2.approx on the whole range, as in libdevice, without its detour for subnormal arguments.
    "exp2": _language("exp2", double=_function("libdevice.exp2")),
    "sigmoid": Template(_sigmoid(is_rounded=False), fast=_function("tl.sigmoid"), widens=True),
    "isnan": Template(_is_nan, integer=_never),
    "isinf": Template(_is_infinite, integer=_never),
    "add": Template(_infix("+"), integer=total, boolean=_infix("|")),
    "mul": Template(_infix("*"), integer=product, boolean=_infix("&")),
    "sub": Template(_infix("-"), integer=difference),
    "maximum": Template(
        _extreme("tl.maximum"), integer=_function("tl.maximum"), boolean=_infix("|")
    ),
    "minimum": Template(
        _extreme("tl.minimum"), integer=_function("tl.minimum"), boolean=_infix("&")
    ),
    "mulhi": Template(_function("tl.umulhi")),
    # "/" on fp32 is div.full, off by up to 2 ulp.
    "div": Template(_function("tl.div_rn"), double=_infix("/"), fast=_infix("/"), widens=True),
    "floordiv": Template(
        _helper("_float_floor_divide"), integer=_helper("_floor_divide"), widens=True
    ),
    "truncdiv": Template(_truncated_quotient, integer=_infix("//"), widens=True),
    "mod": Template(_helper("_float_modulo"), integer=_helper("_floor_modulo"), widens=True),
    "fmod": Template(_function("libdevice.fmod"), integer=_infix("%"), widens=True),
    "pow": _libdevice("pow", integer=_helper("_integer_power")),
    "where": Template(_where),
}

_PLAIN_DIVISIONS = {"floordiv": "//", "mod": "%"}


def _apply(emitter: Emitter, op: Elementwise) -> Expr:
    args = [emitter.expr(arg) for arg in op.args]
    dtype = op.args[-1].tile.dtype
    plain = _PLAIN_DIVISIONS.get(op.fn)
    if plain and dtype.is_integer:
        # Truncating and flooring give the same where nothing is negative.
        is_unsigned = dtype.lowest == 0
        if is_unsigned or all(emitter.signs.is_non_negative(arg) for arg in op.args):
            return args[0].infix(plain, args[1])
    template = SCALAR_TEMPLATES[op.fn]
    is_narrow = is_narrow_float(dtype) and op.fn != "where"
    is_halved = is_narrow or (template.widens and dtype.is_low_precision_float)
    # An error of 2 ulp in fp32 vanishes where a quotient is rounded to a half type afterwards.
    is_rounded = is_halved or op.result in emitter.rounded_values
    is_fast = emitter.is_fast or (op.fn == "div" and is_rounded)
    if op.fn == "sigmoid" and is_rounded and not is_fast:
        template = Template(_sigmoid(is_rounded=True), widens=True)
    if not is_halved:
        return template.form(dtype, is_fast)(emitter, args, dtype)
    wide = [convert(arg, dtype, F32) for arg in args]
    result = template.form(F32, is_fast)(emitter, wide, F32)
    target = op.result.tile.dtype
    return rounded(emitter, result, target) if is_narrow else convert(result, F32, target)


def _emit_cast(emitter: Emitter, op: Cast) -> None:
    expansion = find_expansion(emitter, op)
    if expansion is None:
        emitter.define(op.result, _cast(emitter, op, emitter.expr(op.x)))
        return
    found = _cast(emitter, op, emitter.expr(expansion.x))
    name = emitter.named(emitter.name_hint(op.result), found)
    emitter.alias(op.result, expanded(name, expansion.axes, op.x.tile.rank))


def _cast(emitter: Emitter, op: Cast, expr: Expr) -> Expr:
    """An operand's expression, or one with fewer axes, in the type of the result."""
    source, target = op.x.tile.dtype, op.dtype
    if op.bitcast and source != target:
        # A number has no method, and no type of its own.
        shaped = emitter.spelling.filled if expr.is_untyped else emitter.spelling.conform
        return shaped(expr, op.x.tile).method("to", triton_dtype(target), "bitcast=True")
    function = narrowing(op.x, target, emitter.uses.defining)
    if function is None or expr.constant is not None:
        return convert(expr, source, target)
    wide = convert(expr, source, F32) if passes_through_fp32(source, target) else expr
    return call(emitter.spelling.helper(function), wide, shape=expr.shape)


def convert(expr: Expr, source: DType, target: DType) -> Expr:
    """``expr`` of type ``source`` rounded to type ``target``."""
    if source == target:
        return expr
    if expr.constant is not None:
        value = convert_constant(expr.constant, source, target)
        if value is not None:
            return literal(value)
        return call("tl.full", "[]", expr, triton_dtype(source)).method("to", triton_dtype(target))
    if target.is_bool:
        return expr.infix("!=", literal(0.0 if source.is_float else 0))
    if passes_through_fp32(source, target):
        return convert(convert(expr, source, F32), F32, target)
    if expr.is_untyped:
        return call("tl.cast", expr, triton_dtype(target))
    return expr.method("to", triton_dtype(target))


RULES: Rules = {
    Elementwise: lambda emitter, op: emitter.define(op.result, _apply(emitter, op)),
    Cast: _emit_cast,
}
