"""Gamma, error and Bessel functions and their relatives; the parts that floats are made of.

Each function is a composition over tiles of one float type (``promotion.py``), accurate to a few
ulps of it. Those that cancel near their roots are computed in fp64 whatever the operand's type.
Sign, exponent and neighbours of floats are found through their bits.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

from tilesmith.dtypes import BOOL, F64, I16, I32, I64
from tilesmith.frontend.functions import promotion
from tilesmith.frontend.tracing.emission import (
    Operand,
    Rule,
    apply,
    as_tile,
    cast,
    full,
    reinterpret,
    select,
    strong,
)
from tilesmith.frontend.tracing.values import TileValue

INFINITY = float("inf")
NAN = float("nan")
_SERIES_END = 20.0
"""Up to here Bessel's power series is taken, from here the asymptotic one."""
_WINITZKI = 0.147
_EULER = 0.5772156649015329
_STIRLING = (-691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)
"""Coefficients of Stirling's series, the highest power of 1/x^2 first."""
_STIRLING_START = 10.5
_DIGAMMA_SHIFT = 10
_DIGAMMA_SERIES = (-1 / 12, 691 / 32760, -1 / 132, 1 / 240, -1 / 252, 1 / 120, -1 / 12)
"""Bernoulli numbers B(2k) / 2k with their signs, the highest power of 1/x^2 first."""


def in_double(function: promotion.Composition) -> promotion.Composition:
    """Compute in fp64, whatever the operands' type."""

    def composition(x: TileValue, *args: Any, **kwargs: Any) -> TileValue:
        return cast(function(cast(x, F64), *args, **kwargs), x.tile.dtype)

    return composition


def _signed_like(magnitude: TileValue, x: TileValue) -> TileValue:
    return select(x < 0.0, -magnitude, magnitude)


def erfinv(x: TileValue) -> TileValue:
    """The inverse of erf."""
    y = abs(x)
    magnitude = _inverse_erf(y, 1.0 - y)
    return select(x == 0.0, x, _signed_like(magnitude, x))


def _inverse_erf(y: TileValue, rest: TileValue) -> TileValue:
    """The root z >= 0 of ``erf(z) = y``, where ``rest`` is ``1 - y``.

    Winitzki's closed form, right to some thousandths, then two steps of Halley's method, each of
    which triples the digits; in the tail on erfc, where erf has lost them.
    """
    log = (rest * (y + 1.0)).log()
    middle = apply("fma", log, 0.5, 2 / (math.pi * _WINITZKI))
    root = (middle * middle - log / _WINITZKI).sqrt()
    z = apply("maximum", root - middle, 0.0).sqrt()
    for _ in range(2):
        missing = select(y < 0.5, z.erf() - y, rest - z.erfc())
        slope = (-(z * z)).exp() * (2 / math.sqrt(math.pi))
        step = missing / slope
        z = z - step / apply("fma", z, step, 1.0)
    return select(rest == 0.0, INFINITY, z)


def lgamma(x: TileValue) -> TileValue:
    """``log |gamma(x)|``, reflected for x < 1/2."""
    is_reflected = x < 0.5
    direct = _lgamma_right(select(is_reflected, 1.0 - x, x))
    # sin(pi x) up to its sign, from the distance to the nearest integer.
    sine = abs(((x - apply("round", x)) * math.pi).sin())
    reflected = math.log(math.pi) - sine.log() - direct
    result = select(is_reflected, reflected, direct)
    return select(x.isinf(), INFINITY, result)


def _lgamma_right(x: TileValue) -> TileValue:
    """For x >= 1/2: the series around 2, times what leads there; Stirling's series further on.

    All that is added has one sign, but next to the root at 1, where log1p keeps the digits.
    """
    near = apply("minimum", x, _STIRLING_START)
    steps = (near - 1.5).floor()
    start = near - steps
    # From 2, in an order that is exact next to the roots.
    distance = near - 2.0 - steps
    product: Any = 1.0
    for place in range(int(_STIRLING_START - 1.5)):
        product = select(apply("lt", float(place), steps), start + float(place), 1.0) * product
    path = select(steps < 0.0, -(near - 1.0).log1p(), product.log())
    series = promotion.polynomial(distance, (*_around_two(), 0.0))
    inverse = 1.0 / x
    tail = promotion.polynomial(inverse * inverse, _STIRLING) * inverse
    far = (x - 0.5) * x.log() - x + 0.5 * math.log(2 * math.pi) + tail
    return select(x < _STIRLING_START, series + path, far)


def _around_two() -> tuple[float, ...]:
    """Taylor's coefficients of lgamma at 2, the 30th to the first; they fall like 2^-k / k."""
    higher = [(-1) ** k * _zeta_after_one(k) / k for k in range(30, 1, -1)]
    return (*higher, 1 - _EULER)


