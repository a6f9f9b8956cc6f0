"""Reductions and scans with a combination of the user's own, given as a region of scalars.

The region of an op over ``n`` tiles has ``2 n`` scalar arguments, first the left elements and then
the right ones, and yields ``n`` scalars. Its ops are pure and elementwise and use nothing from
outside. The combination is associative; lanes are combined in ascending order (descending where
``reverse``).
"""

from __future__ import annotations

from collections.abc import Iterator

from typing_extensions import override

from tilesmith.ir.axis_roles import Combined, Mixed
from tilesmith.ir.operation import Operation, Region, attribute, op, operands, region
from tilesmith.ir.ops.control_flow import Yield
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.traits import Trait
from tilesmith.ir.types import scalar
from tilesmith.ir.values import Constant, Value

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
