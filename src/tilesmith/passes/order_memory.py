"""Puts barriers between accesses that must be ordered; marks loops not to be pipelined."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tilesmith.analysis.memory_conflicts import (
    Access,
    Iterations,
    accesses_in,
    find_accesses,
    must_order,
)
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Grid, GridBarrier, GroupBarrier, Loop, While
from tilesmith.ir.ops.memory import Load, ProgramBarrier
from tilesmith.ir.traversal import definitions, values_defined_in
from tilesmith.ir.types import Value

_BARRIERS = (ProgramBarrier, GridBarrier, GroupBarrier)
"""Ops at which all threads of a program wait for each other."""


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
    ordering = _Ordering(definitions(function.body))
    return function.with_body(ordering.visit(function.body, []))


class _Ordering:
    """Walks regions in order. ``pending`` are the accesses made since the last barrier."""

    def __init__(self, defined_by: dict[Value, Operation]) -> None:
        self._defined_by = defined_by

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
        needs_barrier = _must_order_any(pending, accesses)
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
        inside = self._accesses_of(op.regions())
        needs_barrier = _must_order_any(pending, inside)
        if needs_barrier:
            pending.clear()
        tail: list[Access] = []
        regions = tuple(self.visit(region, tail) for region in op.regions())
        iterations = self._iterations_of(op)
        regions = self._separate_iterations(regions, tail, iterations)
        # The condition of a while loop is the last thing it runs.
        pending.extend(inside if isinstance(op, While) else tail)
        result = op.with_regions(regions)
        if (
            isinstance(result, Loop)
            and not result.is_ordered
            and _reads_own_stores(inside, iterations)
        ):
            result = replace(result, is_ordered=True)
        return needs_barrier, result

    def _accesses_of(self, regions: Iterable[Region]) -> list[Access]:
        return [a for region in regions for a in accesses_in(region, self._defined_by)]

    def _iterations_of(self, op: Operation) -> Iterations:
        varying = {v for region in op.regions() for v in values_defined_in(region)}
        return Iterations(op, varying, self._defined_by)

    def _separate_iterations(
        self, regions: tuple[Region, ...], tail: list[Access], iterations: Iterations
    ) -> tuple[Region, ...]:
        """Add a barrier before the first access that must wait for the iteration before."""
        for i, region in enumerate(regions):
            for position, op in enumerate(region.ops):
                if isinstance(op, ProgramBarrier):
                    return regions
                accesses = self._accesses_of_op(op)
                if _must_order_any(tail, accesses, iterations):
                    barrier = ProgramBarrier(loc=op.loc)
                    ops = (*region.ops[:position], barrier, *region.ops[position:])
                    return (*regions[:i], Region(region.args, ops), *regions[i + 1 :])
        return regions

    def _accesses_of_op(self, op: Operation) -> list[Access]:
        return [*find_accesses(op, self._defined_by), *self._accesses_of(op.regions())]


def _must_order_any(
    first: Iterable[Access], second: Iterable[Access], iterations: Iterations | None = None
) -> bool:
    later = tuple(second)
    return any(must_order(a, b, iterations) for a in first for b in later)


def _reads_own_stores(accesses: list[Access], iterations: Iterations) -> bool:
    """Whether a load may see a store of an earlier iteration, or an earlier one of its own."""
    for i, access in enumerate(accesses):
        if not isinstance(access.op, Load):
            continue
        if _must_order_any(accesses, [access], iterations):
            return True
        if _must_order_any(accesses[:i], [access]):
            return True
    return False
