"""Activations and other pointwise functions, composed of a few scalar functions.

Half types are computed in fp32 and rounded once.
"""

from __future__ import annotations

import math
from typing import Any

import torch

import tilesmith.exc as errors
from tilesmith.dtypes import BOOL, F64
from tilesmith.frontend.functions.elementwise import clamp, identity, where
from tilesmith.frontend.functions.promotion import (
    common_dtype,
    compute_dtype,
    float_dtype,
    in_common_type,
    in_float_type,
    in_wide_type,
)
from tilesmith.frontend.tracing.emission import (
    Operand,
    Rule,
    apply,
    as_tile,
    broadcast_shapes,
    cast,
    expand_dims,
    full,
)
from tilesmith.frontend.tracing.values import TileValue, dispatch
from tilesmith.interpreter.torch_dtypes import to_torch

SQRT_HALF = 1 / math.sqrt(2)
SELU_ALPHA = 1.6732632423543772
SELU_SCALE = 1.0507009873554805
TANH_SCALE = math.sqrt(2 / math.pi)


def relu(x: TileValue) -> TileValue:
    """``max(x, 0)``; NaN stays."""
    return apply("maximum", x, 0)


def gelu(x: TileValue, approximate: str = "none") -> TileValue:
    """``x * Phi(x)``, by erf or by the tanh approximation."""
    if approximate == "none":
        phi = apply("add", apply("erf", apply("mul", x, SQRT_HALF)), 1.0)
        return apply("mul", apply("mul", x, 0.5), phi)
    if approximate == "tanh":
        cube = apply("mul", apply("mul", x, x), x)
        inner = apply("mul", apply("add", x, apply("mul", cube, 0.044715)), 2 * TANH_SCALE)
        # (1 + tanh(z)) / 2 without its cancellation where tanh(z) is near -1.
        return apply("mul", x, apply("sigmoid", inner))
    raise errors.UnsupportedTorchArgument(name="F.gelu", argument=f"approximate={approximate!r}")


def silu(x: TileValue) -> TileValue:
    """``x * sigmoid(x)``, also called swish."""
    return apply("mul", x, apply("sigmoid", x))


def softplus(x: TileValue, beta: float = 1.0, threshold: float = 20.0) -> TileValue:
    """``log(1 + exp(beta x)) / beta``, linear above the threshold."""
    scaled = apply("mul", x, beta)
    curve = apply("div", apply("log1p", apply("exp", scaled)), beta)
    return where(apply("gt", scaled, threshold), x, curve)


def logsigmoid(x: TileValue) -> TileValue:
    """``log(sigmoid(x))`` without overflow: ``min(x, 0) - log1p(exp(-|x|))``."""
    tail = apply("log1p", apply("exp", apply("neg", apply("abs", x))))
    return apply("sub", apply("minimum", x, 0.0), tail)


def leaky_relu(x: TileValue, negative_slope: float = 0.01) -> TileValue:
    """``x`` above zero, ``negative_slope * x`` below."""
    return where(apply("gt", x, 0.0), x, apply("mul", x, negative_slope))


def elu(x: TileValue, alpha: float = 1.0) -> TileValue:
    """``x`` above zero, ``alpha * (exp(x) - 1)`` below."""
    return where(apply("gt", x, 0.0), x, apply("mul", apply("expm1", x), alpha))


def mish(x: TileValue) -> TileValue:
    """``x * tanh(softplus(x))`` with the plain softplus."""
    return apply("mul", x, apply("tanh", softplus(x)))


def hardtanh(x: TileValue, min_val: float = -1.0, max_val: float = 1.0) -> TileValue:
    """Clamp to a range."""
    return clamp(x, min_val, max_val)


def sign(x: TileValue) -> TileValue:
    """-1, 0 or 1, in the operand's type; NaN gives 0 as torch's comparison form does."""
    if x.tile.dtype.is_bool:
        return x
    positive = cast(apply("gt", x, 0), x.tile.dtype)
    return apply("sub", positive, cast(apply("lt", x, 0), x.tile.dtype))


def lerp(start: TileValue, end: TileValue, weight: TileValue) -> TileValue:
    """``start + weight * (end - start)``, from the nearer end."""
    distance = apply("sub", end, start)
    from_start = apply("fma", weight, distance, start)
    from_end = apply("sub", end, apply("mul", distance, apply("sub", 1.0, weight)))
    return where(apply("lt", apply("abs", weight), 0.5), from_start, from_end)


def addcmul(x: TileValue, a: TileValue, b: TileValue, *, value: Any = 1) -> TileValue:
    """``x + value * a * b``."""
    return apply("add", x, apply("mul", apply("mul", a, value), b))


def addcdiv(x: TileValue, a: TileValue, b: TileValue, *, value: Any = 1) -> TileValue:
    """``x + value * a / b``."""
    return apply("add", x, apply("div", apply("mul", a, value), b))


