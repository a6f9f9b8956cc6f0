"""Where values go: what a load, a product or a carried tile is used for, lane by lane."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeGuard

from tilesmith.ir.axis_roles import (
    Inserted,
    Joined,
    Kept,
    Permuted,
    Picked,
    Repeated,
    Reshaped,
    Role,
)
from tilesmith.ir.operation import Operation, Trait
from tilesmith.ir.ops.control_flow import Grid, Loop, Yield
from tilesmith.ir.ops.elementwise import Cast
from tilesmith.ir.types import Value
from tilesmith.schedule.facts.outline import FunctionOutline

_ELEMENT_BY_ELEMENT = (Kept, Inserted, Repeated, Permuted, Reshaped, Joined, Picked)
"""Forms in which an element of a result is made of one of each operand, known in advance which."""
Use = tuple[Operation, Value]
"""An op, and which of its operands is meant."""


def is_whole_view(op: Operation | None) -> TypeGuard[Operation]:
    """Whether an op hands on all elements of its operand, maybe converted or some of them reset."""
    if op is None or isinstance(op, Cast):
        return op is not None
    # What picks some elements (select) is no such view.
    return Trait.VIEW in op.traits and Role.INDEXED not in op.form.roles


class Dataflow:
    """Uses of the values of one function."""

    def __init__(self, outline: FunctionOutline) -> None:
        self._definitions = outline.definitions
        self._users: dict[Value, list[Operation]] = {}
        self._handed_over: dict[Value, list[Value]] = {}
        for site in outline.sites:
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
                if isinstance(op.form, _ELEMENT_BY_ELEMENT):
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
        while is_whole_view(op):
            is_permuted ^= isinstance(op.form, Permuted)
            op = self._definitions.get(next(op.operand_values()))
        return op, is_permuted

    def name(self, value: Value) -> str:
        """What the user calls a value: its own name, or that of what it becomes or is made of."""
        if value.name:
            return value.name
        for after in (*self._handed_over.get(value, ()), *self._results_of_line(value)):
            if after.name:
                return after.name
        op = self._definitions.get(value)
        return self.name(next(op.operand_values())) if is_whole_view(op) else ""

    def _results_of_line(self, value: Value) -> list[Value]:
        """What the same line of the source makes of a value."""
        op = self._definitions.get(value)
        if op is None or not op.loc.line:
            return []
        users = self._users.get(value, ())
        return [
            u.result for u in users if isinstance(u.form, _ELEMENT_BY_ELEMENT) and u.loc == op.loc
        ]
