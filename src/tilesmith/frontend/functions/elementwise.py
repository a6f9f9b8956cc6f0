"""Torch's elementwise functions as rows: which scalar function, computed in which type.

``Exactly rounded`` functions (add, mul, comparisons, ...) run in the result type; the others run in
fp32 for half types and are rounded back, as eager does.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

import tilesmith.exc as errors
from tilesmith.dtypes import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, DType
from tilesmith.frontend.functions.promotion import result_dtype
from tilesmith.frontend.refusals import unsupported_argument
from tilesmith.frontend.tracing.emission import (
    Operand,
    Rule,
    apply,
    as_tile,
    cast,
    detach,
    full,
    reinterpret,
)
from tilesmith.frontend.tracing.values import Scalar, TileValue
from tilesmith.interpreter.torch_dtypes import from_torch, to_torch
from tilesmith.ir.types import Dim

_FLOAT_UNARY = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos",
    "atan",
    "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "sigmoid", "sqrt", "rsqrt",
)  # fmt: skip
_EXACT_UNARY = ("neg", "abs", "floor", "ceil", "round", "trunc")
_EXACT_BINARY = ("maximum", "minimum")
_ROUNDED_BINARY = {"remainder": "mod", "fmod": "fmod", "atan2": "atan2", "pow": "pow"}
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_BITWISE = {
    "bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor",
    "bitwise_left_shift": "shl", "bitwise_right_shift": "shr",
}  # fmt: skip
_LOGICAL = {"logical_and": "and", "logical_or": "or", "logical_xor": "xor"}
_ROUNDING_MODES = {"floor": "floordiv", "trunc": "truncdiv"}


def _as_symbolic(fn: str, result: TileValue, operands: tuple[Any, ...]) -> TileValue:
    """Arithmetic on symbolic numbers alone gives a symbolic number."""
    is_weak = all(isinstance(o, (int, float, Scalar)) for o in operands)
    if not is_weak or result.tile.rank > 0:
        return result
    number = Scalar(result.value)
    if result.tile.dtype is F32:
        number.double = lambda: apply(fn, *operands, dtype=F64)
    return number


def _symbolic_dtype(operands: tuple[Any, ...]) -> DType | None:
    """Index arithmetic stays in the operands' own integer type, unlike torch's Python ints."""
    scalars = [o for o in operands if isinstance(o, Scalar)]
    if len(scalars) != sum(isinstance(o, TileValue) for o in operands):
        return None
    has_float = any(isinstance(o, float) for o in operands)
    if has_float or not all(s.tile.dtype.is_integer for s in scalars):
        return F32
    return max((s.tile.dtype for s in scalars), key=lambda dtype: dtype.bits)


def binary(
    left: Operand, right: Operand, *, fn: str, name: str = "", is_exact: bool = True
) -> TileValue:
    """An arithmetic function of two operands; ``name`` is torch's where it differs."""
    operands = (left, right)
    dtype = _symbolic_dtype(operands) or result_dtype(name or fn, left, right)
    computed = apply(fn, left, right, dtype=dtype if is_exact else dtype.computed)
    return _as_symbolic(fn, cast(computed, dtype), operands)


def unary(x: Operand, *, fn: str, is_exact: bool = False) -> TileValue:
    """A function of one operand."""
    dtype = (_symbolic_dtype((x,)) if is_exact else None) or result_dtype(fn, x)
    source = as_tile(x)
    if is_exact and fn not in ("neg", "abs") and not dtype.is_float:
        return source
    computed = apply(fn, source, dtype=dtype if is_exact else dtype.computed)
    return _as_symbolic(fn, cast(computed, dtype), (x,))


def comparison(left: Operand | None, right: Operand | None, *, fn: str) -> TileValue | bool:
    """Operands meet in their promoted type; the result is bool."""
    # `x == None` asks about the host object, which is known now.
    if left is None or right is None:
        return fn == "ne"
    dtype = _symbolic_dtype((left, right)) or result_dtype("add", left, right)
    return apply(fn, left, right, dtype=dtype)


def truth(x: Operand) -> TileValue:
    """Bools as they are; of numbers, whether they are not zero."""
    tile = as_tile(x)
    return tile if tile.tile.dtype == BOOL else apply("ne", tile, 0)


def logical(left: Operand, right: Operand, *, fn: str) -> TileValue:
    """A function of two truths."""
    return apply(fn, truth(left), truth(right), dtype=BOOL)


def add(left: Operand, right: Operand, *, alpha: Any = 1) -> Any:
    """``torch.add``; a sum of scalars remembers its summands for slices."""
    if not _is_number(alpha, 1):
        return _add_scaled("add", left, right, alpha)
    result = binary(left, right, fn="add")
    if isinstance(result, Scalar):
        result.sum_of = (left, right)
    return result


