"""The derivative of every scalar function: one row each.

A row takes the cotangent ``g``, the result ``y`` and the operands, and gives the cotangent of each
operand. Ties of extremes are split evenly, as ``torch.maximum`` does. A function without a row is
constant almost everywhere, or gives no floats.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log, pi, sqrt

from tilesmith.gradients.terms import Term

Row = Callable[..., tuple[Term | None, ...]]


def _larger(g: Term, y: Term, a: Term, b: Term) -> tuple[Term, Term]:
    share = (g * 0.5).where(a.same(b), g)
    return g.of(0.0).where(a < b, share), g.of(0.0).where(b < a, share)


def _power(g: Term, y: Term, a: Term, b: Term) -> tuple[Term, Term]:
    base = g.of(0.0).where(b.same(0.0), g * b * a.apply("pow", b - 1.0))
    exponent = g.of(0.0).where(a.same(0.0), g * y * a.apply("log"))
    return base, exponent


def _sign(g: Term, y: Term, x: Term) -> tuple[Term]:
    return ((-g).where(x < 0.0, g.of(0.0).where(x.same(0.0), g)),)


SCALAR_DERIVATIVES: dict[str, Row] = {
    "neg": lambda g, y, x: (-g,),
    "abs": _sign,
    "sqrt": lambda g, y, x: (g * 0.5 / y,),
    "rsqrt": lambda g, y, x: (g * -0.5 * (y * y * y),),
    "exp": lambda g, y, x: (g * y,),
    "exp2": lambda g, y, x: (g * y * log(2.0),),
    "expm1": lambda g, y, x: (g * (y + 1.0),),
    "log": lambda g, y, x: (g / x,),
    "log2": lambda g, y, x: (g / (x * log(2.0)),),
    "log10": lambda g, y, x: (g / (x * log(10.0)),),
    "log1p": lambda g, y, x: (g / (x + 1.0),),
    "sin": lambda g, y, x: (g * x.apply("cos"),),
    "cos": lambda g, y, x: (-g * x.apply("sin"),),
    "tan": lambda g, y, x: (g * (y * y + 1.0),),
    "asin": lambda g, y, x: (g * (1.0 - x * x).apply("rsqrt"),),
    "acos": lambda g, y, x: (-g * (1.0 - x * x).apply("rsqrt"),),
    "atan": lambda g, y, x: (g / (x * x + 1.0),),
    "sinh": lambda g, y, x: (g * x.apply("cosh"),),
    "cosh": lambda g, y, x: (g * x.apply("sinh"),),
    "tanh": lambda g, y, x: (g * (1.0 - y * y),),
    "asinh": lambda g, y, x: (g * (x * x + 1.0).apply("rsqrt"),),
    "acosh": lambda g, y, x: (g * (x * x - 1.0).apply("rsqrt"),),
    "atanh": lambda g, y, x: (g / (1.0 - x * x),),
    "erf": lambda g, y, x: (g * (-(x * x)).apply("exp") * (2.0 / sqrt(pi)),),
    "erfc": lambda g, y, x: (g * (-(x * x)).apply("exp") * (-2.0 / sqrt(pi)),),
    "sigmoid": lambda g, y, x: (g * (y * (1.0 - y)),),
    "add": lambda g, y, a, b: (g, g),
    "sub": lambda g, y, a, b: (g, -g),
    "mul": lambda g, y, a, b: (g * b, g * a),
    "div": lambda g, y, a, b: (g / b, -g * y / b),
    "mod": lambda g, y, a, b: (g, -g * (a / b).apply("floor")),
    "fmod": lambda g, y, a, b: (g, -g * (a / b).apply("trunc")),
    "maximum": _larger,
    "minimum": lambda g, y, a, b: _larger(g, y, b, a),
    "pow": _power,
    "atan2": lambda g, y, a, b: (g * b / (a * a + b * b), -g * a / (a * a + b * b)),
    "fma": lambda g, y, a, b, c: (g * b, g * a, g),
    "where": lambda g, y, c, a, b: (None, g.where(c, 0.0), g.of(0.0).where(c, g)),
}
"""By name: ``(g, y, *operands)`` to the cotangents of the operands."""
