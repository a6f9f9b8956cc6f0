"""Float sums that several programs add to: their last bits depend on the order programs run in.

An atomic add of floats is safe when every program adds to elements of its own. Axes of the grid
along which that cannot be shown must have one program only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tilesmith.analysis.affine import AffineIndex
from tilesmith.analysis.memory_conflicts import Access, Definitions, find_accesses
from tilesmith.ir.function import Function
from tilesmith.ir.ops.control_flow import Grid
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.ops.memory import Atomic, AtomicKind
from tilesmith.ir.traversal import definitions, walk
from tilesmith.ir.types import Dim

_INEXACT = (AtomicKind.ADD.value,)
_LAST_COMES_OUT = (AtomicKind.XCHG.value, AtomicKind.CAS.value)


@dataclass(frozen=True, eq=False)
class SharedUpdate:
    """An atomic whose outcome depends on the order of programs."""

    op: Atomic
    axes: tuple[str, ...]
    """Axes of the grid along which several programs meet, in the user's names."""
    do_lanes_meet: bool = False
    """Whether lanes of one program may, too: then fewer programs are no remedy."""

    @property
    def tensor(self) -> str:
        """What is added to."""
        return self.op.tensor.name

    @property
    def meeting(self) -> str:
        """Who meets in one element."""
        if self.do_lanes_meet:
            return "lanes of a program, and programs,"
        return f"programs that differ along {' and '.join(self.axes)}"

    def __str__(self) -> str:
        return f"{self.meeting} add floats to `{self.tensor}` in any order ({self.op.loc})"


def find_shared_updates(function: Function, sizes: Mapping[str, int]) -> tuple[SharedUpdate, ...]:
    """Atomics on floats whose outcome depends on the run order, with tiles of these sizes.

    ``sizes`` gives blocks that are not fixed; one that is missing is taken for the smallest.
    """
    known = definitions(function.body)
    fixed = {block.name: block.fixed for block in function.blocks if block.fixed is not None}
    found: list[SharedUpdate] = []
    for grid in walk(function.body):
        if isinstance(grid, Grid):
            found += _updates_in(_Counts(grid, {**sizes, **fixed}, known))
    return tuple(found)


def _updates_in(counts: _Counts) -> Iterator[SharedUpdate]:
    for op in walk(counts.grid.body):
        if not isinstance(op, Atomic) or not _depends_on_order(op):
            continue
        (access,) = find_accesses(op, counts.definitions)
        axes = tuple(_shared_axes(access, counts))
        do_lanes_meet = any(form is None for form in access.forms)
        if axes or do_lanes_meet:
            yield SharedUpdate(op, axes, do_lanes_meet)


def _depends_on_order(op: Atomic) -> bool:
    is_float = op.tensor.tensor.dtype.is_float
    return is_float and (op.kind in _INEXACT or op.kind in _LAST_COMES_OUT)


@dataclass(frozen=True)
class _Counts:
    """How many programs there are along the axes of a grid."""

    grid: Grid
    sizes: Mapping[str, int]
    definitions: Definitions

    def is_one(self, axis: int) -> bool:
        block = self.grid.blocks[axis]
        extent = self._extent(axis)
        size = self.sizes.get(block, 1) if block else 1
        return extent is not None and extent <= size

    def _extent(self, axis: int) -> int | None:
        """Only what is constant counts: other extents are those of the first call."""
        begin, end = (self.definitions.get(x[axis]) for x in (self.grid.begins, self.grid.ends))
        if isinstance(begin, Full) and isinstance(end, Full):
            return int(end.value) - int(begin.value)
        return None


def _shared_axes(access: Access, counts: _Counts) -> Iterator[str]:
    grid = counts.grid
    for axis, arg in enumerate(grid.body.args):
        if not counts.is_one(axis) and not _moves_with(access, grid, axis):
            yield grid.blocks[axis] or arg.name or f"axis {axis}"


def _moves_with(access: Access, grid: Grid, axis: int) -> bool:
    """Whether programs that differ along an axis touch different elements."""
    forms = [form for form in access.forms if form is not None]
    return any(_steps_over(form, grid, axis) for form in forms)


def _steps_over(form: AffineIndex, grid: Grid, axis: int) -> bool:
    arg = grid.body.args[axis]
    coefficient = dict(form.base).get(arg, 0)
    others = [value for value, _ in form.base if value is not arg]
    if coefficient == 0 or any(value in grid.body.args for value in others):
        return False
    if form.axis is None:
        return not others
    block = grid.blocks[axis]
    if not block or others:
        return False
    return form.dim == Dim.of(block) and form.scale == coefficient