def subtract(left: Operand, right: Operand, *, alpha: Any = 1) -> Any:
    """``torch.sub``, with ``alpha`` in one rounding."""
    if not _is_number(alpha, 1):
        return _add_scaled("sub", left, right, -alpha)
    return binary(left, right, fn="sub")


def _is_number(operand: Any, value: float) -> bool:
    return isinstance(operand, (int, float)) and operand == value


def _add_scaled(name: str, left: Operand, right: Operand, alpha: Any) -> TileValue:
    """``left + alpha * right`` in the type of the plain sum, rounded once."""
    dtype = result_dtype(name, left, right)
    if dtype.is_float:
        return cast(apply("fma", right, alpha, left, dtype=dtype.computed), dtype)
    return apply("add", left, apply("mul", right, alpha, dtype=dtype), dtype=dtype)


def multiply(left: Operand, right: Operand) -> Any:
    """``torch.mul``; a number meets half types in fp32, as in eager: it is not rounded first."""
    operands = (left, right)
    dtype = _symbolic_dtype(operands) or result_dtype("mul", left, right)
    has_number = any(not isinstance(o, TileValue) or o.is_weak for o in operands)
    wide = dtype.computed if has_number else dtype
    result = _as_symbolic("mul", cast(apply("mul", left, right, dtype=wide), dtype), operands)
    if isinstance(result, Scalar):
        result.as_dim = _product_of_sizes(left, right)
    return result


def _product_of_sizes(left: Operand, right: Operand) -> Dim | None:
    """``2 * t.block_size`` as a size: the tile's axis, each element of which becomes two."""
    dims = [o.as_dim for o in (left, right) if isinstance(o, Scalar)]
    numbers = [Dim.of(o) for o in (left, right) if isinstance(o, int) and o >= 0]
    known = [dim for dim in dims if dim is not None]
    if len(known) + len(numbers) != 2:
        return None
    first, second = [*known, *numbers]
    return first * second


def divide(left: Operand, right: Operand, *, rounding_mode: str | None = None) -> Any:
    """``torch.div`` with its three rounding modes."""
    if rounding_mode is None:
        dtype = result_dtype("true_divide", left, right)
        ratio = apply("div", left, right, dtype=dtype.computed)
        return _as_symbolic("div", cast(ratio, dtype), (left, right))
    if rounding_mode not in _ROUNDING_MODES:
        raise unsupported_argument("torch.div", f"rounding_mode={rounding_mode!r}")
    dtype = _symbolic_dtype((left, right)) or result_dtype("mul", left, right)
    fn = _ROUNDING_MODES[rounding_mode]
    quotient = apply(fn, left, right, dtype=dtype.computed)
    return _as_symbolic(fn, cast(quotient, dtype), (left, right))


def power(base: Operand, exponent: Operand) -> Any:
    """``**``; small integer exponents become products."""
    if _is_number(exponent, 0.5):
        return unary(base, fn="sqrt")
    if any(_is_number(exponent, small) for small in range(5)):
        return _integer_power(base, exponent)
    return binary(base, exponent, fn="pow", is_exact=False)


def _integer_power(base: Operand, exponent: Any) -> Any:
    """Products in the computing type, rounded once."""
    dtype = _symbolic_dtype((base, exponent)) or result_dtype("pow", base, exponent)
    wide = as_tile(base, dtype.computed)
    if exponent == 0:
        return full(1, dtype, wide.tile.shape)
    result = wide
    for _ in range(int(exponent) - 1):
        result = apply("mul", result, wide)
    return _as_symbolic("pow", cast(result, dtype), (base, exponent))


def where(
    condition: Operand, then: Operand | None = None, otherwise: Operand | None = None
) -> TileValue:
    """``torch.where`` with tensor or number arms."""
    if then is None or otherwise is None:
        raise errors.DataDependentOutputShapeNotSupported(operation="torch.where(condition)")
    numbers = [arm for arm in (then, otherwise) if not isinstance(arm, TileValue)]
    if len(numbers) == 2:
        dtype = F32 if any(isinstance(n, float) for n in numbers) else I64
    else:
        dtype = result_dtype("add", then, otherwise)
    return apply("where", truth(condition), then, otherwise, dtype=dtype)


def clamp(x: TileValue, min: Any = None, max: Any = None) -> TileValue:
    """``torch.clamp``: bounds promote as operands of a sum do, so numbers stay weak."""
    if min is not None:
        x = binary(x, min, fn="maximum", name="add")
    if max is not None:
        x = binary(x, max, fn="minimum", name="add")
    return x


def bitwise(left: Operand, right: Operand, *, fn: str, name: str) -> TileValue:
    """A function of the bits of two integers."""
    _check_bits(name, left, right)
    return binary(left, right, fn=fn, name=name)