def _zeta_after_one(k: int) -> float:
    """``zeta(k) - 1``: some terms, and Euler and Maclaurin's formula for the rest."""
    last = 200.0
    total = math.fsum(n**-k for n in range(2, int(last)))
    rest = last ** (1 - k) / (k - 1) + last**-k / 2 + k * last ** (-k - 1) / 12
    return total + rest - k * (k + 1) * (k + 2) * last ** (-k - 3) / 720


def digamma(x: TileValue) -> TileValue:
    """The derivative of lgamma: the asymptotic series ten further on, reflected for x < 0."""
    is_reflected = x < 0.0
    z = select(is_reflected, 1.0 - x, x)
    below: Any = 0.0
    for place in range(_DIGAMMA_SHIFT):
        below = 1.0 / (z + float(place)) + below
    far = z + float(_DIGAMMA_SHIFT)
    inverse = 1.0 / far
    square = inverse * inverse
    series = promotion.polynomial(square, _DIGAMMA_SERIES) * square
    direct = far.log() - inverse * 0.5 + series - below
    reflected = direct - math.pi / ((x - apply("round", x)) * math.pi).tan()
    result = select(is_reflected, reflected, direct)
    is_pole = is_reflected & (x.floor() == x)
    result = select(x == INFINITY, INFINITY, select(is_pole, NAN, result))
    # The pole at zero has a sign, that of the zero.
    return select(x == 0.0, -1.0 / x, result)


def mvlgamma(x: TileValue, p: int) -> TileValue:
    """The multivariate log-gamma function: a sum of lgammas."""
    result: Any = math.log(math.pi) * p * (p - 1) / 4
    for place in range(p):
        result = lgamma(x - place / 2) + result
    return result


def bessel(x: TileValue, *, order: int, is_scaled: bool = False) -> TileValue:
    """The modified Bessel functions I0 and I1, times ``exp(-|x|)`` if scaled."""
    y = abs(x)
    is_small = y <= _SERIES_END
    near = apply("minimum", y, _SERIES_END)
    series = _power_series(near, order)
    far = 1.0 / apply("maximum", y, _SERIES_END)
    rest = promotion.polynomial(far, _asymptotic(order)) * far.sqrt()
    if is_scaled:
        series = series * (-near).exp()
    else:
        # In two halves: the exponential alone would overflow before the result does.
        half = (y * 0.5).exp()
        rest = rest * half * half
    result = select(is_small, series, rest)
    return _signed_like(result, x) if order else result


def _power_series(y: TileValue, order: int) -> TileValue:
    """All terms are positive, so nothing cancels."""
    quarter = y * 0.5 * (y * 0.5)
    terms = range(44, -1, -1)
    coefficients = tuple(1 / (math.factorial(k) * math.factorial(k + order)) for k in terms)
    series = promotion.polynomial(quarter, coefficients)
    return series * (y * 0.5) if order else series


def _asymptotic(order: int) -> tuple[float, ...]:
    coefficients = [1 / math.sqrt(2 * math.pi)]
    for k in range(1, 22):
        factor = ((2 * k - 1) ** 2 - 4 * order**2) / (8 * k)
        coefficients.append(coefficients[-1] * factor)
    return tuple(reversed(coefficients))


def logit(x: TileValue, eps: float | None = None) -> TileValue:
    """``log(x / (1 - x))``, after a clamp to ``[eps, 1 - eps]``."""
    if eps is not None:
        x = apply("minimum", apply("maximum", x, eps), 1 - eps)
    return (x / (1.0 - x)).log()


def sinc(x: TileValue) -> TileValue:
    """``sin(pi x) / (pi x)``."""
    scaled = x * math.pi
    return select(x == 0.0, 1.0, scaled.sin() / scaled)


def times_log(x: TileValue, y: TileValue, *, fn: str = "log") -> TileValue:
    """``x * log(y)``: zero where x is, but for a NaN in y."""
    product = x * apply(fn, y)
    return select((x == 0.0) & ~y.isnan(), 0.0, product)


def entr(x: TileValue) -> TileValue:
    """``-x log(x)``, the entropy of a probability; -inf below zero."""
    product = select(x == 0.0, 0.0, -x * x.log())
    return select(x < 0.0, -INFINITY, product)


def ndtri(p: TileValue) -> TileValue:
    """The inverse of the normal distribution function."""
    is_lower = p < 0.5
    tail = select(is_lower, p, 1.0 - p) * 2.0
    z = _inverse_erf(1.0 - tail, tail) * math.sqrt(2)
    return select(is_lower, -z, z)


def log_sum(x: TileValue, y: TileValue, *, exp: str, log1p: promotion.Composition) -> TileValue:
    """``log(exp(x) + exp(y))`` in some base, around the larger of the two."""
    larger = apply("maximum", x, y)
    result = larger + log1p(apply(exp, -abs(x - y)))
    # Two equal infinities have no distance.
    return select(x.isinf() & (x == y), x, result)


