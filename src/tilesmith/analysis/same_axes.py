"""Which axes of a function's values are one axis, told by dataflow.

Two constant dimensions of one length look alike in types; what ops do with them tells them apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from tilesmith.ir.axis_roles import Accessed, Carried, Role
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Loop, Yield
from tilesmith.ir.types import TileType
from tilesmith.ir.values import Value

_Place = tuple[Value, int]
"""An axis of a value."""
_TELLING = frozenset({Role.KEPT, Role.REPEATED, Role.COMBINED})
"""Roles in which lanes keep their numbers, or the result has no lanes to number."""


def find_axis(ops: Sequence[Operation], value: Value, axis: int) -> dict[Value, int] | None:
    """The values that have an axis of a value, and which of their axes that is.

    None where an axis cannot be told from it: constant dimensions of one length share indices.
    """
    links: defaultdict[_Place, list[_Place]] = defaultdict(list)
    for op in ops:
        for one, other in _same_axes(op):
            links[one].append(other)
            links[other].append(one)
    found: dict[Value, int] = {}
    waiting: list[_Place] = [(value, axis)]
    while waiting:
        place, number = waiting.pop()
        if found.get(place, number) != number:
            return None
        if place not in found:
            found[place] = number
            waiting.extend(links[place, number])
    unclear = (op for op in ops if not _tells_axes(op))
    touched = (value for op in unclear for value in (*op.operand_values(), *op.results))
    return None if any(value in found for value in touched) else found


def _tells_axes(op: Operation) -> bool:
    if isinstance(op.form, Carried):
        return isinstance(op, (Loop, Yield))
    return op.form.roles <= _TELLING


def _same_axes(op: Operation) -> Iterator[tuple[_Place, _Place]]:
    """Pairs of axes of an op's values that are one axis."""
    if isinstance(op, Loop):
        for values in zip(op.results, op.init, op.carried, op.body.yielded):
            yield from _same(*values)
    if isinstance(op.form, Carried):
        return
    targets = (Accessed.tile(op),) if isinstance(op.form, Accessed) else op.results
    combined: list[_Place] = []
    for value, roles in zip(op.operand_values(), op.axis_roles()):
        for axis, role in enumerate(roles):
            if role.role is Role.KEPT and role.to is not None:
                yield from (((target, role.to), (value, axis)) for target in targets)
            elif role.role is Role.COMBINED:
                combined.append((value, axis))
    yield from pairwise(combined)


def _same(one: Value, *others: Value) -> Iterator[tuple[_Place, _Place]]:
    if isinstance(one.type, TileType):
        for other in others:
            yield from (((one, axis), (other, axis)) for axis in range(one.type.rank))