def bitwise_not(x: TileValue) -> TileValue:
    """``~`` of integers and bools."""
    _check_bits("bitwise_not", x)
    return apply("not", x)


def _check_bits(name: str, *operands: Operand) -> None:
    """Torch gives the bits of floats no meaning, but promotes them before it says so."""
    for operand in operands:
        dtype = operand.tile.dtype if isinstance(operand, TileValue) else None
        if isinstance(operand, float) or (dtype is not None and dtype.is_float):
            kind = "a float" if dtype is None else f"a tensor of {to_torch(dtype)}"
            raise errors.UnsupportedTorchArgument(
                name=f"torch.{name}",
                argument=kind,
                fix="convert them to integers, e.g. x.to(torch.int32), or compare them first",
            )


def is_test(x: TileValue, *, fn: str) -> TileValue:
    """``isnan``/``isinf``: always false for integers."""
    if not x.tile.dtype.is_float:
        return apply("ne", x, x)
    return apply(fn, cast(x, x.tile.dtype.computed))


def to_dtype(x: TileValue, *args: Any, dtype: Any = None, **_: Any) -> TileValue:
    """``.to(dtype)``, ``.to(other)``; devices and memory formats mean nothing here."""
    for arg in (*args, dtype):
        if isinstance(arg, torch.dtype):
            return cast(as_tile(x), from_torch(arg))
        if hasattr(arg, "dtype"):
            return cast(as_tile(x), from_torch(arg.dtype))
        if isinstance(arg, str) and isinstance(getattr(torch, arg, None), torch.dtype):
            # Torch takes a string for a device, as "cpu", and says so.
            fix = f"did you mean torch.{arg}?"
            raise errors.UnsupportedTorchArgument(name="Tensor.to", argument=repr(arg), fix=fix)
    return x


def bitcast(x: TileValue, dtype: torch.dtype) -> TileValue:
    """``.view(dtype)``: the same bits as another type of the same width."""
    target = from_torch(dtype)
    if target.bits != x.tile.dtype.bits:
        raise unsupported_argument("Tensor.view", f"dtype of another width ({dtype})")
    return reinterpret(x, target)


def convert(x: TileValue, *, to: DType, **_: Any) -> TileValue:
    """``.float()`` and its like."""
    return cast(as_tile(x), to)


_CONVERSIONS = {
    "float": F32, "half": F16, "bfloat16": BF16, "double": F64, "int": I32, "long": I64,
    "short": I16, "char": I8, "byte": U8,
}  # fmt: skip
ELEMENTWISE: dict[str, Rule] = {
    **{name: partial(unary, fn=name) for name in _FLOAT_UNARY},
    **{name: partial(unary, fn=name, is_exact=True) for name in _EXACT_UNARY},
    **{name: partial(binary, fn=name) for name in _EXACT_BINARY},
    "mul": multiply,
    **{n: partial(binary, fn=fn, name=n, is_exact=False) for n, fn in _ROUNDED_BINARY.items()},
    **{name: partial(comparison, fn=name) for name in _COMPARISONS},
    **{name: partial(bitwise, fn=fn, name=name) for name, fn in _BITWISE.items()},
    **{name: partial(logical, fn=fn) for name, fn in _LOGICAL.items()},
    "add": add, "sub": subtract, "subtract": subtract, "multiply": multiply,
    "div": divide, "divide": divide, "true_divide": divide,
    "floor_divide": lambda a, b: divide(a, b, rounding_mode="floor"),
    "rsub": lambda x, other, alpha=1: subtract(other, x, alpha=alpha),
    "pow": power, "square": lambda x: power(x, 2), "reciprocal": lambda x: divide(1.0, x),
    "where": where, "clamp": clamp, "clip": clamp,
    "clamp_min": lambda x, min: clamp(x, min=min), "clamp_max": lambda x, max: clamp(x, max=max),
    "bitwise_not": bitwise_not, "logical_not": lambda x: apply("not", truth(x)),
    "isnan": partial(is_test, fn="isnan"), "isinf": partial(is_test, fn="isinf"),
    "isfinite": lambda x: apply("not", apply("or", x.isnan(), x.isinf())),
    "to": to_dtype, "type": to_dtype, "type_as": lambda x, other: cast(x, from_torch(other.dtype)),
    **{name: partial(convert, to=dtype) for name, dtype in _CONVERSIONS.items()},
    "bool": truth,
    # Device values are immutable already.
    **dict.fromkeys(("clone", "contiguous"), lambda x, *_, **__: x), "detach": detach,
    "negative": partial(unary, fn="neg", is_exact=True),
    "absolute": partial(unary, fn="abs", is_exact=True),
}  # fmt: skip
