"""Logarithms and powers, hyperbolic and trigonometric functions and their inverses.

Logarithms: ``x = 2^k (1 + f)`` with ``1 + f`` between the roots of 1/2 and 2, then a polynomial:
``log(1 + f)`` is ``f c + f q(f)``, where ``c`` is the nearest float to the base's factor: the
rounding errors of ``q`` count little. Double floats have the natural logarithm only.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

from tilesmith.backends.cpu.llvm.registers import Register
from tilesmith.backends.cpu.math import exponentials
from tilesmith.backends.cpu.math.term import Term, any_lane, call_libm, unless
from tilesmith.dtypes import DType, ElementKind

_SQRT_HALF_SINGLE = 0x3F3504F3
_SQRT_HALF_DOUBLE = 0x3FE6A09E667F3BCD
_LN2_DOUBLE = (6.93147180369123816490e-01, 1.90821492927058770002e-10)
_ATANH = (
    0.14795671199679503, 0.15314081859601408, 0.18183562935256792, 0.22222198604081034,
    0.28571428742031607, 0.39999999999416647, 0.6666666666666734,
)  # fmt: skip
"""``(2 atanh(s) / s - 2) / s^2`` in powers of ``s^2``, for ``|s| <= 0.1716``."""


@dataclass(frozen=True)
class _Base:
    """Of a logarithm of single floats.

    Attributes:
        octave: log(2) in two parts; the first has so few bits that multiples of it are exact.
        factor: 1 / ln(base) as a float.
        rest: ``log(1 + f) / f - factor``, highest power first.
    """

    octave: tuple[float, float]
    factor: float
    rest: tuple[float, ...]


_E = _Base(
    octave=(0.693359375, -2.12194440e-4),
    factor=1.0,
    rest=(
        -7.63528943e-02, 0.129170820, -0.132445216, 0.141802058, -0.166086674, 0.200020283,
        -0.250016034, 0.333333254, -0.499999881, 0.0,
    ),
)  # fmt: skip
_TWO = _Base(
    octave=(1.0, 0.0),
    factor=1.4426950216293335,
    rest=(
        -0.110238582, 0.186568394, -0.191147983, 0.204538211, -0.239596516, 0.288570374,
        -0.360697865, 0.480898201, -0.721347332, 1.92008489e-08,
    ),
)  # fmt: skip
_TEN = _Base(
    octave=(0.301025390625, 4.605038981195214e-06),
    factor=0.4342944920063019,
    rest=(
        -3.30896489e-02, 5.60834408e-02, -5.75415045e-02, 6.15859181e-02, -7.21276477e-02,
        8.68675858e-02, -0.108580746, 0.144764796, -0.217147186, -1.01207451e-08,
    ),
)  # fmt: skip


def log(x: Term) -> Term:
    """The natural logarithm."""
    return _log_double(x) if x.register.type.element == "double" else _log(x, _E)


def log2(x: Term) -> Term:
    """The logarithm to base 2 of single floats."""
    return _log(x, _TWO)


def log10(x: Term) -> Term:
    """The logarithm to base 10 of single floats."""
    return _log(x, _TEN)


def log1p(x: Term) -> Term:
    """``log(1 + x)`` of single floats, accurate for small ``x``."""
    whole = x + 1.0
    k, mantissa = _split(whole.bits(), _SQRT_HALF_SINGLE, 23)
    # x + 1 lost digits of x; they are still there in x 2^-k + (2^-k - 1).
    scale = ((127 - k) << 23).floats()
    kept = x.fma(scale, scale - 1.0)
    f = (x > 2.0**26).where(mantissa - 1.0, kept)
    return _at_the_ends(whole, _combine(k.convert("sitofp", "float"), f, _E)).with_sign_of(x)


def _log(x: Term, base: _Base) -> Term:
    is_subnormal = x < 2.0**-126
    normal = is_subnormal.where(x * 2.0**24, x)
    k, mantissa = _split(normal.bits(), _SQRT_HALF_SINGLE, 23)
    exponent = k.convert("sitofp", "float")
    exponent = is_subnormal.where(exponent - 24.0, exponent)
    return _at_the_ends(x, _combine(exponent, mantissa - 1.0, base))


def _combine(k: Term, f: Term, base: _Base) -> Term:
    high, low = base.octave
    rest = f * f.polynomial(base.rest)
    rest = k.fma(low, rest) if low else rest
    return k.fma(high, f.fma(base.factor, rest))


def _split(bits: Term, sqrt_half: int, fraction_bits: int) -> tuple[Term, Term]:
    """``k`` and ``1 + f`` from the bits of a positive normal number."""
    offset = bits - sqrt_half
    fraction = (1 << fraction_bits) - 1
    return offset >> fraction_bits, ((offset & fraction) + sqrt_half).floats()


def _at_the_ends(x: Term, result: Term) -> Term:
    """The result where ``x`` is positive and finite; infinities and NaN elsewhere."""
    inside = (x < math.inf).where(result, x)
    outside = (x == 0.0).where(-math.inf, x.number(math.nan))
    return (x > 0.0).where(inside, outside)


def _log_double(x: Term) -> Term:
    is_subnormal = x < 2.0**-1022
    normal = is_subnormal.where(x * 2.0**54, x)
    k, mantissa = _split(normal.bits(), _SQRT_HALF_DOUBLE, 52)
    # Through 32 bits: most machines convert no 64-bit integers.
    exponent = k.convert("trunc", "i32").convert("sitofp", "double")
    exponent = is_subnormal.where(exponent - 54.0, exponent)
    f = mantissa - 1.0
    s = f / (f + 2.0)
    z = s * s
    half_square = f * f * 0.5
    # log(1 + f) = f - f^2/2 + s (f^2/2 + 2 atanh(s)/s - 2), whose last term is small.
    tail = s * z.fma(z.polynomial(_ATANH), half_square)
    high, low = _LN2_DOUBLE
    return _at_the_ends(x, exponent.fma(high, f - (half_square - exponent.fma(low, tail))))


def power(dtype: DType, x: Term, y: Term) -> Term:
    """``x`` to the power ``y``."""
    if not dtype.is_float:
        return _integer_power(dtype, x, y)
    if x.register.type.element == "double":
        return call_libm("pow", x, y)
    return _single_power(x, y)


def _single_power(x: Term, y: Term) -> Term:
    """By logarithms in double precision, which leave the error of one rounding."""
    magnitude = abs(x).convert("fpext", "double")
    exponent = y.convert("fpext", "double") * (log(magnitude) * exponentials.LOG2E)
    result = exponentials.exp2(exponent).convert("fptrunc", "float")
    half = y * 0.5
    is_whole = y.intrinsic("trunc") == y
    is_odd = is_whole & (half.intrinsic("trunc") != half)
    is_negative = x.bits() < 0
    result = (is_negative & is_odd).where(-result, result)
    has_no_root = (x < 0.0) & (abs(x) < math.inf) & ~is_whole
    result = has_no_root.where(math.nan, result)
    # Also of powers and roots that are not numbers.
    is_one = (y == 0.0) | (x == 1.0) | ((x == -1.0) & (abs(y) == math.inf))
    return is_one.where(1.0, result)


def _integer_power(dtype: DType, x: Term, y: Term) -> Term:
    """By squaring, modulo the type's size; negative powers are zero, but those of 1 and -1."""
    builder = x.builder

    def is_unfinished(state: tuple[Register, ...]) -> Register:
        return any_lane(builder, (Term(builder, state[1]) != 0).register)

    def square(state: tuple[Register, ...]) -> list[Register]:
        base, exponent, product = (Term(builder, register) for register in state)
        grown = ((exponent & 1) != 0).where(product * base, product)
        following = (base * base, exponent.logical_right(1), grown)
        return [term.register for term in following]

    state = builder.repeat(is_unfinished, square, [x.register, y.register, x.number(1).register])
    power = Term(builder, state[2])
    if dtype.kind is ElementKind.UNSIGNED:
        return power
    # 1 and -1 to a power modulo 2^bits are right for negative exponents too.
    is_unit = (x == 1) | (x == -1)
    return ((y < 0) & ~is_unit).where(0, power)


