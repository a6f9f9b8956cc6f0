"""Which partial reductions the programs of a row exchange, and what they compute between exchanges.

A row's tiles are reduced where they are. What needs a reduction of the whole row waits for the
others' parts of it, and comes one stage later. A sum that needs another reduction of the row first
(a variance its mean, a softmax its maximum) can do with that of a part: such sums are put together
afterwards, with what the parts' anchors are off from that of the row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from tilesmith.analysis.effects import alias_group
from tilesmith.analysis.row_products import RowProduct, find_axis
from tilesmith.dtypes import F32, F64, I32, I64
from tilesmith.ir.axis_roles import Combined
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import Full, Mask
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Reshape
from tilesmith.ir.traversal import walk
from tilesmith.ir.types import Dim, Value

_POWERS = ("exp", "exp2")
MOST_EXCHANGES = 2
"""Longer chains of reductions keep the forms that go through memory (decision 0018)."""
_KINDS = ("sum", "prod", "max", "min")
"""Reductions of which that of the whole is the same one of those of the parts."""
_DTYPES = (F32, F64, I32, I64)
"""Narrower ones would round each part."""


class SumForm(Enum):
    """How a sum hangs on its anchor."""

    SQUARES = "squares"
    """``sum((x - mean)**2)``"""
    POWERS = "powers"
    """``sum(exp(x - maximum))``"""


@dataclass(frozen=True, eq=False)
class DerivedReduction:
    """A sum over the rows of ``x`` around what ``base``, another reduction of them, gave."""

    rule: SumForm
    op: Reduce
    base: Reduce
    x: Value
    anchor: Value
    """The mean or the maximum, one for each row, maybe with an axis of length 1."""
    fn: str
    """Of powers, ``exp`` or ``exp2``."""


def find_derived(
    op: Reduce, defined_by: Mapping[Value, Operation], length: int
) -> DerivedReduction | None:
    """What a sum over rows of that length is derived from, if it is one of those known."""
    if op.kind != "sum":
        return None
    summand = defined_by.get(_unmasked(op.x, defined_by))
    if not isinstance(summand, Elementwise):
        return None
    if summand.fn in _POWERS:
        return _find_powers(op, summand, defined_by)
    if summand.fn == "mul" and summand.args[0] is summand.args[1]:
        return _find_squares(op, summand, defined_by, length)
    return None


def _find_powers(
    op: Reduce, summand: Elementwise, defined_by: Mapping[Value, Operation]
) -> DerivedReduction | None:
    parts = _find_difference(summand.args[0], defined_by)
    if parts is None:
        return None
    x, anchor = parts
    # Where a maximum is infinite, torch.logsumexp takes 0 instead.
    maximum = _finite_of(anchor, defined_by) or anchor
    base = defined_by.get(_reshaped(maximum, defined_by))
    if not _reduces(base, "max", x, op.axis, defined_by):
        return None
    assert isinstance(base, Reduce)
    return DerivedReduction(SumForm.POWERS, op, base, x, anchor, summand.fn)


def _find_squares(
    op: Reduce, summand: Elementwise, defined_by: Mapping[Value, Operation], length: int
) -> DerivedReduction | None:
    parts = _find_difference(summand.args[0], defined_by)
    if parts is None:
        return None
    x, anchor = parts
    quotient = defined_by.get(_reshaped(anchor, defined_by))
    if not isinstance(quotient, Elementwise) or quotient.fn != "div":
        return None
    total, count = (defined_by.get(_reshaped(value, defined_by)) for value in quotient.args)
    if not isinstance(count, Full) or count.value != length:
        return None
    if not _reduces(total, "sum", x, op.axis, defined_by):
        return None
    assert isinstance(total, Reduce)
    return DerivedReduction(SumForm.SQUARES, op, total, x, anchor, "")


def _find_difference(
    value: Value, defined_by: Mapping[Value, Operation]
) -> tuple[Value, Value] | None:
    """Of ``x - anchor`` the two, the anchor before it is spread over columns."""
    op = defined_by.get(value)
    if not isinstance(op, Elementwise) or op.fn != "sub":
        return None
    spread = defined_by.get(op.args[1])
    return (op.args[0], spread.x) if isinstance(spread, Broadcast) else None


def _finite_of(value: Value, defined_by: Mapping[Value, Operation]) -> Value | None:
    """Of ``where(isinf(x), 0, x)`` the x."""
    op = defined_by.get(value)
    if not isinstance(op, Elementwise) or op.fn != "where":
        return None
    test, zero = (defined_by.get(arg) for arg in op.args[:2])
    is_test = isinstance(test, Elementwise) and test.fn == "isinf" and test.args[0] is op.args[2]
    is_zero = isinstance(zero, Full) and zero.value == 0
    return op.args[2] if is_test and is_zero else None


def _reduces(
    op: Operation | None, kind: str, x: Value, axis: int, defined_by: Mapping[Value, Operation]
) -> bool:
    if not isinstance(op, Reduce) or op.kind != kind or op.axis != axis:
        return False
    return _unmasked(op.x, defined_by) is _unmasked(x, defined_by)


def _unmasked(value: Value, defined_by: Mapping[Value, Operation]) -> Value:
    op = defined_by.get(value)
    return op.x if isinstance(op, Mask) else value


def _reshaped(value: Value, defined_by: Mapping[Value, Operation]) -> Value:
    """What a value of each row was before it got, or lost, an axis of length 1."""
    op = defined_by.get(value)
    while isinstance(op, (ExpandDims, Reshape)):
        value = op.x
        op = defined_by.get(value)
    return value


@dataclass(frozen=True, eq=False)
class RowExchange:
    """The ops of a program in the order in which tiles of a row can run them."""

    before: tuple[Operation, ...]
    """Ops that stand before the loop."""
    stages: tuple[tuple[Operation, ...], ...]
    """Ops after the loop, with an exchange between two stages. Stores come last."""
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
    return plan.finish(before, columns) if plan.num_exchanges <= MOST_EXCHANGES else None


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
