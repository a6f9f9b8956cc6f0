"""Which axes of a load may hold anything past their end.

The copy engine knows where a tensor ends, but not where a group of its rows does: a tile that
begins in one group may reach into the next. Its rows are computed, and not stored: stores mask for
themselves. So the engine may load them, where each lane along the axis goes to stores of that very
lane, and to nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilesmith.analysis.effects import is_pure
from tilesmith.ir.axis_roles import Role
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import If, Loop, Yield
from tilesmith.ir.ops.indexing import Mask
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.ir.traversal import walk_function
from tilesmith.ir.types import Dim, Value

Place = tuple[Value, int]
"""A tile and one of its axes."""


class UnseenLanes:
    """Answers for one function."""

    def __init__(self, function: Function) -> None:
        self._users: dict[Value, list[Operation]] = {}
        self._owners: dict[Operation, Operation] = {}
        for op in walk_function(function):
            for value in op.operand_values():
                self._users.setdefault(value, []).append(op)
            self._owners.update((end, op) for region in op.regions() for end in _ends(region))

    def axes(self, op: Operation) -> tuple[int, ...]:
        """The axes of a load past whose ends nothing looks; of other ops none."""
        if not isinstance(op, Load):
            return ()
        rank = op.result.tile.rank
        return tuple(axis for axis in range(rank) if self._is_unseen((op.result, axis)))

    def _is_unseen(self, place: Place) -> bool:
        reached, pending = {place}, [place]
        while pending:
            value, axis = pending.pop()
            for op in self._users.get(value, []):
                following = self._follow(op, value, axis)
                if following is None:
                    return False
                fresh = [place for place in following if place not in reached]
                reached.update(fresh)
                pending += fresh
        return True

    def _follow(self, op: Operation, value: Value, axis: int) -> list[Place] | None:
        """Where the lanes of an axis go; None where others than their own see them."""
        if isinstance(op, Store):
            is_stored = op.value is value and list(op.operand_values()).count(value) == 1
            return [] if is_stored else None
        if isinstance(op, Yield) and self._is_left(op, value, axis):
            return None
        if isinstance(op, Loop) or (isinstance(op, Yield) and self._is_passed_on(op)):
            return [(found, axis) for found in self._handed_on(op, value)]
        if not is_pure(op) or (isinstance(op, Mask) and axis in op.axes):
            return None
        uses = [roles for used, roles in zip(op.operand_values(), op.axis_roles()) if used is value]
        if any(roles[axis].role is not Role.KEPT for roles in uses):
            return None
        kept = [to for roles in uses if (to := roles[axis].to) is not None]
        return [(result, to) for result in op.results for to in kept]

    def _is_left(self, op: Yield, value: Value, axis: int) -> bool:
        """Whether the loop whose tiles the axis has ends there: stores after it mask nothing."""
        owner = self._owners[op]
        dims = [Dim.of(block) for block in owner.blocks if block] if isinstance(owner, Loop) else []
        return value.tile.shape[axis] in dims

    def _is_passed_on(self, op: Yield) -> bool:
        return isinstance(self._owners[op], (Loop, If))

    def _handed_on(self, op: Loop | Yield, value: Value) -> Iterator[Value]:
        """What a loop carries on, or what its end and that of a branch give to the op around."""
        if isinstance(op, Loop):
            yield from (arg for start, arg in zip(op.init, op.carried) if start is value)
            yield from (end for start, end in zip(op.init, op.results) if start is value)
            return
        owner = self._owners[op]
        for position, given in enumerate(op.values):
            if given is value:
                yield owner.results[position]
                if isinstance(owner, Loop):
                    yield owner.carried[position]


def _ends(region: Region) -> Iterator[Operation]:
    return (op for op in region.ops if isinstance(op, Yield))
