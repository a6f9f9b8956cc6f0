"""Gamma, error and Bessel functions and their relatives; the parts that floats are made of.

Each function is a composition over tiles of one float type (``promotion.py``), accurate to a few
ulps of it. Those that cancel near their roots are computed in fp64 whatever the operand's type.
Sign, exponent and neighbours of floats are found through their bits.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from tilesmith.dtypes import BOOL, F64, I16, I32, I64, DType
from tilesmith.frontend.functions.elementwise import where
from tilesmith.frontend.functions.promotion import (
    Composition,
    common_dtype,
    compute_dtype,
    in_float_type,
    polynomial,
    result_dtype,
)
from tilesmith.frontend.tracing.emission import (
    Operand,
    Rule,
    apply,
    as_tile,
    cast,
    full,
    reinterpret,
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


def in_double(function: Composition) -> Composition:
    """Compute in fp64, whatever the operands' type."""

    def composition(x: TileValue, *args: Any, **kwargs: Any) -> TileValue:
        return cast(function(cast(x, F64), *args, **kwargs), x.tile.dtype)

    return composition


def _select(condition: TileValue, then: Any, otherwise: Any) -> TileValue:
    tile = then if isinstance(then, TileValue) else otherwise
    return apply("where", condition, then, otherwise, dtype=tile.tile.dtype)


def _signed_like(magnitude: TileValue, x: TileValue) -> TileValue:
    return _select(apply("lt", x, 0.0), apply("neg", magnitude), magnitude)


def erfinv(x: TileValue) -> TileValue:
    """The inverse of erf."""
    y = apply("abs", x)
    magnitude = _inverse_erf(y, apply("sub", 1.0, y))
    return _select(apply("eq", x, 0.0), x, _signed_like(magnitude, x))


def _inverse_erf(y: TileValue, rest: TileValue) -> TileValue:
    """The root z >= 0 of ``erf(z) = y``, where ``rest`` is ``1 - y``.

    Winitzki's closed form, right to some thousandths, then two steps of Halley's method, each of
    which triples the digits; in the tail on erfc, where erf has lost them.
    """
    log = apply("log", apply("mul", rest, apply("add", y, 1.0)))
    middle = apply("fma", log, 0.5, 2 / (math.pi * _WINITZKI))
    root = apply("sqrt", apply("sub", apply("mul", middle, middle), apply("div", log, _WINITZKI)))
    z = apply("sqrt", apply("maximum", apply("sub", root, middle), 0.0))
    for _ in range(2):
        missing = _select(
            apply("lt", y, 0.5),
            apply("sub", apply("erf", z), y),
            apply("sub", rest, apply("erfc", z)),
        )
        slope = apply("mul", apply("exp", apply("neg", apply("mul", z, z))), 2 / math.sqrt(math.pi))
        step = apply("div", missing, slope)
        z = apply("sub", z, apply("div", step, apply("fma", z, step, 1.0)))
    return _select(apply("eq", rest, 0.0), INFINITY, z)


def _sine_of_pi(x: TileValue) -> TileValue:
    """``sin(pi x)`` up to its sign, from the distance to the nearest integer."""
    return apply("sin", apply("mul", apply("sub", x, apply("round", x)), math.pi))


def lgamma(x: TileValue) -> TileValue:
    """``log |gamma(x)|``, reflected for x < 1/2."""
    is_reflected = apply("lt", x, 0.5)
    direct = _lgamma_right(_select(is_reflected, apply("sub", 1.0, x), x))
    sine = apply("abs", _sine_of_pi(x))
    reflected = apply("sub", apply("sub", math.log(math.pi), apply("log", sine)), direct)
    result = _select(is_reflected, reflected, direct)
    return _select(apply("isinf", x), INFINITY, result)


