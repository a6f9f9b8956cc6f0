"""Launch-time Python for scalars that device code computes: loop bounds over parameters.

Expressions use parameter names, integers, ``cdiv`` and Python's own operators, all of which floor.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilesmith.backends.triton.expressions import (
    Expr,
    add,
    binary,
    call,
    literal,
    multiply,
    subtract,
)  # fmt: skip
from tilesmith.diagnostics.catalogue import InternalError
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import BlockSize, Full
from tilesmith.ir.values import Value

_INFIX = {"floordiv": "//", "mod": "%"}
_CALLS = {"maximum": "max", "minimum": "min"}
_ARITHMETIC = {"add": add, "sub": subtract, "mul": multiply}


class HostExpressions:
    """Translates scalar values of one function."""

    def __init__(
        self,
        parameter_names: Mapping[Value, str],
        definitions: Mapping[Value, Operation],
        symbols: Mapping[str, int],
    ) -> None:
        self._names = parameter_names
        self._definitions = definitions
        self._symbols = symbols
        self.used: set[Value] = set()
        """Parameters that occur in what was translated."""

    def is_known(self, value: Value) -> bool:
        """Whether the value can be computed before the launch."""
        op = self._definitions.get(value)
        if value in self._names or isinstance(op, (Full, BlockSize)):
            return True
        is_arithmetic = isinstance(op, Cast) or (
            isinstance(op, Elementwise) and op.fn in {*_ARITHMETIC, *_INFIX, *_CALLS}
        )
        return op is not None and is_arithmetic and all(map(self.is_known, op.operand_values()))

    def scalar(self, value: Value) -> Expr:
        """The value as an expression over parameters."""
        if value in self._names:
            self.used.add(value)
            return Expr(self._names[value])
        op = self._definitions.get(value)
        if isinstance(op, Full):
            return literal(op.value)
        if isinstance(op, BlockSize):
            return literal(self._symbols[op.block])
        if isinstance(op, Cast):
            return self.scalar(op.x)
        if isinstance(op, Elementwise):
            return self._elementwise(op)
        raise InternalError(
            loc=value.loc, problem="a grid bound known on the device only needs a persistent launch"
        )

    def _elementwise(self, op: Elementwise) -> Expr:
        args = [self.scalar(arg) for arg in op.args]
        if op.fn in _ARITHMETIC:
            return _ARITHMETIC[op.fn](*args)
        if op.fn in _INFIX:
            return binary(_INFIX[op.fn], *args)
        if op.fn in _CALLS:
            return call(_CALLS[op.fn], *args)
        raise InternalError(loc=op.loc, problem=f"{op.fn} in a grid bound")


def ceiling_quotient(extent: Expr, size: int) -> Expr:
    """``cdiv(extent, size)``, computed already where both are known."""
    if isinstance(extent.constant, int):
        return literal(max(-(-extent.constant // size), 0))
    return extent if size == 1 else call("cdiv", extent, size)