def hypot(a: TileValue, b: TileValue) -> TileValue:
    """``sqrt(a * a + b * b)`` without overflow; infinite if either is, even next to NaN."""
    a, b = apply("abs", a), apply("abs", b)
    large, small = apply("maximum", a, b), apply("minimum", a, b)
    ratio = apply("div", small, where(apply("eq", large, 0.0), 1.0, large))
    length = apply("mul", large, apply("sqrt", apply("fma", ratio, ratio, 1.0)))
    is_infinite = apply("or", apply("isinf", a), apply("isinf", b))
    return where(is_infinite, float("inf"), length)


def masked_fill(x: TileValue, mask: TileValue, value: Any) -> TileValue:
    """``value`` where the mask holds."""
    return apply("where", mask, value, x, dtype=x.tile.dtype)


def threshold(x: TileValue, limit: float, value: float) -> TileValue:
    """The value up to the limit, else ``x``, NaN included."""
    return where(apply("le", x, limit), full(value, x.tile.dtype), x)


def hardsigmoid(x: TileValue) -> TileValue:
    """``clamp(x + 3, 0, 6) / 6``."""
    return apply("mul", clamp(apply("add", x, 3.0), 0.0, 6.0), 1 / 6)


def hardswish(x: TileValue) -> TileValue:
    """``x * hardsigmoid(x)``, divided by 6 last."""
    return apply("mul", apply("mul", x, clamp(apply("add", x, 3.0), 0.0, 6.0)), 1 / 6)


def celu(x: TileValue, alpha: float = 1.0) -> TileValue:
    """ELU with a continuous slope for any alpha."""
    curve = apply("mul", apply("expm1", apply("div", x, alpha)), alpha)
    return where(apply("gt", x, 0.0), x, curve)


def selu(x: TileValue) -> TileValue:
    """ELU with the constants that keep mean and variance."""
    return apply("mul", elu(x, SELU_ALPHA), SELU_SCALE)


def softsign(x: TileValue) -> TileValue:
    """``x / (1 + |x|)``."""
    return apply("div", x, apply("add", apply("abs", x), 1.0))


def softshrink(x: TileValue, lambd: float = 0.5) -> TileValue:
    """Towards zero by ``lambd``; NaN stays."""
    within = where(apply("ne", x, x), x, full(0.0, x.tile.dtype))
    above = where(apply("gt", x, lambd), apply("sub", x, lambd), within)
    return where(apply("lt", x, -lambd), apply("add", x, lambd), above)


def hardshrink(x: TileValue, lambd: float = 0.5) -> TileValue:
    """Zero within ``lambd`` of zero."""
    is_small = apply("le", apply("abs", x), lambd)
    return where(is_small, 0.0, x)


def prelu(x: TileValue, weight: TileValue) -> TileValue:
    """A slope below zero for each channel (axis 1)."""
    if x.tile.rank > 1 and weight.tile.rank == 1:
        weight = expand_dims(weight, (0, *range(2, x.tile.rank)))
    return where(apply("gt", x, 0), x, apply("mul", weight, x))


def glu(x: TileValue, dim: int = -1) -> TileValue:
    """The first half, gated by the sigmoid of the second."""
    first, second = dispatch("chunk", (x, 2, dim), {})
    return apply("mul", first, apply("sigmoid", second))


def rrelu(
    x: TileValue, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False
) -> TileValue:
    """``leaky_relu`` with the mean slope; in training it would be random."""
    if training:
        raise errors.UnsupportedTorchArgument(name="F.rrelu", argument="training=True")
    return where(apply("ge", x, 0.0), x, apply("mul", x, (lower + upper) / 2))


ACTIVATIONS: dict[str, Rule] = {
    "relu": in_wide_type(relu), "relu_": in_wide_type(relu), "gelu": in_wide_type(gelu),
    "silu": in_wide_type(silu), "softplus": in_wide_type(softplus),
    "logsigmoid": in_wide_type(logsigmoid), "log_sigmoid": in_wide_type(logsigmoid),
    "leaky_relu": in_wide_type(leaky_relu), "elu": in_wide_type(elu), "mish": in_wide_type(mish),
    "hardtanh": in_wide_type(hardtanh), "relu6": in_wide_type(lambda x: hardtanh(x, 0.0, 6.0)),
    "threshold": in_wide_type(threshold), "_threshold": in_wide_type(threshold), "sign": sign,
    "lerp": in_common_type(lerp), "addcmul": in_common_type(addcmul),
    "addcdiv": in_common_type(addcdiv), "hypot": in_common_type(hypot),
    "masked_fill": masked_fill, "sgn": sign,
    "hardsigmoid": in_wide_type(hardsigmoid), "hardswish": in_wide_type(hardswish),
    "celu": in_wide_type(celu), "selu": in_wide_type(selu), "softsign": in_float_type(softsign),
    "tanhshrink": in_float_type(lambda x: apply("sub", x, apply("tanh", x))),
    "softshrink": in_wide_type(softshrink), "hardshrink": in_wide_type(hardshrink),
    "prelu": in_common_type(prelu), "glu": in_wide_type(glu), "rrelu": in_wide_type(rrelu),
}  # fmt: skip

