"""Python expressions as text, with no more parentheses than they need."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce

from tilesmith.dtypes import F64, DType
from tilesmith.ir.ops.elementwise import SCALAR_FUNCTIONS

_CONDITIONAL, _COMPARE, _SUM, _PRODUCT, _UNARY, _ATOM = 0, 1, 6, 7, 8, 9
OPERATORS = {
    "eq": ("==", _COMPARE), "ne": ("!=", _COMPARE), "lt": ("<", _COMPARE), "le": ("<=", _COMPARE),
    "gt": (">", _COMPARE), "ge": (">=", _COMPARE), "or": ("|", 2), "xor": ("^", 3), "and": ("&", 4),
    "shl": ("<<", 5), "shr": (">>", 5), "add": ("+", _SUM), "sub": ("-", _SUM),
    "mul": ("*", _PRODUCT), "div": ("/", _PRODUCT), "floordiv": ("//", _PRODUCT),
    "mod": ("%", _PRODUCT),
}  # fmt: skip
"""Scalar functions that Python writes between their operands, and how tightly it binds them."""
_PREFIXES = {"neg": "-", "not": "~"}
_NAMES = {"maximum": "max", "minimum": "min"}
FUNCTIONS = frozenset(
    _NAMES.get(name, name) for name in SCALAR_FUNCTIONS.keys() - {*OPERATORS, *_PREFIXES}
)
"""What is written as a call, so that no variable may have these names."""


@dataclass(frozen=True)
class Expr:
    """One expression; ``strength`` says how tightly its outermost operator binds."""

    text: str
    strength: int = _ATOM
    constant: int | float | bool | None = None

    def __str__(self) -> str:
        return self.text

    def at(self, strength: int) -> str:
        """The text, in parentheses unless it binds at least that tightly."""
        return self.text if self.strength >= strength else f"({self.text})"


def number(value: float, dtype: DType | None = None) -> Expr:
    """A constant, with no more digits than its type can tell apart."""
    text = repr(value)
    if isinstance(value, float) and math.isfinite(value) and dtype != F64:
        text = f"{value:.9g}"
        text = text if {".", "e"} & set(text) else f"{text}.0"
    return Expr(text, _UNARY if text.startswith("-") else _ATOM, value)


def function(fn: str, args: list[Expr], *, is_exact: bool = False) -> Expr:
    """A scalar function of the IR; exact sums and products may be read in any order."""
    if fn in _PREFIXES:
        return Expr(f"{_PREFIXES[fn]}{args[0].at(_UNARY)}", _UNARY)
    if fn not in OPERATORS:
        return call(_NAMES.get(fn, fn), *args)
    operator, strength = OPERATORS[fn]
    left = args[0].at(strength + (strength == _COMPARE))
    right = args[1].at(strength + (fn not in ("add", "mul") or not is_exact))
    return Expr(f"{left} {operator} {right}", strength)


def call(name: str, *args: object) -> Expr:
    """``name(args)``."""
    return Expr(f"{name}({', '.join(map(str, args))})")


def element(name: str, *indices: object) -> Expr:
    """``name[indices]``."""
    return Expr(f"{name}[{', '.join(map(str, indices))}]")


def conditional(x: Expr, condition: Expr) -> Expr:
    """``x`` where a condition holds, else 0."""
    return Expr(f"{x.at(_COMPARE)} if {condition.at(_COMPARE)} else 0", _CONDITIONAL)


def add(x: Expr, y: Expr) -> Expr:
    """A sum of indices, without terms that are zero."""
    if x.constant == 0 or y.constant == 0:
        return y if x.constant == 0 else x
    return function("add", [x, y], is_exact=True)


def subtract(x: Expr, y: Expr) -> Expr:
    """A difference of indices, worked out where both are known."""
    if x.constant is not None and y.constant is not None:
        return number(x.constant - y.constant)
    return x if y.constant == 0 else function("sub", [x, y])


def multiply(x: Expr, y: Expr) -> Expr:
    """A product of indices, worked out where both are known."""
    if x.constant is not None and y.constant is not None:
        return number(x.constant * y.constant)
    if x.constant == 1 or y.constant == 1:
        return y if x.constant == 1 else x
    return function("mul", [x, y], is_exact=True)


def product(factors: list[Expr]) -> Expr:
    """All factors multiplied."""
    return reduce(multiply, factors, number(1))
