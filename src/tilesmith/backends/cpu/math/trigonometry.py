"""Trigonometric functions and their inverses of single floats."""

from __future__ import annotations

import math
import struct

from tilesmith.backends.cpu.math.term import Term, unless

_SIN = (-1.95180735e-04, 8.33218824e-03, -0.166666552)
"""``(sin(r) / r - 1) / r^2`` in powers of ``r^2``, for ``|r| <= pi/4``."""
_COS = (2.44323383e-05, -1.38873095e-03, 4.16666456e-02)
"""``(cos(r) - 1 + r^2/2) / r^4``."""
_TAN = (
    4.37775161e-03, 8.90283700e-05, 1.08337877e-02, 2.12841798e-02, 5.40592074e-02, 0.133326739,
    0.333333492,
)  # fmt: skip
"""``(tan(r) / r - 1) / r^2``."""
_ATAN = (
    -1.79144985e-03, 1.09043466e-02, -3.11574973e-02, 5.79356179e-02, -8.40205029e-02,
    0.109516539, -0.142641261, 0.199985355, -0.333332986,
)  # fmt: skip
"""``(atan(r) / r - 1) / r^2`` for ``|r| <= 1``."""
_ASIN = (4.21569757e-02, 2.41855122e-02, 4.54690196e-02, 7.49531016e-02, 0.166667521)
"""``(asin(r) / r - 1) / r^2`` for ``|r| <= 1/2``."""

_HALF_PI = (1.57079632673412561417, 6.07710050650619224932e-11)
"""In two parts; multiples of the first by up to 2^20 are exact doubles."""
_LARGEST = 1.0e6  # below this there are at most 2^20 quarter turns


def sin(x: Term) -> Term:
    """The sine; libm does vectors with huge arguments."""
    quarters, r = _reduce(x)
    # Polynomials lose the sign of zero.
    return unless(_is_huge(x), (x == 0.0).where(x, _sine(quarters, r)), "sin", x)


def cos(x: Term) -> Term:
    """The cosine; libm does vectors with huge arguments."""
    quarters, r = _reduce(x)
    return unless(_is_huge(x), _sine(quarters + 1, r), "cos", x)


def tan(x: Term) -> Term:
    """The tangent; libm does vectors with huge arguments."""
    quarters, r = _reduce(x)
    tangent = _odd(r, _TAN)
    turned = ((quarters & 1) != 0).where(-1.0 / tangent, tangent)
    return unless(_is_huge(x), turned, "tan", x)


def atan(x: Term) -> Term:
    """The angle of a slope."""
    magnitude = abs(x)
    is_steep = magnitude > 1.0
    numerator = is_steep.where(-1.0, magnitude)
    angle = _odd(numerator / is_steep.where(magnitude, x.number(1.0)), _ATAN)
    return is_steep.where(angle + math.pi / 2, angle).with_sign_of(x)


def atan2(y: Term, x: Term) -> Term:
    """The angle of a point, in (-pi, pi]; signed zeros and infinities as in C."""
    height, width = abs(y), abs(x)
    is_steep = height > width
    shorter, longer = is_steep.where(width, height), is_steep.where(height, width)
    # Both infinite, or both zero: the diagonal, or the axis.
    slope = (shorter == longer).where(
        (longer == 0.0).where(longer, x.number(1.0)), shorter / longer
    )
    angle = _odd(slope, _ATAN)
    angle = is_steep.where(math.pi / 2 - angle, angle)
    is_left = x.bits() < 0
    angle = is_left.where(math.pi - angle, angle).with_sign_of(y)
    return (x.is_nan() | y.is_nan()).where(math.nan, angle)


def asin(x: Term) -> Term:
    """The angle of a sine, not a number outside [-1, 1]."""
    is_large, angle = _half_angle(x)
    return is_large.where(_away_from(math.pi / 2, angle + angle), angle).with_sign_of(x)


def acos(x: Term) -> Term:
    """The angle of a cosine, not a number outside [-1, 1]."""
    is_large, angle = _half_angle(x)
    doubled = angle + angle
    large = (x < 0.0).where(_away_from(math.pi, doubled), doubled)
    return is_large.where(large, _away_from(math.pi / 2, angle.with_sign_of(x)))


def _half_angle(x: Term) -> tuple[Term, Term]:
    """Where ``|x| > 1/2``, and there half of ``acos |x|``, elsewhere ``asin |x|``."""
    magnitude = abs(x)
    is_large = magnitude > 0.5
    rest = (1.0 - magnitude) * 0.5
    square = is_large.where(rest, magnitude * magnitude)
    root = is_large.where(rest.intrinsic("sqrt"), magnitude)
    return is_large, root.fma(square * square.polynomial(_ASIN), root)


def _away_from(angle: float, x: Term) -> Term:
    """``angle - x``, with the digits of the angle that a single float does not hold."""
    held = struct.unpack("<f", struct.pack("<f", angle))[0]
    return held - (x - (angle - held))


def _odd(r: Term, coefficients: tuple[float, ...]) -> Term:
    """``r + r^3 p(r^2)``."""
    square = r * r
    return r.fma(square * square.polynomial(coefficients), r)


def _sine(quarters: Term, r: Term) -> Term:
    """The sine of ``r`` plus so many quarter turns."""
    square = r * r
    cosine = (square * square).fma(square.polynomial(_COS), square.fma(-0.5, 1.0))
    value = ((quarters & 1) != 0).where(cosine, _odd(r, _SIN))
    # Two quarters more turn the sign.
    return (value.bits() ^ ((quarters & 2) << 30)).floats()


def _reduce(x: Term) -> tuple[Term, Term]:
    """Quarter turns and what is left of ``x``, at most pi/4: in doubles, which hold enough."""
    wide = x.convert("fpext", "double")
    rounding = 1.5 * 2.0**52
    shifted = wide.fma(2.0 / math.pi, rounding)
    n = shifted - rounding
    left = n.fma(-_HALF_PI[1], n.fma(-_HALF_PI[0], wide))
    return shifted.bits().convert("trunc", "i32"), left.convert("fptrunc", "float")


def _is_huge(x: Term) -> Term:
    magnitude = abs(x)
    return (magnitude > _LARGEST) & (magnitude < math.inf)