_FLOAT_UNARY: dict[str, promotion.Composition] = {
    "erfinv": erfinv, "lgamma": in_double(lgamma), "digamma": in_double(digamma),
    "mvlgamma": in_double(mvlgamma), "logit": logit, "sinc": sinc,
    "i0": partial(bessel, order=0), "special_i0e": partial(bessel, order=0, is_scaled=True),
    "special_i1": partial(bessel, order=1), "special_i1e": partial(bessel, order=1, is_scaled=True),
    # As many digits as eager's in the lower tail.
    "special_entr": entr, "special_ndtr": lambda x: ((x * math.sqrt(0.5)).erf() + 1.0) * 0.5,
    "special_ndtri": ndtri,
    "deg2rad": lambda x: x * (math.pi / 180), "rad2deg": lambda x: x * (180 / math.pi),
}  # fmt: skip
_FLOAT_BINARY: dict[str, promotion.Composition] = {
    "xlogy": times_log, "special_xlog1py": partial(times_log, fn="log1p"),
    "logaddexp": partial(log_sum, exp="exp", log1p=lambda x: x.log1p()),
    "logaddexp2": partial(log_sum, exp="exp2", log1p=lambda x: x.log1p() * (1 / math.log(2))),
}  # fmt: skip

_INTEGERS = {16: I16, 32: I32, 64: I64}


class MantissaAndExponent(NamedTuple):
    """The two results of ``torch.frexp``."""

    mantissa: TileValue
    exponent: TileValue


def _bits(x: TileValue) -> TileValue:
    return reinterpret(x, _INTEGERS[x.tile.dtype.bits])


def signbit(x: TileValue) -> TileValue:
    """Whether the sign is minus, that of zero and NaN included."""
    if x.tile.dtype.is_bool:
        return full(False, BOOL, x.tile.shape)
    return apply("lt", _bits(x) if x.tile.dtype.is_float else x, 0)


def copysign(x: Operand, sign: Operand) -> TileValue:
    """The magnitude of one with the sign of the other."""
    dtype = promotion.result_dtype("copysign", x, sign)
    magnitude = abs(strong(x, dtype))
    source = as_tile(sign, None if isinstance(sign, TileValue) else dtype)
    return select(signbit(source), -magnitude, magnitude)


def ldexp(x: Operand, exponent: Operand) -> TileValue:
    """``x * 2**exponent``, rounded once."""
    dtype = promotion.result_dtype("ldexp", x, exponent)
    wide = dtype.computed
    return cast(apply("mul", x, apply("exp2", as_tile(exponent, wide)), dtype=wide), dtype)


def frexp(x: TileValue) -> MantissaAndExponent:
    """A mantissa in [0.5, 1) and the exponent that goes with it."""
    dtype = x.tile.dtype
    wide = strong(x, dtype.computed)
    fraction_bits = wide.tile.dtype.precision - 1
    # Subnormal numbers are scaled into the normal range first.
    scale = float(2 ** (fraction_bits + 1))
    smallest_normal = 2.0 ** (2 - 2 ** (wide.tile.dtype.bits - wide.tile.dtype.precision - 1))
    is_tiny = abs(wide) < smallest_normal
    bits = _bits(select(is_tiny, wide * scale, wide))
    field_mask = (1 << (wide.tile.dtype.bits - 1 - fraction_bits)) - 1
    field = apply("and", apply("shr", bits, fraction_bits), field_mask)
    half_field = (field_mask >> 1) - 1
    kept = apply("and", bits, ~(field_mask << fraction_bits))
    mantissa = reinterpret(apply("or", kept, half_field << fraction_bits), wide.tile.dtype)
    exponent = cast(apply("sub", field, half_field), I32)
    shift = select(is_tiny, full(fraction_bits + 1, I32), full(0, I32))
    is_plain = apply("or", apply("eq", wide, 0), apply("eq", field, field_mask))
    return MantissaAndExponent(
        cast(select(is_plain, wide, mantissa), dtype), select(is_plain, 0, exponent - shift)
    )


def nextafter(x: TileValue, towards: TileValue) -> TileValue:
    """The neighbour of a float in the direction of another."""
    dtype = promotion.common_dtype(x, towards)
    x, towards = strong(x, dtype), strong(towards, dtype)
    bits = _bits(x)
    grows = apply("eq", x < towards, x > 0)
    step = apply("where", grows, 1, -1, dtype=bits.tile.dtype)
    neighbour = reinterpret(bits + step, dtype)
    smallest = reinterpret(full(1, bits.tile.dtype), dtype)
    from_zero = copysign(smallest, towards)
    result = select(x == 0, from_zero, neighbour)
    result = select(x == towards, towards, result)
    is_nan = apply("or", apply("ne", x, x), apply("ne", towards, towards))
    return select(is_nan, NAN, result)


SPECIAL_FUNCTIONS: dict[str, Rule] = {
    **{name: promotion.in_float_type(function) for name, function in _FLOAT_UNARY.items()},
    **{name: promotion.in_float_type(function, 2) for name, function in _FLOAT_BINARY.items()},
    "signbit": signbit, "copysign": copysign, "ldexp": ldexp, "frexp": frexp,
    "nextafter": nextafter,
}  # fmt: skip
