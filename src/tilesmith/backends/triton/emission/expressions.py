"""Python expressions under construction: text, binding strength, and the shape Triton gives it.

The shape may be smaller than the IR value's: an axis of size 1 (or a bare scalar) that Triton
broadcasts by itself wherever the value meets a full one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tilesmith.backends.source_writer import OPERATORS, Precedence
from tilesmith.ir.types import ONE, Shape

Number = int | float | bool


@dataclass(frozen=True)
class Expr:
    """One expression. Operators are of index arithmetic: without zero terms and factors of one."""

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

    def infix(self, operator: str, rhs: Expr) -> Expr:
        """``self operator rhs`` with the parentheses it needs."""
        precedence = OPERATORS[operator]
        is_comparison = precedence is Precedence.COMPARE
        left = self.at(Precedence(precedence + is_comparison))
        right = rhs.at(Precedence(min(precedence + 1, Precedence.ATOM)))
        return Expr(
            f"{left} {operator} {right}",
            precedence,
            broadcast_shapes(self.shape, rhs.shape),
            is_untyped=self.is_untyped and rhs.is_untyped,
        )

    def method(self, name: str, *arguments: object) -> Expr:
        """``self.name(arguments)``, which has the same shape."""
        return call(f"{self.at(Precedence.ATOM)}.{name}", *arguments, shape=self.shape)

    def subscript(self, axes: tuple[int, ...], shape: Shape) -> Expr:
        """``self[:, None]``: ``axes`` are the new ones among the result's."""
        items = ", ".join("None" if axis in axes else ":" for axis in range(len(shape)))
        return Expr(f"{self.at(Precedence.ATOM)}[{items}]", shape=shape)

    def __add__(self, other: Expr | int) -> Expr:
        rhs = _operand(other)
        if self.constant == 0:
            return rhs
        if rhs.constant is None:
            return self.infix("+", rhs)
        if rhs.constant == 0:
            return self
        if self.constant is not None:
            return literal(self.constant + rhs.constant)
        if rhs.constant < 0:
            return self.infix("-", literal(-rhs.constant))
        return self.infix("+", rhs)

    def __sub__(self, rhs: Expr) -> Expr:
        if rhs.constant == 0:
            return self
        if self.constant is not None and rhs.constant is not None:
            return literal(self.constant - rhs.constant)
        return self.infix("-", rhs)

    def __mul__(self, other: Expr | int) -> Expr:
        rhs = _operand(other)
        if self.constant == 0 or rhs.constant == 0:
            return literal(0)
        if self.constant == 1:
            return rhs
        if rhs.constant == 1:
            return self
        if self.constant is not None and rhs.constant is not None:
            return literal(self.constant * rhs.constant)
        return self.infix("*", rhs)

    def __floordiv__(self, other: Expr | int) -> Expr:
        return self.infix("//", _operand(other))

    def __mod__(self, other: Expr | int) -> Expr:
        return self.infix("%", _operand(other))


def _operand(value: Expr | int) -> Expr:
    return literal(value) if isinstance(value, int) else value


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
