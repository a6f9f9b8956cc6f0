"""Uses a stored value where the program would read it back from memory."""

from __future__ import annotations

from collections.abc import Mapping

from tilesmith.analysis.memory_conflicts import (
    Access,
    accesses_in,
    find_accesses,
    is_disjoint,
    is_same_place,
)
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Grid, If, Loop, While
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.traversal import Substitution, bound_blocks, definitions, value_symbols
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
    forwarding = _Forwarding(definitions(function.body))
    return function.with_body(forwarding.visit(function.body, []))


class _Forwarding:
    """Walks regions in order with the stores whose values are still what memory holds."""

    def __init__(self, defined_by: Mapping[Value, Operation]) -> None:
        self._defined_by = defined_by
        self._substitution = Substitution()

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
        if isinstance(op, (Loop, While, Grid)):
            # Earlier iterations have written whatever later ones write.
            for region in op.regions():
                self._forget_written(region, stored)
        if isinstance(op, While):
            # It may wait for another program to overwrite what this one stored.
            stored.clear()
        blocks = bound_blocks(op)
        inner: list[Region] = []
        for region in op.regions():
            visible = [a for a in stored if not value_symbols(a.op.operand_values()) & blocks]
            inner.append(self.visit(region, visible))
        if isinstance(op, If):
            for region in op.regions():
                self._forget_written(region, stored)
        return op.with_regions(tuple(inner))

    def _forget_written(self, region: Region, stored: list[Access]) -> None:
        for access in accesses_in(region, self._defined_by):
            if access.writes:
                _forget_overwritten(access, stored)

    def _update(self, op: Operation, stored: list[Access]) -> None:
        for access in find_accesses(op, self._defined_by):
            if access.writes:
                _forget_overwritten(access, stored)
            if isinstance(op, Atomic) and op.acquires:
                stored.clear()
            is_plain = isinstance(op, Store) and op.mask is None and access.tensor is not None
            if is_plain and _names_each_element_once(access):
                stored.append(access)


def _forget_overwritten(access: Access, stored: list[Access]) -> None:
    stored[:] = [
        earlier
        for earlier in stored
        if (access.group is not None and earlier.group != access.group)
        or is_disjoint(earlier, access)
    ]


def _names_each_element_once(access: Access) -> bool:
    """Whether different lanes touch different elements: some index moves along every axis."""
    assert access.tensor is not None
    moved: set[int] = set()
    for position, (index, form) in enumerate(zip(access.indices, access.forms)):
        is_repeated = access.tensor.tensor.strides[position] == 0
        if form is not None and form.axis is not None and not is_repeated:
            moved.add(form.axis + len(access.shape) - index.tile.rank)
    return all(dim.is_one or axis in moved for axis, dim in enumerate(access.shape))
