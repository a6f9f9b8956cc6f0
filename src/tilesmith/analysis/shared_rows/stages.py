"""Which partial reductions the programs of a row exchange, and what they compute between exchanges.

A row's tiles are reduced where they are. What needs a reduction of the whole row waits for the
others' parts of it, and comes one stage later; sums that ``find_derived`` knows need not wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilesmith.analysis.affine import Definitions
from tilesmith.analysis.effects import alias_group
from tilesmith.analysis.row_exchange import DerivedReduction, find_derived
from tilesmith.analysis.row_products import RowProduct, find_axis
from tilesmith.dtypes import F32, F64, I32, I64
from tilesmith.ir.axis_roles import Combined
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Loop
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.traversal import walk
from tilesmith.ir.types import Dim, Value

MOST_EXCHANGES = 2
"""Longer chains of reductions keep the forms that go through memory (decision 0018)."""
_KINDS = ("sum", "prod", "max", "min")
"""Reductions of which that of the whole is the same one of those of the parts."""
_DTYPES = (F32, F64, I32, I64)
"""Narrower ones would round each part."""


@dataclass(frozen=True, eq=False)
class RowExchange:
    """The ops of a program in the order in which tiles of a row can run them."""

    before: tuple[Operation, ...]
    """The loop of a product, and ops that stand before it."""
    stages: tuple[tuple[Operation, ...], ...]
    """Other ops, with an exchange between two stages. Stores come last."""
    exchanged: tuple[tuple[Reduce, ...], ...]
    """The reductions of which each exchange has the parts."""
    derived: Mapping[Reduce, DerivedReduction]
    """Sums whose parts are exchanged together with those of what they are derived from."""
    columns: Mapping[Value, int]
    """The values with the axis of columns, and which axis it is."""


def plan_exchange_stages(site: RowProduct) -> RowExchange | None:
    """How tiles of a product's rows can be kept where they are; None where that is not certain."""
    position = site.grid.body.ops.index(site.loop)
    needed = {id(op) for op in (*site.before, *site.after)}
    before = tuple(op for op in site.grid.body.ops[:position] if id(op) in needed)
    after = tuple(op for op in site.grid.body.ops[position + 1 :] if id(op) in needed)
    return plan_stages((*before, site.loop), after, (site.acc, 1), site.row_block)


def plan_stages(
    before: tuple[Operation, ...],
    after: tuple[Operation, ...],
    place: tuple[Value, int],
    row_block: str,
) -> RowExchange | None:
    """The stages of the ops after others; ``place`` is a value with columns, and their axis."""
    inner = (op.body.ops for op in before if isinstance(op, Loop))
    everything = (*before, *(op for ops in inner for op in ops), *after)
    columns = find_axis(everything, *place)
    if columns is None or not keeps_memory(everything, after):
        return None
    found: list[Reduce] = []
    for op in everything:
        if isinstance(op, Reduce) and columns.get(op.x) == op.axis:
            found.append(op)
        # Only built-in reductions are known to be the same over parts as over the whole.
        is_other = isinstance(op.form, Combined) and not isinstance(op, Reduce)
        if is_other and not columns.keys().isdisjoint(op.operand_values()):
            return None
    for op in found:
        # A reduction before the loop covers one tile only; partial sums are not exchanged yet.
        if op not in after or not is_put_together(op.kind, op.result, row_block):
            return None
    length = place[0].tile.shape[place[1]].constant
    plan = _Stages(after, found, length or 0)
    is_short = plan.num_exchanges <= MOST_EXCHANGES
    return plan.finish(before, columns) if found and is_short else None


def is_put_together(kind: str, value: Value, row_block: str) -> bool:
    """Whether a reduction of rows is the same one of those of their parts."""
    is_line = value.tile.shape == (Dim.of(row_block),)
    return is_line and kind in _KINDS and value.tile.dtype in _DTYPES


def keeps_memory(everything: Sequence[Operation], after: Sequence[Operation]) -> bool:
    """Whether no program overwrites what its neighbours still read, or what they write."""
    inside = tuple(walk(Region((), tuple(everything))))
    written = {alias_group(op.tensor) for op in inside if isinstance(op, Store)}
    if any(isinstance(op, Load) and alias_group(op.tensor) in written for op in inside):
        return False
    # The order of stores to one place is that of one program.
    stored = Counter(alias_group(op.tensor) for op in after if isinstance(op, Store))
    return all(count == 1 for count in stored.values())


class _Stages:
    """Counts the exchanges that must be over before each op."""

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
            is_exchanged = op in reductions and not self._is_derived(op, defined_by, length)
            self._known.update((value, stage + is_exchanged) for value in op.results)
        self.num_exchanges = max(self._known.values(), default=0)

    def _is_derived(self, op: Operation, defined_by: Definitions, length: int) -> bool:
        assert isinstance(op, Reduce)
        found = find_derived(op, defined_by, length)
        # Its parts are made where those of its base are: from what is known there.
        if found is None or found.base not in self._reductions or found.base in self.derived:
            return False
        if self._known.get(found.x, 0) > self._stage_of[id(found.base)]:
            return False
        self.derived[op] = found
        return True

    def finish(self, before: tuple[Operation, ...], columns: Mapping[Value, int]) -> RowExchange:
        """The ops sorted into stages, and what each exchange has."""
        last = self.num_exchanges
        stages: list[list[Operation]] = [[] for _ in range(last + 1)]
        for op in self._ops:
            stages[last if isinstance(op, Store) else self._stage_of[id(op)]].append(op)
        direct = [op for op in self._reductions if op not in self.derived]
        exchanged = tuple(
            tuple(op for op in direct if self._stage_of[id(op)] == exchange)
            for exchange in range(last)
        )
        return RowExchange(before, tuple(map(tuple, stages)), exchanged, self.derived, columns)