_SINH = (2.79023357e-06, 1.98416266e-04, 8.33331514e-03, 0.166666672)
"""``(sinh(x) / x - 1) / x^2`` in powers of ``x^2``, for ``|x| <= 1``."""
_HUGE = 2.0**28  # squares that far out leave the range of single floats


def tanh(x: Term) -> Term:
    """``h / (1 + h)`` for ``h = (e^(-2|x|) - 1) / 2``, with the sign of ``x``."""
    f = exponentials.format_of(x)
    z = (-abs(x)).at_least(-f.one / 2)
    n, scale = exponentials.split(z, 2 * exponentials.LOG2E, f.bias)
    # One part of ln 2 is enough: where n is large, the power of two hardly counts.
    r = n.fma(-exponentials.LN2 / 2, z)
    top = len(f.expm1)
    # (e^(2r) - 1) / 2
    grown = exponentials.small_expm1(r, [c * 2.0 ** (top - i) for i, c in enumerate(f.expm1)])
    h = scale.fma(grown, scale.fma(0.5, -0.5))
    return (h / scale.fma(grown, scale.fma(0.5, 0.5))).with_sign_of(x)


def sinh(x: Term) -> Term:
    """``(e^x - e^-x) / 2``."""
    half = exponentials.exp(abs(x), is_halved=True)
    square = x * x
    small = x.fma(square * square.polynomial(_SINH), x)
    return (abs(x) < 1.0).where(small, (half - 0.25 / half).with_sign_of(x))


def cosh(x: Term) -> Term:
    """``(e^x + e^-x) / 2``."""
    half = exponentials.exp(abs(x), is_halved=True)
    return half + 0.25 / half


def asinh(x: Term) -> Term:
    """``log(x + sqrt(x^2 + 1))``."""
    magnitude = abs(x)
    root = magnitude.fma(magnitude, 1.0).intrinsic("sqrt")
    argument = magnitude.fma(magnitude / (root + 1.0), magnitude)
    return _log1p_or_of_huge(magnitude, argument).with_sign_of(x)


def acosh(x: Term) -> Term:
    """``log(x + sqrt(x^2 - 1))``, not a number below 1."""
    above = x - 1.0
    root = above.fma(above, above + above).intrinsic("sqrt")
    return (x < 1.0).where(math.nan, _log1p_or_of_huge(x, above + root))


def atanh(x: Term) -> Term:
    """``log((1 + x) / (1 - x)) / 2``."""
    magnitude = abs(x)
    ratio = (magnitude + magnitude) / (1.0 - magnitude)
    return (log1p(ratio) * 0.5).with_sign_of(x)


def _log1p_or_of_huge(x: Term, argument: Term) -> Term:
    """``log1p(argument)``, or ``log(2x)`` where ``x`` is so huge that the argument overflows."""
    is_huge = x > _HUGE
    logarithm = log1p(is_huge.where(x, argument))
    return is_huge.where(logarithm + exponentials.LN2, logarithm)


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
    equal = shorter == longer
    slope = equal.where((longer == 0.0).where(longer, x.number(1.0)), shorter / longer)
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
