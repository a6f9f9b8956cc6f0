"""Reductions and scans with a combination of the user's own, given as a region of scalars.

The region of an op over ``n`` tiles has ``2 n`` scalar arguments, first the left elements and then
the right ones, and yields ``n`` scalars. Its ops are pure and elementwise. The combination is
associative; lanes are combined in ascending order (descending where ``reverse``).
"""

from __future__ import annotations

from collections.abc import Iterator

from typing_extensions import override

from tilesmith.ir.operation import Operation, Region, attribute, op, operands, region
from tilesmith.ir.traits import Trait
from tilesmith.ir.types import scalar
from tilesmith.ir.values import Value


@op("reduce_with", Trait.PURE, num_results=None)
class ReduceWith(Operation):
    """Combine all elements along ``axis``, which the results lack; one result for each operand.

    Masked lanes must hold values that leave the combination unchanged. An empty axis gives what
    the masked lanes hold: ``others``.
    """

    xs: tuple[Value, ...] = operands()
    axis: int = attribute()
    others: tuple[int | float | bool, ...] = attribute()
    combine: Region = region()

    @override
    def verify(self) -> str | None:
        if len(self.others) != len(self.xs):
            return "one value for masked lanes is needed for each operand"
        return next(_problems(self.xs, self.results, self.axis, self.combine, drops=True), None)


@op("scan_with", Trait.PURE, num_results=None)
class ScanWith(Operation):
    """Each element combined with all before it along ``axis``, or all after it if ``reverse``.

    Invalid lanes never take part, whatever they hold and wherever they stand.
    """

    xs: tuple[Value, ...] = operands()
    axis: int = attribute()
    reverse: bool = attribute(default=False)
    combine: Region = region()

    @override
    def verify(self) -> str | None:
        return next(_problems(self.xs, self.results, self.axis, self.combine, drops=False), None)


def _problems(
    xs: tuple[Value, ...], results: tuple[Value, ...], axis: int, combine: Region, *, drops: bool
) -> Iterator[str]:
    if not xs or len({x.tile.shape for x in xs}) > 1:
        yield "operands must be tiles of one shape"
        return
    shape = xs[0].tile.shape
    if not 0 <= axis < len(shape):
        yield f"axis {axis} of a tile of rank {len(shape)}"
    wanted = shape[:axis] + shape[axis + 1 :] if drops else shape
    if [x.tile.with_shape(wanted) for x in xs] != [result.type for result in results]:
        yield "result types do not follow from the operands"
    elements = [scalar(x.tile.dtype) for x in xs]
    if [arg.type for arg in combine.args] != elements * 2:
        yield "the combination must take the left elements, then the right ones"
    if [value.type for value in combine.yielded] != elements:
        yield "the combination must yield one element of each operand's type"
