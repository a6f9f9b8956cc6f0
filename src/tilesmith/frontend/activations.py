"""Torch's activation functions, composed of scalar functions in fp32 and rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilesmith.diagnostics import errors
from tilesmith.frontend.elementwise import clamp, where
from tilesmith.frontend.emission import apply, as_tile, cast, full
from tilesmith.frontend.promotion import common_dtype, compute_dtype
from tilesmith.frontend.tracer import locate
from tilesmith.frontend.values import TileValue

Rule = Callable[..., Any]
SQRT_HALF = 1 / math.sqrt(2)
TANH_SCALE = math.sqrt(2 / math.pi)


def in_wide_type(function: Callable[..., TileValue]) -> Rule:
    """Compute in fp32 for half types and round the result back."""

    def rule(x: TileValue, *args: Any, inplace: bool = False, **kwargs: Any) -> TileValue:
        wide = cast(x, compute_dtype(x.tile.dtype))
        return cast(function(wide, *args, **kwargs), x.tile.dtype)

    return rule


def relu(x: TileValue) -> TileValue:
    """``max(x, 0)``."""
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
    raise errors.UnsupportedTorchArgument(
        name="F.gelu", argument=f"approximate={approximate!r}", loc=locate()
    )


def silu(x: TileValue) -> TileValue:
    """``x * sigmoid(x)``."""
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
    """Slope below zero."""
    return where(apply("gt", x, 0.0), x, apply("mul", x, negative_slope))


def elu(x: TileValue, alpha: float = 1.0) -> TileValue:
    """Exponential below zero."""
    return where(apply("gt", x, 0.0), x, apply("mul", apply("expm1", x), alpha))


def mish(x: TileValue) -> TileValue:
    """``x * tanh(softplus(x))``."""
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


def in_common_type(function: Callable[..., TileValue]) -> Rule:
    """Operands meet in the type they promote to, wide for half types; rounded once."""

    def rule(*operands: Any, **kwargs: Any) -> TileValue:
        dtype = common_dtype(*operands)
        wide = [as_tile(operand, compute_dtype(dtype)) for operand in operands]
        return cast(function(*wide, **kwargs), dtype)

    return rule


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


ACTIVATIONS: dict[str, Rule] = {
    "relu": in_wide_type(relu), "relu_": in_wide_type(relu), "gelu": in_wide_type(gelu),
    "silu": in_wide_type(silu), "softplus": in_wide_type(softplus),
    "logsigmoid": in_wide_type(logsigmoid), "log_sigmoid": in_wide_type(logsigmoid),
    "leaky_relu": in_wide_type(leaky_relu), "elu": in_wide_type(elu), "mish": in_wide_type(mish),
    "hardtanh": in_wide_type(hardtanh), "relu6": in_wide_type(lambda x: hardtanh(x, 0.0, 6.0)),
    "threshold": in_wide_type(threshold), "_threshold": in_wide_type(threshold), "sign": sign,
    "lerp": in_common_type(lerp), "addcmul": in_common_type(addcmul),
    "addcdiv": in_common_type(addcdiv), "hypot": in_common_type(hypot),
    "masked_fill": masked_fill,
}  # fmt: skip
