"""Where values go: what a load, a product or a carried tile is used for, lane by lane."""

from __future__ import annotations

from collections.abc import Iterator

from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Grid, Loop, Yield
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Mask
from tilesmith.ir.ops.rearrangement import Join, Select
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape
from tilesmith.ir.values import Value
from tilesmith.schedule.facts.outline import FunctionOutline

VIEWS = (Mask, Cast, Permute, Reshape, Broadcast, ExpandDims)
_LANE_WISE = (*VIEWS, Elementwise, Join, Select)
Use = tuple[Operation, Value]
"""An op, and which of its operands is meant."""


class Dataflow:
    """Uses of the values of one function."""

    def __init__(self, structure: FunctionOutline) -> None:
        self._definitions = structure.definitions
        self._users: dict[Value, list[Operation]] = {}
        self._handed_over: dict[Value, list[Value]] = {}
        for site in structure.sites:
            for operand in site.op.operand_values():
                self._users.setdefault(operand, []).append(site.op)
            if not isinstance(site.op, Grid):
                self._note_yields(site.op)

    def _note_yields(self, op: Operation) -> None:
        for region in op.regions():
            for value, result in zip(region.yielded, op.results):
                self._handed_over.setdefault(value, []).append(result)

    def uses(self, value: Value) -> Iterator[Use]:
        """Where the value, or what is computed from it lane by lane, ends up."""
        waiting, seen = [value], {value}
        while waiting:
            current = waiting.pop()
            following = list(self._handed_over.get(current, ()))
            for op in self._users.get(current, ()):
                if isinstance(op, _LANE_WISE):
                    following.append(op.result)
                elif isinstance(op, Loop) and current in op.init:
                    following.append(op.carried[op.init.index(current)])
                elif not isinstance(op, Yield):
                    yield op, current
            fresh = [item for item in following if item not in seen]
            seen.update(fresh)
            waiting.extend(fresh)

    def origin(self, value: Value) -> tuple[Operation | None, bool]:
        """The op behind casts, masks and changes of shape, and whether axes are in another order.

        None for a parameter or a value that a loop carries.
        """
        op, is_permuted = self._definitions.get(value), False
        while isinstance(op, VIEWS):
            is_permuted ^= isinstance(op, Permute)
            op = self._definitions.get(op.x)
        return op, is_permuted

    def name(self, value: Value) -> str:
        """What the user calls a value: its own name, or that of what it becomes or is made of."""
        if value.name:
            return value.name
        for after in (*self._handed_over.get(value, ()), *self._results_of_line(value)):
            if after.name:
                return after.name
        op = self._definitions.get(value)
        return self.name(op.x) if isinstance(op, VIEWS) else ""

    def _results_of_line(self, value: Value) -> list[Value]:
        """What the same line of the source makes of a value."""
        op = self._definitions.get(value)
        if op is None or not op.loc.line:
            return []
        users = self._users.get(value, ())
        return [u.result for u in users if isinstance(u, _LANE_WISE) and u.loc == op.loc]
