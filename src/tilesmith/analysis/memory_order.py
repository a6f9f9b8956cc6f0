"""Puts barriers between accesses of a program that must keep their order among its threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tilesmith.analysis.memory_conflicts import Access, Iterations, accesses_in, find_accesses
from tilesmith.ir import traversal
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Grid, GridBarrier, GroupBarrier, Loop, While
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import BlockSize, Full
from tilesmith.ir.ops.memory import Load, ProgramBarrier
from tilesmith.ir.types import Value

_BARRIERS = (ProgramBarrier, GridBarrier, GroupBarrier)
"""Ops at which all threads of a program wait for each other."""
Orders = Callable[[Access, Access, "Iterations | None"], bool]
"""Whether the threads of a program must meet between two accesses."""


def with_barriers(function: Function, must: Orders) -> Function:
    """The function with barriers where threads must meet and do not yet."""
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
