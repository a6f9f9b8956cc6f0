"""Running combinations along one axis: cumulative sums and their like."""

from __future__ import annotations

from typing_extensions import override

from tilesmith.ir.axis_roles import Mixed
from tilesmith.ir.operation import Operation, attribute, op, operand
from tilesmith.ir.ops.reduction import ReduceKind
from tilesmith.ir.traits import Trait
from tilesmith.ir.values import Constant, Value

SCAN_KINDS = (ReduceKind.SUM, ReduceKind.PROD, ReduceKind.MAX, ReduceKind.MIN)


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