INFINITY = float("inf")


def frac(x: TileValue) -> TileValue:
    """What is behind the point, with the sign of ``x``."""
    return apply("sub", x, apply("trunc", x))


def extreme_number(fn: str) -> Rule:
    """``fmax``/``fmin``: a NaN counts only next to another."""

    def rule(x: Operand, other: Operand) -> TileValue:
        dtype = common_dtype(x, other)
        left, right = as_tile(x, dtype), as_tile(other, dtype)
        result = apply(fn, left, right)
        if not dtype.is_float:
            return result
        result = where(apply("ne", left, left), right, result)
        return where(apply("ne", right, right), left, result)

    return rule


def heaviside(x: TileValue, values: TileValue) -> TileValue:
    """0 below zero, 1 above, and ``values`` at zero."""
    step = cast(apply("gt", x, 0), values.tile.dtype)
    return where(apply("eq", x, 0), values, step)


def nan_to_num(
    x: TileValue, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> TileValue:
    """Numbers for NaN and the infinities: by default zero and the largest of the type."""
    if not x.tile.dtype.is_float:
        return x
    limits = torch.finfo(to_torch(x.tile.dtype))
    result = where(apply("ne", x, x), 0.0 if nan is None else float(nan), x)
    largest = limits.max if posinf is None else float(posinf)
    smallest = limits.min if neginf is None else float(neginf)
    result = where(apply("eq", x, INFINITY), largest, result)
    return where(apply("eq", x, -INFINITY), smallest, result)


def is_equal_to(value: float) -> Rule:
    """``isposinf``/``isneginf``: always false for integers."""

    def rule(x: TileValue) -> TileValue:
        if not x.tile.dtype.is_float:
            return full(False, BOOL, x.tile.shape)
        return apply("eq", x, value)

    return rule


def isclose(
    x: TileValue, other: TileValue, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> TileValue:
    """Equal, or nearer than ``atol + rtol * |other|``."""
    result = apply("eq", x, other)
    dtype = float_dtype(x, other)
    left, right = (cast(tile, compute_dtype(dtype)) for tile in (x, other))
    if equal_nan and x.tile.dtype.is_float:
        both = apply("and", apply("isnan", left), apply("isnan", right))
        result = apply("or", result, both)
    distance = apply("abs", apply("sub", left, right))
    allowed = apply("add", apply("abs", apply("mul", right, rtol)), atol)
    is_near = apply("and", apply("le", distance, allowed), apply("lt", distance, INFINITY))
    return apply("or", result, is_near)


def float_power(base: Operand, exponent: Operand) -> TileValue:
    """``**`` in fp64, whatever the types of the operands."""
    return apply("pow", as_tile(base, F64), as_tile(exponent, F64))


def angle(x: TileValue) -> TileValue:
    """Pi for negative numbers, else zero."""
    dtype = float_dtype(x)
    wide = cast(x, compute_dtype(dtype))
    result = where(apply("lt", wide, 0.0), math.pi, full(0.0, wide.tile.dtype))
    return cast(where(apply("ne", wide, wide), wide, result), dtype)


def round_to_decimals(x: TileValue, *, decimals: int = 0) -> TileValue:
    """``torch.round``: half to even; with decimals, of the scaled number."""
    if not x.tile.dtype.is_float or decimals == 0:
        return apply("round", x) if x.tile.dtype.is_float else x
    scale = 10.0 ** abs(decimals)
    there, back = ("mul", "div") if decimals > 0 else ("div", "mul")
    return in_wide_type(lambda wide: apply(back, apply("round", apply(there, wide, scale)), scale))(
        x
    )


def fill(x: TileValue, value: Operand) -> TileValue:
    """``value`` everywhere, in the type of ``x``."""
    shape = broadcast_shapes([x])
    if isinstance(value, TileValue):
        return apply("where", full(True, BOOL, shape), value, x, dtype=x.tile.dtype)
    return full(value, x.tile.dtype, shape)


POINTWISE: dict[str, Rule] = {
    "frac": frac, "fmax": extreme_number("maximum"), "fmin": extreme_number("minimum"),
    "heaviside": heaviside, "nan_to_num": nan_to_num,
    "isposinf": is_equal_to(INFINITY), "isneginf": is_equal_to(-INFINITY),
    "isreal": lambda x: full(True, BOOL, x.tile.shape),
    "isclose": isclose, "float_power": float_power, "angle": angle, "round": round_to_decimals,
    "positive": identity, "real": identity, "fill": fill,
    "zero": lambda x: full(0, x.tile.dtype, x.tile.shape),
}  # fmt: skip
