"""What becomes of accesses to memory: stored values are used again, the rest ordered and numbered.

Barriers stand between accesses that must be ordered; a Config names loops and accesses by number.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import count

from tilesmith.analysis.memory_conflicts import (
    Access,
    accesses_in,
    find_accesses,
    is_same_place,
    may_conflict,
    must_order,
)
from tilesmith.analysis.memory_order import with_barriers
from tilesmith.ir import traversal
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Grid, If, Loop, While
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.types import Value


def forward_stored_values(function: Function) -> Function:
    """Replace a load by the value last stored to exactly its elements.

    Before::

        store(%out, %a, none, [%i])
        %b = load(%out, none, [%i]) : f32[t]
        store(%twice, %b, none, [%i])

    After::

        store(%out, %a, none, [%i])
        store(%twice, %a, none, [%i])

    Neither access may have an explicit mask, the indices must name each element once, and
    nothing in between may write to the tensor's alias group.
    """
    return function.with_body(_Forwarding(function).visit(function.body, []))


class _Forwarding:
    """Walks regions in order with the stores whose values are still what memory holds."""

    def __init__(self, function: Function) -> None:
        self._defined_by = traversal.definitions(function.body)
        self._substitution = traversal.Substitution()

    def visit(self, region: Region, stored: list[Access]) -> Region:
        new_ops: list[Operation] = []
        for op in region.ops:
            current = op.with_operands(self._substitution)
            if isinstance(current, Load) and (value := self._find_value(current, stored)):
                self._substitution[current.result] = value
                continue
            if current.regions():
                current = self._visit_inside(current, stored)
            self._update(current, stored)
            new_ops.append(current)
        return region.with_ops(new_ops)

    def _find_value(self, load: Load, stored: list[Access]) -> Value | None:
        (access,) = find_accesses(load, self._defined_by)
        for earlier in reversed(stored):
            store = earlier.op
            assert isinstance(store, Store)
            if load.mask is None and is_same_place(earlier, access):
                return store.value if store.value.type == load.result.type else None
        return None

    def _visit_inside(self, op: Operation, stored: list[Access]) -> Operation:
        written = [a for r in op.regions() for a in accesses_in(r, self._defined_by)]
        if isinstance(op, (Loop, While, Grid)):
            # Earlier iterations have written whatever later ones write.
            _forget(written, stored)
        if isinstance(op, While):
            # It may wait for another program to overwrite what this one stored.
            stored.clear()
        blocks = traversal.bound_blocks(op)
        inner: list[Region] = []
        for region in op.regions():
            visible = [
                a for a in stored if not traversal.value_symbols(a.op.operand_values()) & blocks
            ]
            inner.append(self.visit(region, visible))
        if isinstance(op, If):
            _forget(written, stored)
        return op.with_regions(tuple(inner))

    def _update(self, op: Operation, stored: list[Access]) -> None:
        for access in find_accesses(op, self._defined_by):
            _forget([access], stored)
            if isinstance(op, Atomic) and op.acquires:
                stored.clear()
            is_plain = isinstance(op, Store) and op.mask is None and access.tensor is not None
            if is_plain and _names_each_element_once(access):
                stored.append(access)


def _forget(accesses: Iterable[Access], stored: list[Access]) -> None:
    """Drop what the accesses may have written."""
    for access in accesses:
        if access.writes:
            stored[:] = [earlier for earlier in stored if not may_conflict(earlier, access)]


def _names_each_element_once(access: Access) -> bool:
    """Whether different lanes touch different elements: some index moves along every axis."""
    assert access.tensor is not None
    moved: set[int] = set()
    for position, (index, form) in enumerate(zip(access.indices, access.forms)):
        is_repeated = access.tensor.tensor.strides[position] == 0
        if form is not None and form.axis is not None and not is_repeated:
            moved.add(form.axis + len(access.shape) - index.tile.rank)
    return all(dim.is_one or axis in moved for axis, dim in enumerate(access.shape))


def order_memory(function: Function) -> Function:
    """Make each program see its own stores in program order.

    Before::

        store(%out, %a, none, [%i])
        %b = load(%out, none, [%j]) : f32[t]

    After::

        store(%out, %a, none, [%i])
        program_barrier()
        %b = load(%out, none, [%j]) : f32[t]

    One barrier covers every access before it. A conflict between what stands before a loop and
    what is in it puts the barrier before the loop; one between iterations puts it inside,
    before the first access concerned. ``is_ordered`` is set on loops in which a load may read
    what the loop itself stored.
    """
    return with_barriers(function, must_order)


_COUNTERS: dict[type[Operation], str] = {
    Grid: "grid",
    Loop: "loop",
    # Loads and stores share one list of a Config, ``indexing``.
    Load: "access",
    Store: "access",
    Atomic: "atomic",
}


def number_slots(function: Function) -> Function:
    """Give every loop and access its slot, in program order, outer loops before inner ones.

    Before::

        %a = load(%x, none, [%i]) {slot=-1, eviction=""} : f32[t]
        store(%out, %a, none, [%i]) {slot=-1}

    After::

        %a = load(%x, none, [%i]) {slot=0, eviction=""} : f32[t]
        store(%out, %a, none, [%i]) {slot=1}
    """
    counters = {name: count() for name in _COUNTERS.values()}

    def number(op: Operation) -> Operation:
        if isinstance(op, (Grid, Loop, Load, Store, Atomic)):
            slot = next(counters[_COUNTERS[type(op)]])
            op = op if slot == op.slot else replace(op, slot=slot)
        return op.with_regions(tuple(r.with_ops(map(number, r.ops)) for r in op.regions()))

    return function.with_body(function.body.with_ops(map(number, function.body.ops)))
