"""Activations and other pointwise functions, composed of a few scalar functions.

Half types are computed in fp32 and rounded once.
"""

from __future__ import annotations

import math
from functools import partial

import torch

from tilesmith.dtypes import BOOL, F64
from tilesmith.frontend.functions import promotion
from tilesmith.frontend.refusals import unsupported_argument
from tilesmith.frontend.tracing.emission import (
    Operand,
    Rule,
    apply,
    as_tile,
    broadcast_to,
    cast,
    expand_dims,
    full,
    select,
)
from tilesmith.frontend.tracing.values import TileValue, dispatch
from tilesmith.interpreter.torch_dtypes import to_torch

INFINITY = float("inf")
SELU_ALPHA = 1.6732632423543772
SELU_SCALE = 1.0507009873554805
TANH_SCALE = math.sqrt(2 / math.pi)


def gelu(x: TileValue, approximate: str = "none") -> TileValue:
    """``x * Phi(x)``, by erf or by the tanh approximation."""
    if approximate == "none":
        phi = (x * (1 / math.sqrt(2))).erf() + 1.0
        return x * 0.5 * phi
    if approximate == "tanh":
        inner = (x + x * x * x * 0.044715) * (2 * TANH_SCALE)
        # (1 + tanh(z)) / 2 without its cancellation where tanh(z) is near -1.
        return x * inner.sigmoid()
    raise unsupported_argument("F.gelu", f"approximate={approximate!r}")


def softplus(x: TileValue, beta: float = 1.0, threshold: float = 20.0) -> TileValue:
    """``log(1 + exp(beta x)) / beta``, linear above the threshold."""
    scaled = x * beta
    curve = scaled.exp().log1p() / beta
    return select(scaled > threshold, x, curve)


def logsigmoid(x: TileValue) -> TileValue:
    """``log(sigmoid(x))`` without overflow."""
    tail = (-abs(x)).exp().log1p()
    return apply("minimum", x, 0.0) - tail


def elu(x: TileValue, alpha: float = 1.0) -> TileValue:
    """``x`` above zero, ``alpha * (exp(x) - 1)`` below."""
    return select(x > 0.0, x, x.expm1() * alpha)


def sign(x: TileValue) -> TileValue:
    """-1, 0 or 1, in the operand's type; NaN gives 0 as torch's comparison form does."""
    dtype = x.tile.dtype
    return x if dtype.is_bool else cast(x > 0, dtype) - cast(x < 0, dtype)


def lerp(start: TileValue, end: TileValue, weight: TileValue) -> TileValue:
    """``start + weight * (end - start)``, from the nearer end."""
    distance = end - start
    from_start = apply("fma", weight, distance, start)
    from_end = end - distance * (1.0 - weight)
    return select(abs(weight) < 0.5, from_start, from_end)


def hypot(a: TileValue, b: TileValue) -> TileValue:
    """``sqrt(a * a + b * b)`` without overflow; infinite if either is, even next to NaN."""
    a, b = abs(a), abs(b)
    large, small = apply("maximum", a, b), apply("minimum", a, b)
    ratio = small / select(large == 0.0, 1.0, large)
    length = large * apply("fma", ratio, ratio, 1.0).sqrt()
    return select(a.isinf() | b.isinf(), INFINITY, length)


def threshold(x: TileValue, limit: float, value: float) -> TileValue:
    """The value up to the limit, else ``x``, NaN included."""
    return select(x <= limit, full(value, x.tile.dtype), x)


def softshrink(x: TileValue, lambd: float = 0.5) -> TileValue:
    """Towards zero by ``lambd``; NaN stays."""
    within = select(apply("ne", x, x), x, full(0.0, x.tile.dtype))
    above = select(x > lambd, x - lambd, within)
    return select(x < -lambd, x + lambd, above)


def prelu(x: TileValue, weight: TileValue) -> TileValue:
    """A slope below zero for each channel (axis 1)."""
    if x.tile.rank > 1 and weight.tile.rank == 1:
        weight = expand_dims(weight, (0, *range(2, x.tile.rank)))
    return select(x > 0, x, apply("mul", weight, x))


def glu(x: TileValue, dim: int = -1) -> TileValue:
    """The first half, gated by the sigmoid of the second."""
    first, second = dispatch("chunk", (x, 2, dim), {})
    return first * second.sigmoid()


def rrelu(
    x: TileValue, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False
) -> TileValue:
    """``leaky_relu`` with the mean slope; in training it would be random."""
    if training:
        raise unsupported_argument("F.rrelu", "training=True")
    return select(x >= 0.0, x, x * ((lower + upper) / 2))


_WIDE: dict[str, promotion.Composition] = {
    "relu": lambda x: apply("maximum", x, 0), "relu_": lambda x: apply("maximum", x, 0),
    "gelu": gelu, "silu": lambda x: x * x.sigmoid(), "softplus": softplus,
    "logsigmoid": logsigmoid, "log_sigmoid": logsigmoid,
    "leaky_relu": lambda x, negative_slope=0.01: select(x > 0.0, x, x * negative_slope),
    "elu": elu, "selu": lambda x: elu(x, SELU_ALPHA) * SELU_SCALE,
    "celu": lambda x, alpha=1.0: select(x > 0.0, x, (x / alpha).expm1() * alpha),
    "mish": lambda x: x * softplus(x).tanh(), "threshold": threshold, "_threshold": threshold,
    "hardtanh": lambda x, min_val=-1.0, max_val=1.0: x.clamp(min_val, max_val),
    "relu6": lambda x: x.clamp(0.0, 6.0),
    "hardsigmoid": lambda x: (x + 3.0).clamp(0.0, 6.0) * (1 / 6),
    "hardswish": lambda x: x * (x + 3.0).clamp(0.0, 6.0) * (1 / 6),
    "hardshrink": lambda x, lambd=0.5: select(abs(x) <= lambd, 0.0, x),
    "softshrink": softshrink, "glu": glu, "rrelu": rrelu,
}  # fmt: skip
_COMMON: dict[str, promotion.Composition] = {
    "lerp": lerp, "hypot": hypot, "prelu": prelu,
    # The value does not promote integers.
    "addcmul": lambda x, a, b, *, value=1: x + apply("mul", a, value) * b,
    "addcdiv": lambda x, a, b, *, value=1: x + apply("div", apply("mul", a, value), b),
}  # fmt: skip


