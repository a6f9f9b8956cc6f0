"""Which numbers an index is known to be a multiple of."""

from __future__ import annotations

from math import gcd

from tilesmith.ir.function import Function
from tilesmith.ir.ops.control_flow import Grid, Loop
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import BlockSize, Full
from tilesmith.ir.traversal import definitions, walk_function
from tilesmith.ir.types import Dim
from tilesmith.ir.values import Value
from tilesmith.schedule.schedule import Schedule


class Multiples:
    """Known divisors of the scalars of one function under one schedule; 0 is a multiple of all."""

    def __init__(self, function: Function, schedule: Schedule) -> None:
        self._schedule = schedule
        self._definitions = definitions(function.body)
        self._loops: dict[Value, tuple[Grid | Loop, int]] = {
            arg: (op, position)
            for op in walk_function(function)
            if isinstance(op, (Grid, Loop))
            for position, arg in enumerate(op.body.args[: len(op.blocks)])
        }

    def of(self, value: Value) -> int:
        """A number that ``value`` is a multiple of; 0 if it is zero itself."""
        if value in self._loops:
            loop, position = self._loops[value]
            return gcd(self.of(loop.begins[position]), self._step(loop, position))
        op = self._definitions.get(value)
        if isinstance(op, Full) and isinstance(op.value, int):
            return abs(int(op.value))
        if isinstance(op, BlockSize):
            return self._schedule.physical(Dim.of(op.block))
        if isinstance(op, Cast):
            return self.of(op.x) if op.x.tile.dtype.is_integer else 1
        if isinstance(op, Elementwise) and op.fn in ("add", "sub"):
            return gcd(*map(self.of, op.args))
        if isinstance(op, Elementwise) and op.fn == "mul":
            return self.of(op.args[0]) * self.of(op.args[1])
        return 1

    def _step(self, loop: Grid | Loop, position: int) -> int:
        block = loop.blocks[position]
        return self._schedule.physical(Dim.of(block)) if block else 1
