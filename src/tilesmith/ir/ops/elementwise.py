"""Elementwise ops: one op over a table of scalar functions, and casts.

Operands of ``Elementwise`` have one shape and (except for ``where``'s condition and shifts) one
element type; the frontend inserts broadcasts and casts so that rounding is explicit in the IR.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from typing_extensions import override

from tilesmith.dtypes import U32, U64, DType
from tilesmith.ir.axis_roles import Kept
from tilesmith.ir.operation import Operation, Trait, attribute, op, operand, operands
from tilesmith.ir.types import Value


class ResultKind(Enum):
    """How the result's element type follows from the operands'."""

    SAME = "same"
    BOOL = "bool"


@dataclass(frozen=True)
class ScalarFunction:
    """One scalar function: its arity, its result kind and whether operands may be swapped."""

    name: str
    arity: int
    result: ResultKind = ResultKind.SAME
    is_commutative: bool = False
    is_transcendental: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether a float type holds what this makes of its numbers."""
        return self.name in _EXACT


def _unary(*names: str, transcendental: bool = False) -> list[ScalarFunction]:
    return [ScalarFunction(name, 1, is_transcendental=transcendental) for name in names]


def _binary(*names: str, commutative: bool = False) -> list[ScalarFunction]:
    return [ScalarFunction(name, 2, is_commutative=commutative) for name in names]


_TABLE = [
    *_unary("neg", "abs", "floor", "ceil", "round", "trunc", "sqrt", "rsqrt", "not"),
    *_unary("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", transcendental=True),
    *_unary("sin", "cos", "tan", "asin", "acos", "atan", transcendental=True),
    *_unary("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", transcendental=True),
    *_unary("erf", "erfc", "sigmoid", transcendental=True),
    ScalarFunction("isnan", 1, ResultKind.BOOL),
    ScalarFunction("isinf", 1, ResultKind.BOOL),
    *_binary("add", "mul", "maximum", "minimum", commutative=True),
    *_binary("and", "or", "xor", commutative=True),
    # div: true division of floats; floordiv/mod round towards -inf; truncdiv/fmod towards zero.
    *_binary("sub", "div", "floordiv", "truncdiv", "mod", "fmod", "shl", "shr"),
    # The upper half of the product of two u32 or two u64.
    *_binary("mulhi", commutative=True),
    ScalarFunction("pow", 2, is_transcendental=True),
    ScalarFunction("atan2", 2, is_transcendental=True),
    *[ScalarFunction(name, 2, ResultKind.BOOL, True) for name in ("eq", "ne")],
    *[ScalarFunction(name, 2, ResultKind.BOOL) for name in ("lt", "le", "gt", "ge")],
    ScalarFunction("fma", 3),
    ScalarFunction("where", 3),
]
_EXACT = {"neg", "abs", "floor", "ceil", "round", "trunc", "maximum", "minimum", "where", "fmod"}
SCALAR_FUNCTIONS = {function.name: function for function in _TABLE}
INFIX = {
    **{"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="},
    **{"or": "|", "xor": "^", "and": "&", "shl": "<<", "shr": ">>"},
    **{"add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%"},
}
"""Functions that Python writes between their operands."""
_PLAIN = ("neg", "add", "sub", "mul", "xor", "eq", "ne", "lt", "le", "gt", "ge")
PYTHON_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(operator, name) for name in _PLAIN},
    **{"and": operator.and_, "or": operator.or_},
}
"""Functions that Python's operators compute, whatever kind of numbers they are given."""


@op("elementwise", Trait.PURE, axes=Kept())
class Elementwise(Operation):
    """Apply a scalar function lane by lane. ``maximum``/``minimum`` propagate NaN."""

    args: tuple[Value, ...] = operands()
    fn: str = attribute()

    @property
    def function(self) -> ScalarFunction:
        """The row of the scalar-function table."""
        return SCALAR_FUNCTIONS[self.fn]

    @override
    def verify(self) -> str | None:
        if self.fn not in SCALAR_FUNCTIONS:
            return f"unknown scalar function {self.fn!r}"
        if len(self.args) != self.function.arity:
            return f"{self.fn} takes {self.function.arity} operands, found {len(self.args)}"
        shapes = {arg.tile.shape for arg in (*self.args, *self.results)}
        if len(shapes) > 1:
            return f"{self.fn} operands and result differ in shape"
        valued = self.args[1:] if self.fn == "where" else self.args
        if len({arg.tile.dtype for arg in valued}) > 1:
            return f"{self.fn} operands differ in element type"
        if self.fn == "mulhi" and valued[0].tile.dtype not in (U32, U64):
            return "mulhi multiplies u32 or u64"
        dtype = self.result.tile.dtype
        if self.function.result is ResultKind.BOOL:
            return None if dtype.is_bool else f"{self.fn} must give bool"
        return None if dtype == valued[0].tile.dtype else f"{self.fn} changes the element type"


@op("cast", Trait.PURE, axes=Kept())
class Cast(Operation):
    """Convert to the result's element type: round to nearest even, float to int truncates."""

    x: Value = operand()
    bitcast: bool = attribute(default=False)

    @property
    def dtype(self) -> DType:
        """The element type converted to."""
        return self.result.tile.dtype

    @override
    def verify(self) -> str | None:
        return None if self.x.tile.shape == self.result.tile.shape else "cast changes the shape"
