"""erf and erfc of single floats."""

from __future__ import annotations

from tilesmith.backends.cpu.math.exponentials import (
    LN2,
    LOG2E,
    format_of,
    scaled_exp_of_negative,
    small_expm1,
    split,
)
from tilesmith.backends.cpu.math.term import Term

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