def extreme_number(x: Operand, other: Operand, *, fn: str) -> TileValue:
    """``fmax``/``fmin``: a NaN counts only next to another."""
    dtype = promotion.common_dtype(x, other)
    left, right = as_tile(x, dtype), as_tile(other, dtype)
    result = apply(fn, left, right)
    if not dtype.is_float:
        return result
    result = select(apply("ne", left, left), right, result)
    return select(apply("ne", right, right), left, result)


def heaviside(x: TileValue, values: TileValue) -> TileValue:
    """0 below zero, 1 above, and ``values`` at zero."""
    step = cast(apply("gt", x, 0), values.tile.dtype)
    return select(apply("eq", x, 0), values, step)


def nan_to_num(
    x: TileValue, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> TileValue:
    """Numbers for NaN and the infinities: by default zero and the largest of the type."""
    if not x.tile.dtype.is_float:
        return x
    limits = torch.finfo(to_torch(x.tile.dtype))
    result = select(apply("ne", x, x), 0.0 if nan is None else float(nan), x)
    result = select(x == INFINITY, limits.max if posinf is None else float(posinf), result)
    return select(x == -INFINITY, limits.min if neginf is None else float(neginf), result)


def is_equal_to(value: float) -> Rule:
    """``isposinf``/``isneginf``: always false for integers."""
    return lambda x: x == value if x.tile.dtype.is_float else full(False, BOOL, x.tile.shape)


def isclose(
    x: TileValue, other: TileValue, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> TileValue:
    """Equal, or nearer than ``atol + rtol * |other|``."""
    result = apply("eq", x, other)
    dtype = promotion.float_dtype(x, other).computed
    left, right = cast(x, dtype), cast(other, dtype)
    if equal_nan and x.tile.dtype.is_float:
        result = result | left.isnan() & right.isnan()
    distance = abs(left - right)
    allowed = abs(right * rtol) + atol
    return result | (distance <= allowed) & (distance < INFINITY)


def angle(x: TileValue) -> TileValue:
    """Pi for negative numbers, else zero."""
    dtype = promotion.float_dtype(x)
    wide = cast(x, dtype.computed)
    result = select(wide < 0.0, math.pi, full(0.0, wide.tile.dtype))
    return cast(select(apply("ne", wide, wide), wide, result), dtype)


def round_to_decimals(x: TileValue, *, decimals: int = 0) -> TileValue:
    """``torch.round``: half to even; with decimals, of the scaled number."""
    if not x.tile.dtype.is_float or decimals == 0:
        return apply("round", x) if x.tile.dtype.is_float else x
    scale = 10.0 ** abs(decimals)
    there, back = ("mul", "div") if decimals > 0 else ("div", "mul")
    wide = cast(x, x.tile.dtype.computed)
    return cast(apply(back, apply("round", apply(there, wide, scale)), scale), x.tile.dtype)


def fill(x: TileValue, value: Operand) -> TileValue:
    """``value`` everywhere, in the type of ``x``."""
    if isinstance(value, TileValue):
        every = full(True, BOOL, x.tile.shape)
        return apply("where", every, value, x, dtype=x.tile.dtype)
    return full(value, x.tile.dtype, x.tile.shape)


POINTWISE: dict[str, Rule] = {
    **{name: promotion.in_wide_type(function) for name, function in _WIDE.items()},
    **{name: promotion.in_common_type(function) for name, function in _COMMON.items()},
    "softsign": promotion.in_float_type(lambda x: x / (abs(x) + 1.0)),
    "tanhshrink": promotion.in_float_type(lambda x: x - x.tanh()),
    "masked_fill": lambda x, mask, value: apply("where", mask, value, x, dtype=x.tile.dtype),
    "sign": sign, "sgn": sign,
    "frac": lambda x: apply("sub", x, apply("trunc", x)),
    "fmax": partial(extreme_number, fn="maximum"), "fmin": partial(extreme_number, fn="minimum"),
    "heaviside": heaviside, "nan_to_num": nan_to_num,
    "isposinf": is_equal_to(INFINITY), "isneginf": is_equal_to(-INFINITY),
    "isreal": lambda x: full(True, BOOL, x.tile.shape), "isclose": isclose,
    "float_power": lambda base, exponent: apply("pow", as_tile(base, F64), as_tile(exponent, F64)),
    "angle": angle, "round": round_to_decimals, "fill": fill,
    "copy": lambda x, source, **_: broadcast_to(fill(x, source), x.tile.shape),
    "positive": lambda x, **_: x, "real": lambda x: x,
    "zero": lambda x: full(0, x.tile.dtype, x.tile.shape),
}  # fmt: skip