def _lgamma_right(x: TileValue) -> TileValue:
    """For x >= 1/2: the series around 2, times what leads there; Stirling's series further on.

    All that is added has one sign, but next to the root at 1, where log1p keeps the digits.
    """
    near = apply("minimum", x, _STIRLING_START)
    steps = apply("floor", apply("sub", near, 1.5))
    start = apply("sub", near, steps)
    # From 2, in an order that is exact next to the roots.
    distance = apply("sub", apply("sub", near, 2.0), steps)
    product: Any = 1.0
    for place in range(int(_STIRLING_START - 1.5)):
        factor = _select(apply("lt", float(place), steps), apply("add", start, float(place)), 1.0)
        product = apply("mul", factor, product)
    path = _select(
        apply("lt", steps, 0.0),
        apply("neg", apply("log1p", apply("sub", near, 1.0))),
        apply("log", product),
    )
    series = polynomial(distance, (*_around_two(), 0.0))
    inverse = apply("div", 1.0, x)
    tail = apply("mul", polynomial(apply("mul", inverse, inverse), _STIRLING), inverse)
    power = apply("sub", apply("mul", apply("sub", x, 0.5), apply("log", x)), x)
    far = apply("add", apply("add", power, 0.5 * math.log(2 * math.pi)), tail)
    return _select(apply("lt", x, _STIRLING_START), apply("add", series, path), far)


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
    is_reflected = apply("lt", x, 0.0)
    z = _select(is_reflected, apply("sub", 1.0, x), x)
    below: Any = 0.0
    for place in range(_DIGAMMA_SHIFT):
        below = apply("add", apply("div", 1.0, apply("add", z, float(place))), below)
    far = apply("add", z, float(_DIGAMMA_SHIFT))
    inverse = apply("div", 1.0, far)
    square = apply("mul", inverse, inverse)
    series = apply("mul", polynomial(square, _DIGAMMA_SERIES), square)
    value = apply("sub", apply("log", far), apply("mul", inverse, 0.5))
    direct = apply("sub", apply("add", value, series), below)
    fraction = apply("mul", apply("sub", x, apply("round", x)), math.pi)
    reflected = apply("sub", direct, apply("div", math.pi, apply("tan", fraction)))
    result = _select(is_reflected, reflected, direct)
    is_pole = apply("and", is_reflected, apply("eq", apply("floor", x), x))
    result = _select(apply("eq", x, INFINITY), INFINITY, _select(is_pole, NAN, result))
    # The pole at zero has a sign, that of the zero.
    return _select(apply("eq", x, 0.0), apply("div", -1.0, x), result)


def mvlgamma(x: TileValue, p: int) -> TileValue:
    """The multivariate log-gamma function: a sum of lgammas."""
    result: Any = math.log(math.pi) * p * (p - 1) / 4
    for place in range(p):
        result = apply("add", lgamma(apply("sub", x, place / 2)), result)
    return result


def bessel(order: int, *, is_scaled: bool) -> Composition:
    """The modified Bessel functions I0 and I1, times ``exp(-|x|)`` if scaled."""

    def composition(x: TileValue) -> TileValue:
        y = apply("abs", x)
        is_small = apply("le", y, _SERIES_END)
        near = apply("minimum", y, _SERIES_END)
        series = _power_series(near, order)
        far = apply("div", 1.0, apply("maximum", y, _SERIES_END))
        rest = apply("mul", polynomial(far, _asymptotic(order)), apply("sqrt", far))
        if is_scaled:
            series = apply("mul", series, apply("exp", apply("neg", near)))
        else:
            # In two halves: the exponential alone would overflow before the result does.
            half = apply("exp", apply("mul", y, 0.5))
            rest = apply("mul", apply("mul", rest, half), half)
        result = _select(is_small, series, rest)
        return _signed_like(result, x) if order else result

    return composition


def _power_series(y: TileValue, order: int) -> TileValue:
    """All terms are positive, so nothing cancels."""
    quarter = apply("mul", apply("mul", y, 0.5), apply("mul", y, 0.5))
    terms = range(44, -1, -1)
    coefficients = tuple(1 / (math.factorial(k) * math.factorial(k + order)) for k in terms)
    series = polynomial(quarter, coefficients)
    return apply("mul", series, apply("mul", y, 0.5)) if order else series


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
    return apply("log", apply("div", x, apply("sub", 1.0, x)))


def sinc(x: TileValue) -> TileValue:
    """``sin(pi x) / (pi x)``."""
    scaled = apply("mul", x, math.pi)
    return _select(apply("eq", x, 0.0), 1.0, apply("div", apply("sin", scaled), scaled))


def times_log(fn: str) -> Composition:
    """``x * log(y)``: zero where x is, but for a NaN in y."""

    def composition(x: TileValue, y: TileValue) -> TileValue:
        product = apply("mul", x, apply(fn, y))
        is_zero = apply("and", apply("eq", x, 0.0), apply("not", apply("isnan", y)))
        return _select(is_zero, 0.0, product)

    return composition


def entr(x: TileValue) -> TileValue:
    """``-x log(x)``, the entropy of a probability; -inf below zero."""
    product = apply("mul", apply("neg", x), apply("log", x))
    product = _select(apply("eq", x, 0.0), 0.0, product)
    return _select(apply("lt", x, 0.0), -INFINITY, product)


def ndtr(x: TileValue) -> TileValue:
    """The normal distribution function, with as many digits as eager's in the lower tail."""
    return apply("mul", apply("add", apply("erf", apply("mul", x, math.sqrt(0.5))), 1.0), 0.5)


def ndtri(p: TileValue) -> TileValue:
    """The inverse of the normal distribution function."""
    is_lower = apply("lt", p, 0.5)
    tail = apply("mul", _select(is_lower, p, apply("sub", 1.0, p)), 2.0)
    z = apply("mul", _inverse_erf(apply("sub", 1.0, tail), tail), math.sqrt(2))
    return _select(is_lower, apply("neg", z), z)


def log_sum(exp: str, log1p: Composition) -> Composition:
    """``log(exp(x) + exp(y))`` in some base, around the larger of the two."""

    def composition(x: TileValue, y: TileValue) -> TileValue:
        larger = apply("maximum", x, y)
        distance = apply("neg", apply("abs", apply("sub", x, y)))
        result = apply("add", larger, log1p(apply(exp, distance)))
        # Two equal infinities have no distance.
        is_same = apply("and", apply("isinf", x), apply("eq", x, y))
        return _select(is_same, x, result)

    return composition


