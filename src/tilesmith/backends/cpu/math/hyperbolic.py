"""Hyperbolic functions and their inverses; all but tanh for single floats only."""

from __future__ import annotations

import math

from tilesmith.backends.cpu.math.exponentials import (
    LN2,
    LOG2E,
    exp,
    format_of,
    small_expm1,
    split,
)
from tilesmith.backends.cpu.math.logarithms import log1p
from tilesmith.backends.cpu.math.term import Term

_SINH = (2.79023357e-06, 1.98416266e-04, 8.33331514e-03, 0.166666672)
"""``(sinh(x) / x - 1) / x^2`` in powers of ``x^2``, for ``|x| <= 1``."""
_HUGE = 2.0**28  # squares that far out leave the range of single floats


def tanh(x: Term) -> Term:
    """``h / (1 + h)`` for ``h = (e^(-2|x|) - 1) / 2``, with the sign of ``x``."""
    f = format_of(x)
    z = (-abs(x)).at_least(-f.one / 2)
    n, scale = split(z, 2 * LOG2E, f.bias)
    # One part of ln 2 is enough: where n is large, the power of two hardly counts.
    r = n.fma(-LN2 / 2, z)
    top = len(f.expm1)
    # (e^(2r) - 1) / 2
    grown = small_expm1(r, [c * 2.0 ** (top - i) for i, c in enumerate(f.expm1)])
    h = scale.fma(grown, scale.fma(0.5, -0.5))
    return (h / scale.fma(grown, scale.fma(0.5, 0.5))).with_sign_of(x)


def sinh(x: Term) -> Term:
    """``(e^x - e^-x) / 2``."""
    half = exp(abs(x), is_halved=True)
    square = x * x
    small = x.fma(square * square.polynomial(_SINH), x)
    return (abs(x) < 1.0).where(small, (half - 0.25 / half).with_sign_of(x))


def cosh(x: Term) -> Term:
    """``(e^x + e^-x) / 2``."""
    half = exp(abs(x), is_halved=True)
    return half + 0.25 / half


def asinh(x: Term) -> Term:
    """``log(x + sqrt(x^2 + 1))``."""
    magnitude = abs(x)
    root = magnitude.fma(magnitude, 1.0).intrinsic("sqrt")
    return _log1p_or_of_huge(
        magnitude, magnitude.fma(magnitude / (root + 1.0), magnitude)
    ).with_sign_of(x)


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
    return is_huge.where(logarithm + LN2, logarithm)
