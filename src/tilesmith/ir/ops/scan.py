"""Running combinations along one axis: cumulative sums and their like."""

from __future__ import annotations

from typing_extensions import override

from tilesmith.ir.operation import Operation, attribute, op, operand
from tilesmith.ir.ops.reduction import ReduceKind
from tilesmith.ir.traits import Trait
from tilesmith.ir.values import Value

SCAN_KINDS = (ReduceKind.SUM, ReduceKind.PROD, ReduceKind.MAX, ReduceKind.MIN)


@op("scan", Trait.PURE)
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

    @property
    def needs_neutral_lanes(self) -> bool:
        """Whether an invalid lane may stand before a valid one, in the direction of the scan."""
        return self.reverse or len(self.x.tile.shape[self.axis].factors) > 1

    @override
    def verify(self) -> str | None:
        if self.kind not in {kind.value for kind in SCAN_KINDS}:
            return f"unknown scan {self.kind!r}"
        if not 0 <= self.axis < self.x.tile.rank:
            return f"axis {self.axis} of a tile of rank {self.x.tile.rank}"
        if self.x.tile.dtype.is_bool:
            return "scan of bools"
        return None if self.x.type == self.result.type else "scan changes the type"
