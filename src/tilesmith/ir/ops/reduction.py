"""Reductions and scans along one axis, built-in and with a combination of the user's own.

A combination is a region of scalars. For ``n`` tiles it has ``2 n`` arguments, first the left
elements and then the right ones, and yields ``n``. Its ops are pure and elementwise and use nothing
from outside. It is associative; lanes are combined in ascending order (descending where
``reverse``).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from typing_extensions import override

from tilesmith.dtypes import BOOL, DType
from tilesmith.ir.axis_roles import Combined, Mixed
from tilesmith.ir.operation import (
    Operation,
    Region,
    Trait,
    attribute,
    op,
    operand,
    operands,
    region,
)
from tilesmith.ir.ops.control_flow import Yield
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.types import Constant, Value, scalar


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

    def accumulator(self, source: DType, result: DType) -> DType:
        """What elements of one type are accumulated in for a result of another."""
        if self in (ReduceKind.ANY, ReduceKind.ALL):
            return BOOL
        return result.computed if self in (ReduceKind.SUM, ReduceKind.PROD) else source

    @property
    def is_arg(self) -> bool:
        """Whether the result is a position rather than a value."""
        return self in (ReduceKind.ARGMAX, ReduceKind.ARGMIN)

    @property
    def scalar_function(self) -> str:
        """What combines two elements; positions are not combined by one function."""
        return _SCALAR_FUNCTIONS[self]


_SCALAR_FUNCTIONS = {
    ReduceKind.SUM: "add", ReduceKind.PROD: "mul", ReduceKind.MAX: "maximum",
    ReduceKind.MIN: "minimum", ReduceKind.ANY: "or", ReduceKind.ALL: "and",
}  # fmt: skip
SCAN_KINDS = (ReduceKind.SUM, ReduceKind.PROD, ReduceKind.MAX, ReduceKind.MIN)
KINDS_BY_FUNCTION = {kind.scalar_function: kind for kind in SCAN_KINDS}
"""Of numbers, what a reduction by that scalar function is."""


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


@op("scan", Trait.PURE, axes=Mixed("axis"))
class Scan(Operation):
    """Each element combined with all before it along ``axis``, or all after it if ``reverse``.

    The first element (the last one in reverse) stays as it is. Half floats combine in fp32 and
    round once for each result; integers wrap; ``max``/``min`` propagate NaN.
    """

    x: Value = operand()
    axis: int = attribute()
    kind: str = attribute()
    reverse: bool = attribute(default=False)

    @property
    def reduction(self) -> ReduceKind:
        """The reduction of which the results are the steps."""
        return ReduceKind(self.kind)

    @override
    def neutral(self, position: int) -> Constant | None:
        # Only where an invalid lane may stand before a valid one, in the direction of the scan.
        comes_before = self.reverse or self._is_merged
        return self.reduction.identity(self.x.tile.dtype) if comes_before else None

    @override
    def neutral_result(self, axis: int) -> Constant | None:
        # In reverse the lanes past the end come first; otherwise they follow valid ones.
        if axis == self.axis and (not self.reverse or self._is_merged):
            return None
        return self.reduction.identity(self.x.tile.dtype)

    @property
    def _is_merged(self) -> bool:
        """Whether the axis is several in one, so that invalid lanes stand between valid ones."""
        return len(self.x.tile.shape[self.axis].factors) > 1

    @override
    def verify(self) -> str | None:
        if self.kind not in {kind.value for kind in SCAN_KINDS}:
            return f"unknown scan {self.kind!r}"
        if not 0 <= self.axis < self.x.tile.rank:
            return f"axis {self.axis} of a tile of rank {self.x.tile.rank}"
        if self.x.tile.dtype.is_bool:
            return "scan of bools"
        return None if self.x.type == self.result.type else "scan changes the type"


COMBINE_OPS = (Elementwise, Cast, Full, Yield)
"""What a combination may consist of."""


@op("reduce_with", Trait.PURE, num_results=None, axes=Combined("axis"))
class ReduceWith(Operation):
    """Combine all elements along ``axis``, which the results lack; one result for each operand.

    Masked lanes must hold ``others``, which leave the combination unchanged; an empty axis gives
    them. Without ``others`` invalid lanes never take part, and an empty axis gives zeros.
    """

    xs: tuple[Value, ...] = operands()
    axis: int = attribute()
    others: tuple[int | float | bool, ...] | None = attribute(default=None)
    combine: Region = region()

    @property
    def leaves_out_invalid_lanes(self) -> bool:
        """Whether a backend must see to it that no invalid lane takes part."""
        return self.others is None

    @override
    def neutral(self, position: int) -> Constant | None:
        return None if self.others is None else self.others[position]

    @override
    def verify(self) -> str | None:
        if self.others is not None and len(self.others) != len(self.xs):
            return "one value for masked lanes is needed for each operand"
        return next(_problems(self, drops_axis=True), None)


@op("scan_with", Trait.PURE, num_results=None, axes=Mixed("axis"))
class ScanWith(Operation):
    """Each element combined with all before it along ``axis``, or all after it if ``reverse``.

    Invalid lanes never take part, whatever they hold and wherever they stand.
    """

    xs: tuple[Value, ...] = operands()
    axis: int = attribute()
    reverse: bool = attribute(default=False)
    combine: Region = region()

    @property
    def leaves_out_invalid_lanes(self) -> bool:
        """Whether an invalid lane may stand before a valid one, in the direction of the scan."""
        return self.reverse or len(self.xs[0].tile.shape[self.axis].factors) > 1

    @override
    def neutral(self, position: int) -> Constant | None:
        return None

    @override
    def verify(self) -> str | None:
        return next(_problems(self, drops_axis=False), None)


def _problems(op: ReduceWith | ScanWith, *, drops_axis: bool) -> Iterator[str]:
    if not op.xs or len({x.tile.shape for x in op.xs}) > 1:
        yield "operands must be tiles of one shape"
        return
    shape, axis = op.xs[0].tile.shape, op.axis
    if not 0 <= axis < len(shape):
        yield f"axis {axis} of a tile of rank {len(shape)}"
    wanted = shape[:axis] + shape[axis + 1 :] if drops_axis else shape
    if [x.tile.with_shape(wanted) for x in op.xs] != [result.type for result in op.results]:
        yield "result types do not follow from the operands"
    elements = [scalar(x.tile.dtype) for x in op.xs]
    if [arg.type for arg in op.combine.args] != elements * 2:
        yield "the combination must take the left elements, then the right ones"
    if [value.type for value in op.combine.yielded] != elements:
        yield "the combination must yield one element of each operand's type"
    yield from _problems_inside(op.combine)


def _problems_inside(combine: Region) -> Iterator[str]:
    known = set(combine.args)
    for inner in combine.ops:
        if not isinstance(inner, COMBINE_OPS):
            yield f"a {inner.name} stands in a combination"
        if not known.issuperset(inner.operand_values()):
            yield "the combination uses a value from outside"
        known.update(inner.results)
