"""Where the elements of each tile lie in the registers of a group of four warps.

Results of products have the layout of the matrix units; what is computed from them stays there.
Tiles that come from indices and constants alone have no layout of their own: Gluon gives them
that of what they meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tilesmith.backends.triton.warp_roles.plan import RolePlan
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.ops.shape import Broadcast, ExpandDims
from tilesmith.ir.types import Dim, Value

WARPS_PER_GROUP = 4
"""They start a matrix instruction together, and share the rows of its result."""

INSTRUCTION_BYTES = 32
"""Of each row that a matrix instruction reads."""


@dataclass(frozen=True)
class ProductLayout:
    """That of a product's result, which has so many columns."""

    columns: int
    depth: int = 16
    """What one instruction sums over: 32 bytes."""

    @property
    def name(self) -> str:
        """The constant of the module that holds it."""
        return f"LAYOUT_{self.columns}"

    @property
    def definition(self) -> str:
        """Four warps below each other, each with 16 rows of all columns."""
        return f"gl.NVMMADistributedLayout([3, 0], [4, 1], [16, {self.columns}, {self.depth}])"

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class SlicedLayout:
    """That of what is left of a tile without one of its axes."""

    axis: int
    parent: Layout

    def __str__(self) -> str:
        return f"gl.SliceLayout({self.axis}, {self.parent})"


Layout = ProductLayout | SlicedLayout


def without_axes(layout: Layout, axes: Iterable[int]) -> Layout:
    """The layout of a tile that ``axes`` are added to."""
    for axis in sorted(axes, reverse=True):
        layout = SlicedLayout(axis, layout)
    return layout


def find_layouts(
    plan: RolePlan, physical: Callable[[Dim], int], vectors: Iterable[Load] = ()
) -> dict[Value, Layout]:
    """The layout of every tile that depends on a product, and of vectors in shared memory."""
    finder = _Finder(physical)
    _find_in_loop(finder, plan)
    # A vector is read in the layout in which it is used.
    given = {load.result: finder.wanted(load.result, plan.between) for load in vectors}
    finder.found.update({value: layout for value, layout in given.items() if layout is not None})
    _find_in_loop(finder, plan)
    for op in plan.after:
        finder.visit(op)
    return finder.found


def _find_in_loop(finder: _Finder, plan: RolePlan) -> None:
    loop, known = plan.loop, -1
    # What a loop carries has the layout that the loop gives it.
    while known != len(finder.found):
        known = len(finder.found)
        for op in loop.body.ops:
            finder.visit(op)
        for arg, result, value in zip(loop.carried, loop.results, loop.body.yielded):
            layout = finder.found.get(value)
            if layout is not None:
                finder.found.update({arg: layout, result: layout})


class _Finder:
    def __init__(self, physical: Callable[[Dim], int]) -> None:
        self.found: dict[Value, Layout] = {}
        self._physical = physical
        self._repeated: set[Value] = set()
        """Tiles that were made larger to fit another, whose layout then counts."""

    def visit(self, op: Operation) -> None:
        """Give the result of an op its layout, if it has one."""
        if not op.results or not op.results[0].tile.rank:
            return
        layout = self._layout(op)
        if layout is not None:
            self.found[op.results[0]] = layout

    def wanted(self, value: Value, ops: Sequence[Operation]) -> Layout | None:
        """The layout in which others meet a value that has none of its own."""
        for op in ops:
            if value not in op.operand_values() or not op.results:
                continue
            (result,) = op.results
            layout = self.found.get(result) or self.wanted(result, ops)
            if layout is not None:
                return without_axes(layout, op.axes) if isinstance(op, ExpandDims) else layout
        return None

    def _layout(self, op: Operation) -> Layout | None:
        if isinstance(op, Dot):
            depth = INSTRUCTION_BYTES // op.lhs.tile.dtype.itemsize
            return ProductLayout(self._physical(op.result.tile.shape[-1]), depth)
        if isinstance(op, Reduce):
            parent = self.found.get(op.x)
            return None if parent is None else SlicedLayout(op.axis, parent)
        if isinstance(op, ExpandDims):
            return _expanded(self.found.get(op.x), op.axes)
        operands = [value for value in op.operand_values() if value in self.found]
        whole = [value for value in operands if value not in self._repeated]
        if isinstance(op, Broadcast) or not whole:
            self._repeated.update(op.results)
        chosen = whole or operands
        return self.found[chosen[0]] if chosen else None


def _expanded(layout: Layout | None, axes: tuple[int, ...]) -> Layout | None:
    """The layout a slice was cut from, where the axis that was cut is put back."""
    for axis in sorted(axes):
        if not isinstance(layout, SlicedLayout) or layout.axis != axis:
            return None
        layout = layout.parent
    return layout
