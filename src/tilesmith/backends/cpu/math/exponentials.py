"""exp, exp2, expm1 and the logistic function of single and double floats, without tables.

All split off a power of two: ``e^x = 2^n e^r``. Adding ``rounding`` (and the exponent's bias) to a
float leaves ``n`` in its low bits, which shifted up are the float ``2^n``. Results below the
normal range are rounded once, as IEEE asks; where they are zero, a factor is exactly zero, since
arithmetic that underflows is slow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilesmith.backends.cpu.math.scaling import Layout, power_of_product
from tilesmith.backends.cpu.math.term import Term

LN2 = math.log(2.0)
LOG2E = 1.0 / LN2


@dataclass(frozen=True)
class Format(Layout):
    """A float type with polynomials good to a fraction of its last place.

    Attributes:
        ln2: in two parts; the first has so few bits that multiples of it are exact.
        expm1: ``(e^r - 1 - r) / r^2`` for ``|r| <= ln 2 / 2``, highest power first.
        exp2: ``(2^r - 1) / r`` for ``|r| <= 1/2``.
        one: ``e^-one`` is nothing beside 1.
    """

    ln2: tuple[float, float]
    expm1: tuple[float, ...]
    exp2: tuple[float, ...]
    one: float


_SINGLE = Format(
    fraction_bits=23,
    bias=127,
    ln2=(0.693359375, -2.12194440e-4),
    expm1=(1.39366696e-03, 8.36653914e-03, 4.16664481e-02, 0.166665435, 0.5),
    exp2=(
        1.52407214e-04, 1.33912719e-03, 9.61883552e-03, 5.55035882e-02, 0.240226448, 0.693147182,
    ),
    one=20.0,
)  # fmt: skip
_DOUBLE = Format(
    fraction_bits=52,
    bias=1023,
    ln2=(6.93147180369123816490e-01, 1.90821492927058770002e-10),
    expm1=(
        2.5114118919995777e-08, 2.7626337218464843e-07, 2.75572290645085e-06,
        2.480150442179574e-05, 0.00019841269901801065, 0.0013888888932395908,
        0.008333333333315148, 0.041666666666573586, 0.16666666666666685, 0.5000000000000006,
    ),
    exp2=(
        4.4497690146714176e-10, 7.073767277076883e-09, 1.0178087977695024e-07,
        1.3215435391068103e-06, 1.5252733802802948e-05, 0.00015403530456853235,
        0.001333355814638309, 0.009618129107594369, 0.055504108664822256,
        0.2402265069591013, 0.6931471805599453,
    ),
    one=40.0,
)  # fmt: skip


def format_of(x: Term) -> Format:
    """The layout of a register's floats."""
    return _DOUBLE if x.register.type.element == "double" else _SINGLE


def exp(x: Term, *, is_halved: bool = False) -> Term:
    """``e^x``, or half of it, which is finite for slightly larger ``x``."""
    f = format_of(x)
    x = x.at_most((f.bias + 2.5) * LN2).at_least(-1.9996 * f.bias * LN2)
    power = power_of_product(x, LOG2E, f, -1 if is_halved else 0)
    return power.times(_reduce(power.n, x).polynomial((*f.expm1, 1.0, 1.0)))


def exp2(x: Term) -> Term:
    """``2^x``."""
    f = format_of(x)
    x = x.at_most(f.bias + 3.0).at_least(-2.0 * f.bias)
    power = power_of_product(x, 1.0, f)
    return power.times((x - power.n).polynomial((*f.exp2, 1.0)))


def expm1(x: Term) -> Term:
    """``e^x - 1``, accurate for small ``x``."""
    f = format_of(x)
    bounded = x.at_most((f.bias + 1.5) * LN2).at_least(-f.one)
    # Half the power of two, which is still finite for the largest result.
    n, half = split(bounded, LOG2E, f.bias - 1)
    grown = half.fma(small_expm1(_reduce(n, bounded), f.expm1), half - 0.5)
    return (grown + grown).with_sign_of(x)


