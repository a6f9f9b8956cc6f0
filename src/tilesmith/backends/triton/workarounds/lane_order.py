"""Barriers between a load or a store and a later store of the same elements by the same lanes.

Whole programs and lanes keep such an order by themselves, threads do not always. Where a tile has
fewer elements than there are threads, each element is loaded by several of them and stored by one,
which waits for none of the others; and Triton may lay out the two accesses differently. Larger
tiles have one thread for each element of an access, but loads and stores may have different ones:
what a store computes from the load has come from that thread to this one, so it is late enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from tilesmith.analysis.memory_conflicts import Access, Iterations, may_conflict, must_order
from tilesmith.analysis.memory_order import with_barriers
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Mask
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.ir.traversal import definitions
from tilesmith.ir.types import Value
from tilesmith.schedule.schedule import Schedule


def order_lanes(function: Function, schedule: Schedule) -> Function:
    """The function with such barriers.

    Before::

        %a = load(%x, none, [%i])
        store(%x, %b, none, [%i])

    After::

        %a = load(%x, none, [%i])
        program_barrier()
        store(%x, %b, none, [%i])
    """
    return with_barriers(function, _Threads(function, schedule).must_meet)


class _Threads:
    """How the lanes of accesses are shared among threads."""

    def __init__(self, function: Function, schedule: Schedule) -> None:
        self._known: Mapping[Value, Operation] = definitions(function.body)
        least = {size.name: 1 for size in function.sizes}  # the same code serves smaller ones
        self._least = replace(schedule, symbols={**schedule.symbols, **least})
        self._count = schedule.num_warps * schedule.target.warp_size

    def must_meet(self, first: Access, second: Access, iterations: Iterations | None) -> bool:
        """Whether threads have to wait for each other where lanes need not."""
        earlier, later = first.op, second.op
        if not isinstance(earlier, (Load, Store)) or not isinstance(later, Store):
            return False
        # What lanes do not order by themselves has its barrier.
        if must_order(first, second, iterations) or not may_conflict(first, second, iterations):
            return False
        is_small = prod(self._least.physical_shape(second.shape)) < self._count
        is_late = isinstance(earlier, Store) or self._follows(later.value, earlier.result)
        return is_small or not is_late

    def _follows(self, value: Value, loaded: Value) -> bool:
        """Whether each element is computed from the one of the load."""
        op = self._known.get(value)
        if value is loaded or not isinstance(op, (Cast, Elementwise, Mask)):
            return value is loaded
        own = [x for x in op.operand_values() if x.tile.shape == loaded.tile.shape]
        return any(self._follows(operand, loaded) for operand in own)
