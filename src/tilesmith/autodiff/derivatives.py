"""Derivatives of scalar functions, as expressions of the language.

``{g}`` is the gradient of the result, ``{r}`` the result, ``{a}``, ``{b}`` and ``{c}`` the
operands. At points where a function has no derivative the rows say what torch says: ties of
``maximum`` share, ``abs`` has 0 at 0.
"""

from __future__ import annotations

from math import log, pi, sqrt

NOTHING = ""
"""An operand that the result does not change with, almost everywhere."""

_UNARY = {
    "neg": "-{g}",
    "abs": "{g} * torch.sign({a})",
    "sqrt": "{g} * 0.5 / {r}",
    "rsqrt": "{g} * -0.5 * {r} * {r} * {r}",
    "exp": "{g} * {r}",
    "exp2": f"{{g}} * {{r}} * {log(2)!r}",
    "expm1": "{g} * ({r} + 1.0)",
    "log": "{g} / {a}",
    "log2": f"{{g}} / ({{a}} * {log(2)!r})",
    "log10": f"{{g}} / ({{a}} * {log(10)!r})",
    "log1p": "{g} / ({a} + 1.0)",
    "sin": "{g} * torch.cos({a})",
    "cos": "{g} * -torch.sin({a})",
    "tan": "{g} * ({r} * {r} + 1.0)",
    "asin": "{g} * torch.rsqrt(1.0 - {a} * {a})",
    "acos": "{g} * -torch.rsqrt(1.0 - {a} * {a})",
    "atan": "{g} / ({a} * {a} + 1.0)",
    "sinh": "{g} * torch.cosh({a})",
    "cosh": "{g} * torch.sinh({a})",
    "tanh": "{g} * (1.0 - {r} * {r})",
    "asinh": "{g} * torch.rsqrt({a} * {a} + 1.0)",
    "acosh": "{g} * torch.rsqrt({a} * {a} - 1.0)",
    "atanh": "{g} / (1.0 - {a} * {a})",
    "erf": f"{{g}} * {2 / sqrt(pi)!r} * torch.exp(-{{a}} * {{a}})",
    "erfc": f"{{g}} * {-2 / sqrt(pi)!r} * torch.exp(-{{a}} * {{a}})",
    "sigmoid": "{g} * {r} * (1.0 - {r})",
    **dict.fromkeys(("floor", "ceil", "round", "trunc"), NOTHING),
}
_SHARED = "torch.where({a} == {b}, {g} * 0.5, torch.where({a} OP {b}, {g}, 0.0))"
DERIVATIVES: dict[str, tuple[str, ...]] = {
    **{name: (text,) for name, text in _UNARY.items()},
    "add": ("{g}", "{g}"),
    "sub": ("{g}", "-{g}"),
    "mul": ("{g} * {b}", "{g} * {a}"),
    "div": ("{g} / {b}", "-{g} * {r} / {b}"),
    "maximum": (_SHARED.replace("OP", ">"), _SHARED.replace("OP", "<")),
    "minimum": (_SHARED.replace("OP", "<"), _SHARED.replace("OP", ">")),
    "pow": (
        "{g} * {b} * torch.pow({a}, {b} - 1.0)",
        "{g} * torch.where({a} > 0.0, {r} * torch.log({a}), 0.0)",
    ),
    "atan2": ("{g} * {b} / ({a} * {a} + {b} * {b})", "-{g} * {a} / ({a} * {a} + {b} * {b})"),
    "mod": ("{g}", "-{g} * torch.floor({a} / {b})"),
    "fmod": ("{g}", "-{g} * torch.trunc({a} / {b})"),
    "fma": ("{g} * {b}", "{g} * {a}", "{g}"),
    "where": (NOTHING, "torch.where({a}, {g}, 0.0)", "torch.where({a}, 0.0, {g})"),
}
"""For each operand, what reaches it."""

OPERATORS = {
    "add": "{a} + {b}", "sub": "{a} - {b}", "mul": "{a} * {b}", "div": "{a} / {b}",
    "floordiv": "{a} // {b}", "mod": "{a} % {b}", "neg": "-{a}", "not": "~{a}",
    "and": "{a} & {b}", "or": "{a} | {b}", "xor": "{a} ^ {b}",
    "shl": "{a} << {b}", "shr": "{a} >> {b}",
    "eq": "{a} == {b}", "ne": "{a} != {b}", "lt": "{a} < {b}", "le": "{a} <= {b}",
    "gt": "{a} > {b}", "ge": "{a} >= {b}", "fma": "{a} * {b} + {c}",
    "truncdiv": "torch.div({a}, {b}, rounding_mode='trunc')",
}  # fmt: skip
"""Scalar functions that are written another way than ``torch.name(...)``."""


def spelled(fn: str, operands: list[str]) -> str:
    """The call of a scalar function."""
    if fn not in OPERATORS:
        return f"torch.{fn}({', '.join(operands)})"
    return OPERATORS[fn].format(**dict(zip("abc", operands)))