def _log2_of_1p(x: TileValue) -> TileValue:
    return apply("mul", apply("log1p", x), 1 / math.log(2))


_FLOAT_UNARY: dict[str, Composition] = {
    "erfinv": erfinv, "lgamma": in_double(lgamma), "digamma": in_double(digamma),
    "mvlgamma": in_double(mvlgamma), "logit": logit, "sinc": sinc,
    "i0": bessel(0, is_scaled=False), "special_i0e": bessel(0, is_scaled=True),
    "special_i1": bessel(1, is_scaled=False), "special_i1e": bessel(1, is_scaled=True),
    "special_entr": entr, "special_ndtr": ndtr, "special_ndtri": ndtri,
    "deg2rad": lambda x: apply("mul", x, math.pi / 180),
    "rad2deg": lambda x: apply("mul", x, 180 / math.pi),
}  # fmt: skip
_FLOAT_BINARY: dict[str, Composition] = {
    "xlogy": times_log("log"), "special_xlog1py": times_log("log1p"),
    "logaddexp": log_sum("exp", lambda x: apply("log1p", x)),
    "logaddexp2": log_sum("exp2", _log2_of_1p),
}  # fmt: skip

SPECIAL_FUNCTIONS: dict[str, Rule] = {
    **{name: in_float_type(function) for name, function in _FLOAT_UNARY.items()},
    **{name: in_float_type(function, 2) for name, function in _FLOAT_BINARY.items()},
}

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
    dtype = result_dtype("copysign", x, sign)
    magnitude = apply("abs", as_tile(x, dtype))
    source = as_tile(sign, None if isinstance(sign, TileValue) else dtype)
    return apply("where", signbit(source), apply("neg", magnitude), magnitude, dtype=dtype)


def ldexp(x: Operand, exponent: Operand) -> TileValue:
    """``x * 2**exponent``, rounded once."""
    dtype = result_dtype("ldexp", x, exponent)
    wide = compute_dtype(dtype)
    return cast(apply("mul", x, apply("exp2", as_tile(exponent, wide)), dtype=wide), dtype)


def frexp(x: TileValue) -> MantissaAndExponent:
    """A mantissa in [0.5, 1) and the exponent that goes with it."""
    dtype = x.tile.dtype
    wide = cast(x, compute_dtype(dtype))
    fraction_bits = wide.tile.dtype.precision - 1
    # Subnormal numbers are scaled into the normal range first.
    scale = float(2 ** (fraction_bits + 1))
    is_tiny = apply("lt", apply("abs", wide), _smallest_normal(wide.tile.dtype))
    bits = _bits(where(is_tiny, apply("mul", wide, scale), wide))
    field_mask = (1 << (wide.tile.dtype.bits - 1 - fraction_bits)) - 1
    field = apply("and", apply("shr", bits, fraction_bits), field_mask)
    half_field = (field_mask >> 1) - 1
    kept = apply("and", bits, ~(field_mask << fraction_bits))
    mantissa = reinterpret(apply("or", kept, half_field << fraction_bits), wide.tile.dtype)
    exponent = cast(apply("sub", field, half_field), I32)
    shift = where(is_tiny, full(fraction_bits + 1, I32), full(0, I32))
    is_plain = apply("or", apply("eq", wide, 0), apply("eq", field, field_mask))
    return MantissaAndExponent(
        cast(apply("where", is_plain, wide, mantissa, dtype=wide.tile.dtype), dtype),
        apply("where", is_plain, 0, apply("sub", exponent, shift), dtype=I32),
    )


def _smallest_normal(dtype: DType) -> float:
    return 2.0 ** (2 - 2 ** (dtype.bits - dtype.precision - 1))


def nextafter(x: TileValue, towards: TileValue) -> TileValue:
    """The neighbour of a float in the direction of another."""
    dtype = common_dtype(x, towards)
    x, towards = cast(x, dtype), cast(towards, dtype)
    bits = _bits(x)
    grows = apply("eq", apply("lt", x, towards), apply("gt", x, 0))
    step = apply("where", grows, 1, -1, dtype=bits.tile.dtype)
    neighbour = reinterpret(apply("add", bits, step), dtype)
    smallest = reinterpret(full(1, bits.tile.dtype), dtype)
    from_zero = copysign(smallest, towards)
    result = where(apply("eq", x, 0), from_zero, neighbour)
    result = where(apply("eq", x, towards), towards, result)
    is_nan = apply("or", apply("ne", x, x), apply("ne", towards, towards))
    return where(is_nan, float("nan"), result)


FLOAT_PARTS: dict[str, Rule] = {
    "signbit": signbit, "copysign": copysign, "ldexp": ldexp, "frexp": frexp,
    "nextafter": nextafter,
}  # fmt: skip
