"""The operators of Python that tiles refuse: ``tile + integer`` is all the arithmetic they have.

Every form says so in the same words, whichever side the tile is on. Without these methods Python
would complain about its own types, or compare tiles by identity and give an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilesmith.diagnostics import errors
from tilesmith.diagnostics.wording import kind_of
from tilesmith.frontend.tracer import locate
from tilesmith.frontend.values import TorchOperand

Operator = Callable[..., Any]


def no_arithmetic(form: str) -> errors.TileArithmetic:
    """The error about an expression, e.g. ``tile * 2``."""
    return errors.TileArithmetic(form=form, loc=locate())


def _shown(operand: Any) -> str:
    return repr(operand) if isinstance(operand, (int, float)) else f"<{kind_of(operand)}>"


def _left(symbol: str) -> Operator:
    def refuse(self: TileOperators, other: Any) -> Any:
        raise no_arithmetic(f"tile {symbol} {_shown(other)}")

    return refuse


def _right(symbol: str) -> Operator:
    def refuse(self: TileOperators, other: Any) -> Any:
        raise no_arithmetic(f"{_shown(other)} {symbol} tile")

    return refuse


def _around(before: str, after: str = "") -> Operator:
    def refuse(self: TileOperators, *_: Any) -> Any:
        raise no_arithmetic(f"{before}tile{after}")

    return refuse


class TileOperators(TorchOperand):
    """Refuses to be a number, a condition or an operand."""

    __radd__ = _right("+")
    __sub__, __rsub__ = _left("-"), _right("-")
    __mul__, __rmul__ = _left("*"), _right("*")
    __truediv__, __rtruediv__ = _left("/"), _right("/")
    __floordiv__, __rfloordiv__ = _left("//"), _right("//")
    __mod__, __rmod__ = _left("%"), _right("%")
    __divmod__, __rdivmod__ = _around("divmod(", ", ...)"), _around("divmod(..., ", ")")
    __pow__, __rpow__ = _left("**"), _right("**")
    __matmul__, __rmatmul__ = _left("@"), _right("@")
    __and__, __rand__ = _left("&"), _right("&")
    __or__, __ror__ = _left("|"), _right("|")
    __xor__, __rxor__ = _left("^"), _right("^")
    __lshift__, __rlshift__ = _left("<<"), _right("<<")
    __rshift__, __rrshift__ = _left(">>"), _right(">>")
    __lt__, __le__, __gt__, __ge__ = _left("<"), _left("<="), _left(">"), _left(">=")
    __neg__, __pos__, __invert__ = _around("-"), _around("+"), _around("~")
    __abs__, __round__ = _around("abs(", ")"), _around("round(", ")")
    __int__, __float__ = _around("int(", ")"), _around("float(", ")")
    __index__ = _around("int(", ")")
    __bool__ = _around("bool(", ")")

    def __eq__(self, other: object) -> bool:
        return self._same_as("==", other)

    def __ne__(self, other: object) -> bool:
        return self._same_as("!=", other)

    def _same_as(self, symbol: str, other: object) -> bool:
        if isinstance(other, (int, float)):
            raise no_arithmetic(f"tile {symbol} {_shown(other)}")
        # Device values refuse in their turn; tiles among other objects are found by identity.
        return NotImplemented

    __hash__ = object.__hash__
