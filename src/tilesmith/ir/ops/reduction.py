"""Reductions along one axis."""

from __future__ import annotations

from enum import Enum

from typing_extensions import override

from tilesmith.dtypes import DType
from tilesmith.ir.axis_roles import Combined
from tilesmith.ir.operation import Operation, attribute, op, operand
from tilesmith.ir.traits import Trait
from tilesmith.ir.values import Constant, Value


class ReduceKind(str, Enum):
    """How elements combine. ``max``/``min`` propagate NaN; arg forms give the first position."""

    SUM = "sum"
    PROD = "prod"
    MAX = "max"
    MIN = "min"
    ARGMAX = "argmax"
    ARGMIN = "argmin"
    ANY = "any"
    ALL = "all"

    def identity(self, dtype: DType) -> int | float | bool:
        """The value that leaves a combination unchanged: what masked lanes must hold."""
        if self in (ReduceKind.MAX, ReduceKind.ARGMAX):
            return dtype.lowest
        if self in (ReduceKind.MIN, ReduceKind.ARGMIN):
            return dtype.highest
        if self in (ReduceKind.ANY, ReduceKind.ALL):
            return self is ReduceKind.ALL
        one_or_zero = 1 if self is ReduceKind.PROD else 0
        return float(one_or_zero) if dtype.is_float else one_or_zero

    @property
    def is_arg(self) -> bool:
        """Whether the result is a position rather than a value."""
        return self in (ReduceKind.ARGMAX, ReduceKind.ARGMIN)


@op("reduce", Trait.PURE, axes=Combined("axis"))
class Reduce(Operation):
    """Combine all elements along ``axis``, which the result lacks."""

    x: Value = operand()
    axis: int = attribute()
    kind: str = attribute()

    @property
    def reduction(self) -> ReduceKind:
        """The kind as an enum member."""
        return ReduceKind(self.kind)

    @override
    def neutral(self, position: int) -> Constant | None:
        return self.reduction.identity(self.x.tile.dtype)

    @override
    def neutral_result(self, axis: int) -> Constant | None:
        # Combining any number of identities (no lane at all included) gives the identity.
        is_element = not self.reduction.is_arg and self.x.tile.dtype == self.result.tile.dtype
        return self.neutral(0) if is_element else None

    @override
    def of_one_lane(self) -> tuple[Value | Constant, ...]:
        return (0,) if self.reduction.is_arg else (self.x,)

    @override
    def verify(self) -> str | None:
        if self.kind not in {kind.value for kind in ReduceKind}:
            return f"unknown reduction {self.kind!r}"
        shape = self.x.tile.shape
        if not 0 <= self.axis < len(shape):
            return f"axis {self.axis} of a tile of rank {len(shape)}"
        if self.result.tile.shape != shape[: self.axis] + shape[self.axis + 1 :]:
            return "result shape is not the operand's without the axis"
        return None
