"""What becomes of accesses to memory: stored values are used again, the rest ordered and numbered.

Barriers stand between accesses that must be ordered; a Config names loops and accesses by number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import count

from tilesmith.analysis.memory_conflicts import (
    Access,
    Iterations,
    accesses_in,
    find_accesses,
    is_same_place,
    may_conflict,
    must_order,
)
from tilesmith.ir import traversal
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Grid, GridBarrier, GroupBarrier, If, Loop, While
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import BlockSize, Full
from tilesmith.ir.ops.memory import Atomic, Load, ProgramBarrier, Store
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


_BARRIERS = (ProgramBarrier, GridBarrier, GroupBarrier)
"""Ops at which all threads of a program wait for each other."""


Orders = Callable[[Access, Access, "Iterations | None"], bool]
"""Whether the threads of a program must meet between two accesses."""


def order_memory(function: Function, must: Orders = must_order) -> Function:
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
    return function.with_body(_Ordering(function, must).visit(function.body, []))


class _Ordering:
    """Walks regions in order. ``pending`` are the accesses made since the last barrier."""

    def __init__(self, function: Function, must: Orders) -> None:
        self._must = must
        self._defined_by = traversal.definitions(function.body)
        self._least = {block.name: block.fixed or 1 for block in function.blocks}

    def visit(self, region: Region, pending: list[Access]) -> Region:
        new_ops: list[Operation] = []
        for op in region.ops:
            needs_barrier, current = self._visit_op(op, pending)
            if needs_barrier:
                new_ops.append(ProgramBarrier(loc=op.loc))
            new_ops.append(current)
        return region.with_ops(new_ops)

    def _visit_op(self, op: Operation, pending: list[Access]) -> tuple[bool, Operation]:
        """Whether a barrier must come before the op, and the op with its regions done."""
        if isinstance(op, Grid):
            return False, op.with_regions((self.visit(op.body, []),))
        if isinstance(op, (Loop, While)):
            return self._visit_loop(op, pending)
        if op.regions():
            return False, self._visit_branches(op, pending)
        if isinstance(op, _BARRIERS):
            pending.clear()
            return False, op
        accesses = find_accesses(op, self._defined_by)
        needs_barrier = self._must_order_any(pending, accesses)
        if needs_barrier:
            pending.clear()
        pending.extend(accesses)
        return needs_barrier, op

    def _visit_branches(self, op: Operation, pending: list[Access]) -> Operation:
        after: list[Access] = []
        inner: list[Region] = []
        for region in op.regions():
            here = list(pending)
            inner.append(self.visit(region, here))
            after.extend(access for access in here if access not in after)
        pending[:] = after
        return op.with_regions(tuple(inner))

    def _visit_loop(self, op: Loop | While, pending: list[Access]) -> tuple[bool, Operation]:
        inside = self._accesses_in(op)
        needs_barrier = self._must_order_any(pending, inside)
        if needs_barrier:
            pending.clear()
        tail: list[Access] = []
        regions = tuple(self.visit(region, tail) for region in op.regions())
        varying = {v for region in op.regions() for v in traversal.values_defined_in(region)}
        numbers = self._numbers(op) if isinstance(op, Loop) else {}
        iterations = Iterations(op, varying, self._defined_by, numbers)
        # The condition of a while loop is the last thing it runs.
        pending.extend(inside if isinstance(op, While) else tail)
        result = op.with_regions(self._separate_iterations(regions, tail, iterations))
        is_free = isinstance(result, Loop) and not result.is_ordered
        if is_free and self._reads_own_stores(inside, iterations):
            result = replace(result, is_ordered=True)
        return needs_barrier, result

    def _numbers(self, loop: Loop) -> dict[Value, int]:
        """First indices of tiles over their size, or over less: no two iterations have the same."""
        axes = {arg: axis for axis, arg in enumerate(loop.body.args[: loop.rank])}
        found: dict[Value, int] = {}
        for op in loop.body.ops:
            axis = axes.get(op.args[0]) if isinstance(op, Elementwise) else None
            if isinstance(op, Elementwise) and axis is not None and op.fn == "floordiv":
                size, block = self._defined_by.get(op.args[1]), loop.blocks[axis]
                is_own = isinstance(size, BlockSize) and size.block == block
                is_less = isinstance(size, Full) and 0 < size.value <= self._least.get(block, 0)
                found.update({op.result: axis} if is_own or is_less else {})
        return found

    def _accesses_in(self, op: Operation) -> list[Access]:
        return [a for region in op.regions() for a in accesses_in(region, self._defined_by)]

    def _separate_iterations(
        self, regions: tuple[Region, ...], tail: list[Access], iterations: Iterations
    ) -> tuple[Region, ...]:
        """Add a barrier before the first access that must wait for the iteration before."""
        for i, region in enumerate(regions):
            for position, op in enumerate(region.ops):
                if isinstance(op, ProgramBarrier):
                    return regions
                accesses = (*find_accesses(op, self._defined_by), *self._accesses_in(op))
                if self._must_order_any(tail, accesses, iterations):
                    barrier = ProgramBarrier(loc=op.loc)
                    ops = (*region.ops[:position], barrier, *region.ops[position:])
                    return (*regions[:i], Region(region.args, ops), *regions[i + 1 :])
        return regions

    def _must_order_any(
        self,
        first: Sequence[Access],
        second: Sequence[Access],
        iterations: Iterations | None = None,
    ) -> bool:
        return any(self._must(a, b, iterations) for a in first for b in second)

    def _reads_own_stores(self, accesses: list[Access], iterations: Iterations) -> bool:
        """Whether a load may see a store of an earlier iteration, or an earlier one of its own."""
        return any(
            self._must_order_any(accesses, [access], iterations)
            or self._must_order_any(accesses[:i], [access])
            for i, access in enumerate(accesses)
            if isinstance(access.op, Load)
        )


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
