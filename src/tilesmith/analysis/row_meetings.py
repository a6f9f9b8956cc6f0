"""When programs that have tiles of the same rows must meet: what they compute before and after.

A row's tiles are reduced where they are. Whoever needs a reduction of the whole row must wait for
the others' parts of it; what needs such a result comes one meeting later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilesmith.analysis.derived_reductions import DerivedReduction, find_derived
from tilesmith.analysis.effects import alias_group
from tilesmith.analysis.row_products import RowProduct
from tilesmith.analysis.same_axes import find_axis
from tilesmith.dtypes import F32, F64, I32, I64
from tilesmith.ir.axis_roles import Combined
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.traversal import walk
from tilesmith.ir.types import Dim
from tilesmith.ir.values import Value

MOST_MEETINGS = 2
_KINDS = ("sum", "prod", "max", "min")
"""Reductions of which that of the whole is the same one of those of the parts."""
_DTYPES = (F32, F64, I32, I64)
"""Narrower ones would round each part."""


@dataclass(frozen=True, eq=False)
class RowMeetings:
    """The ops of a program in the order in which tiles of a row can run them."""

    before: tuple[Operation, ...]
    """Ops that stand before the loop."""
    stages: tuple[tuple[Operation, ...], ...]
    """Ops after the loop; between two stages the programs of a row meet. Stores come last."""
    exchanged: tuple[tuple[Reduce, ...], ...]
    """The reductions of which each meeting exchanges parts."""
    derived: Mapping[Reduce, DerivedReduction]
    """Sums whose parts are exchanged together with those of what they are derived from."""
    columns: Mapping[Value, int]
    """The values with the axis of columns, and which axis it is."""


def plan_meetings(site: RowProduct) -> RowMeetings | None:
    """How tiles of a product's rows can be kept where they are; None where that is not certain."""
    position = site.grid.body.ops.index(site.loop)
    needed = {id(op) for op in (*site.before, *site.after)}
    before = tuple(op for op in site.grid.body.ops[:position] if id(op) in needed)
    after = tuple(op for op in site.grid.body.ops[position + 1 :] if id(op) in needed)
    everything = (*before, site.loop, *site.loop.body.ops, *after)
    columns = find_axis(everything, site.acc, 1)
    if columns is None or _reads_what_it_writes(everything) or _writes_twice(after):
        return None
    # Only built-in reductions are known to be the same over parts as over the whole.
    if any(_combines_otherwise(op, columns) for op in everything):
        return None
    found = [op for op in everything if isinstance(op, Reduce) and columns.get(op.x) == op.axis]
    # A reduction before the loop covers one tile only; partial sums are not exchanged yet.
    if not found or any(op not in after for op in found):
        return None
    if not all(_can_be_exchanged(op, site.row_block) for op in found):
        return None
    plan = _Stages(after, found, site.num_columns)
    return plan.finish(before, columns) if plan.num_meetings <= MOST_MEETINGS else None


def _reads_what_it_writes(ops: Sequence[Operation]) -> bool:
    """Whether a program may overwrite what its neighbours still read."""
    inside = tuple(walk(Region((), tuple(ops))))
    written = {alias_group(op.tensor) for op in inside if isinstance(op, Store)}
    return any(isinstance(op, Load) and alias_group(op.tensor) in written for op in inside)


def _writes_twice(ops: Sequence[Operation]) -> bool:
    """Whether two programs may write one place: the order of stores is that of one program."""
    written = Counter(alias_group(op.tensor) for op in ops if isinstance(op, Store))
    return any(count > 1 for count in written.values())


def _combines_otherwise(op: Operation, columns: Mapping[Value, int]) -> bool:
    """Whether an op other than a built-in reduction combines lanes of values with columns."""
    if isinstance(op, Reduce) or not isinstance(op.form, Combined):
        return False
    return not columns.keys().isdisjoint(op.operand_values())


def _can_be_exchanged(op: Reduce, row_block: str) -> bool:
    shape, dtype = op.result.tile.shape, op.result.tile.dtype
    return op.kind in _KINDS and dtype in _DTYPES and shape == (Dim.of(row_block),)


class _Stages:
    """Tells how many meetings must have been before each op."""

    def __init__(self, ops: Sequence[Operation], reductions: list[Reduce], length: int) -> None:
        self._ops = ops
        self._reductions = reductions
        defined_by = {value: op for op in ops for value in op.results}
        self.derived: dict[Reduce, DerivedReduction] = {}
        self._known: dict[Value, int] = {}
        self._stage_of: dict[int, int] = {}
        for op in ops:
            stage = max((self._known.get(value, 0) for value in op.operand_values()), default=0)
            self._stage_of[id(op)] = stage
            is_met = op in reductions and not self._is_derived(op, defined_by, length)
            self._known.update((value, stage + is_met) for value in op.results)
        self.num_meetings = max(self._known.values(), default=0)

    def _is_derived(
        self, op: Operation, defined_by: Mapping[Value, Operation], length: int
    ) -> bool:
        assert isinstance(op, Reduce)
        found = find_derived(op, defined_by, length)
        # Its parts are made where those of its base are: from what is known there.
        if found is None or found.base not in self._reductions or found.base in self.derived:
            return False
        if self._known.get(found.x, 0) > self._stage_of[id(found.base)]:
            return False
        self.derived[op] = found
        return True

    def finish(self, before: tuple[Operation, ...], columns: Mapping[Value, int]) -> RowMeetings:
        """The plan."""
        last = self.num_meetings
        stages: list[list[Operation]] = [[] for _ in range(last + 1)]
        for op in self._ops:
            stages[last if isinstance(op, Store) else self._stage_of[id(op)]].append(op)
        direct = [op for op in self._reductions if op not in self.derived]
        exchanged = tuple(
            tuple(op for op in direct if self._stage_of[id(op)] == meeting)
            for meeting in range(last)
        )
        return RowMeetings(before, tuple(map(tuple, stages)), exchanged, self.derived, columns)
