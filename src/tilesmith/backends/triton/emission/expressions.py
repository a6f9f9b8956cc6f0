"""Python expressions under construction: text, binding strength, and the shape Triton gives it.

The shape may be smaller than the IR value's: an axis of size 1 (or a bare scalar) that Triton
broadcasts by itself wherever the value meets a full one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import IntEnum

from tilesmith.ir.types import ONE, Shape


class Precedence(IntEnum):
    """How tightly an expression holds together; higher needs fewer parentheses."""

    COMPARE = 1
    BIT_OR = 2
    BIT_XOR = 3
    BIT_AND = 4
    SHIFT = 5
    SUM = 6
    PRODUCT = 7
    UNARY = 8
    ATOM = 9


OPERATORS = {
    "|": Precedence.BIT_OR, "^": Precedence.BIT_XOR, "&": Precedence.BIT_AND,
    "<<": Precedence.SHIFT, ">>": Precedence.SHIFT,
    "+": Precedence.SUM, "-": Precedence.SUM,
    "*": Precedence.PRODUCT, "/": Precedence.PRODUCT,
    "//": Precedence.PRODUCT, "%": Precedence.PRODUCT,
    "==": Precedence.COMPARE, "!=": Precedence.COMPARE, "<": Precedence.COMPARE,
    "<=": Precedence.COMPARE, ">": Precedence.COMPARE, ">=": Precedence.COMPARE,
}  # fmt: skip

Number = int | float | bool


@dataclass(frozen=True)
class Expr:
    """One expression."""

    text: str
    precedence: Precedence = Precedence.ATOM
    shape: Shape = ()
    arguments: tuple[str, ...] | None = None
    """Of a call: ``text`` is then what is called, so that a long one can be broken over lines."""
    constant: Number | None = None
    """The value of a literal."""
    is_untyped: bool = False
    """Whether Triton may see a Python number here (literal, constexpr, argument equal to 1)."""

    def __str__(self) -> str:
        return self.text if self.arguments is None else f"{self.text}({', '.join(self.arguments)})"

    def at(self, precedence: Precedence) -> str:
        """The text, in parentheses unless it binds at least this tightly."""
        return str(self) if self.precedence >= precedence else f"({self})"

    def with_shape(self, shape: Shape) -> Expr:
        """The same text standing for another shape."""
        return replace(self, shape=shape)


def literal(value: Number) -> Expr:
    """A Python number."""
    if isinstance(value, float) and not math.isfinite(value):
        text = 'float("nan")' if math.isnan(value) else f'float("{value}")'
    else:
        text = repr(value)
    precedence = Precedence.UNARY if text.startswith("-") else Precedence.ATOM
    return Expr(text, precedence, constant=value, is_untyped=True)


def call(name: str, *arguments: object, shape: Shape = ()) -> Expr:
    """A function call; arguments are turned into text."""
    return Expr(name, shape=shape, arguments=tuple(map(str, arguments)))


def broadcast_shapes(*shapes: Shape) -> Shape:
    """The shape of tiles combined lane by lane, aligned at their last axes."""
    rank = max(map(len, shapes), default=0)
    padded = [(ONE,) * (rank - len(shape)) + shape for shape in shapes if shape]
    result = (ONE,) * rank
    for shape in padded:
        result = tuple(b if a.is_one else a for a, b in zip(result, shape))
    return result


def binary(operator: str, lhs: Expr, rhs: Expr) -> Expr:
    """``lhs operator rhs`` with the parentheses it needs."""
    precedence = OPERATORS[operator]
    is_comparison = precedence is Precedence.COMPARE
    left = lhs.at(Precedence(precedence + is_comparison))
    right = rhs.at(Precedence(min(precedence + 1, Precedence.ATOM)))
    return Expr(
        f"{left} {operator} {right}",
        precedence,
        broadcast_shapes(lhs.shape, rhs.shape),
        is_untyped=lhs.is_untyped and rhs.is_untyped,
    )


def add(lhs: Expr, rhs: Expr) -> Expr:
    """Integer sum, without terms that are zero."""
    if lhs.constant == 0:
        return rhs
    if rhs.constant is None:
        return binary("+", lhs, rhs)
    if rhs.constant == 0:
        return lhs
    if lhs.constant is not None:
        return literal(lhs.constant + rhs.constant)
    if rhs.constant < 0:
        return binary("-", lhs, literal(-rhs.constant))
    return binary("+", lhs, rhs)


def subtract(lhs: Expr, rhs: Expr) -> Expr:
    """Integer difference, without terms that are zero."""
    if rhs.constant == 0:
        return lhs
    if lhs.constant is not None and rhs.constant is not None:
        return literal(lhs.constant - rhs.constant)
    return binary("-", lhs, rhs)


def multiply(lhs: Expr, rhs: Expr) -> Expr:
    """Integer product, without factors that are one."""
    if lhs.constant == 0 or rhs.constant == 0:
        return literal(0)
    if lhs.constant == 1:
        return rhs
    if rhs.constant == 1:
        return lhs
    if lhs.constant is not None and rhs.constant is not None:
        return literal(lhs.constant * rhs.constant)
    return binary("*", lhs, rhs)


def method(receiver: Expr, name: str, *arguments: object) -> Expr:
    """``receiver.name(arguments)``."""
    return Expr(
        f"{receiver.at(Precedence.ATOM)}.{name}",
        shape=receiver.shape,
        arguments=tuple(map(str, arguments)),
    )


def subscript(receiver: Expr, axes: tuple[int, ...], shape: Shape) -> Expr:
    """``receiver[:, None]``: ``axes`` are the new ones among the result's."""
    items = ", ".join("None" if axis in axes else ":" for axis in range(len(shape)))
    return Expr(f"{receiver.at(Precedence.ATOM)}[{items}]", shape=shape)