def sigmoid(x: Term) -> Term:
    """``1 / (1 + e^-x)``, with all its digits for negative ``x`` too."""
    decay, unit = scaled_exp_of_negative(-abs(x))
    numerator = (x < 0.0).where(decay, decay.number(unit))
    divisor = decay.fma(1.0 / unit, 1.0)
    # What rounding the divisor lost, over the divisor, roughly.
    lost = decay.fma(1.0 / unit, 1.0 - divisor) * divisor.fma(-0.47, 1.41)
    ratio = numerator / divisor
    return (-ratio).fma(lost, ratio) * (1.0 / unit)


def scaled_exp_of_negative(x: Term) -> tuple[Term, float]:
    """``e^x`` for ``x <= 0``, times a power of two (the second result) that keeps it normal."""
    f = format_of(x)
    shift = f.fraction_bits + 1
    x = x.at_least(-(f.bias + shift + 0.1) * LN2)
    n, scale = split(x, LOG2E, f.bias + shift)
    return _reduce(n, x).polynomial((*f.expm1, 1.0, 1.0)) * scale, 2.0**shift


def small_expm1(r: Term, coefficients: Sequence[float]) -> Term:
    """``e^r - 1`` from coefficients as those of ``Format.expm1``."""
    # r * r would underflow for tiny r.
    return r.fma(r * r.polynomial(coefficients), r)


def split(x: Term, scale: float, bias: int) -> tuple[Term, Term]:
    """``n``, the integer nearest to ``scale * x``, and the float with exponent field ``n + bias``.

    That is ``2^n`` for the format's own bias.
    """
    f = format_of(x)
    shifted = x.fma(scale, f.rounding + bias)
    return shifted - (f.rounding + bias), (shifted.bits() << f.fraction_bits).floats()


def _reduce(n: Term, x: Term) -> Term:
    """``x - n ln 2``."""
    high, low = format_of(x).ln2
    return n.fma(-low, n.fma(-high, x))


_EXPONENT = (
    -9.41403050e-06, 1.19077413e-04, -6.38061611e-04, 1.67679123e-03, -1.70420521e-04,
    -1.91474613e-02, 0.102776252, 0.636619568, 0.128379166,
)  # fmt: skip
"""``-log(erfc(x)) / x - 1`` for ``x`` in [0, 4]."""
_SCALED_ERFC = (
    -4.05339902e-04, -1.23698916e-03, 1.31726032e-03, 8.63969885e-03, -8.06057081e-03,
    -5.42074442e-02, 0.164055333, -0.166030943, -9.27639753e-02, 1.27697837,
)  # fmt: skip
"""``(1 + 2x) e^(x^2) erfc(x)`` in powers of ``(x - 2) / (x + 2)``, for ``x`` in [0, 10.1]."""


def erf(x: Term) -> Term:
    """``1 - e^(-g)`` where ``g = -log(erfc(|x|))`` is nearly a parabola."""
    f = format_of(x)
    magnitude = abs(x).at_most(4.0)
    g = -magnitude.fma(magnitude.polynomial(_EXPONENT), magnitude)
    n, scale = split(g, LOG2E, f.bias)
    # One part of ln 2 is enough: where n is large, the power of two hardly counts.
    return scale.fma(small_expm1(n.fma(-LN2, g), f.expm1), scale - 1.0).with_sign_of(x)


def erfc(x: Term) -> Term:
    """``1 - erf(x)``, with all its digits for large ``x``."""
    magnitude = abs(x).at_most(10.1)
    square = magnitude * magnitude
    lost = magnitude.intrinsic("fma", magnitude, -square)
    decay, unit = scaled_exp_of_negative(-square)
    place = (magnitude - 2.0) / (magnitude + 2.0)
    scaled = place.polynomial(_SCALED_ERFC) / magnitude.fma(2.0, 1.0)
    positive = decay * scaled.fma(-lost, scaled) * (1.0 / unit)
    large = (x < 0.0).where(2.0 - positive, positive)
    return (magnitude < 0.5).where(1.0 - erf(x), large)
