"""Computes equal expressions once, and reads unchanged memory once."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from tilesmith.analysis.effects import (
    AliasGroup,
    alias_group,
    groups_written_in,
    is_elsewhere,
    is_pure,
    written_groups,
)
from tilesmith.ir.function import Function
from tilesmith.ir.operation import OPERAND, OPERANDS, Operation, Region
from tilesmith.ir.ops.control_flow import Grid, If, Loop, While
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.traversal import Substitution, bound_blocks, shape_symbols
from tilesmith.ir.types import Value


def merge_common_subexpressions(function: Function) -> Function:
    """Merge pure ops, and loads with no write in between, that are equal and visible.

    Before::

        %a = load(%x, none, [%i]) : f32[t]
        %b = load(%x, none, [%i]) : f32[t]
        %c = elementwise(%a, %b) {fn="add"} : f32[t]

    After::

        %a = load(%x, none, [%i]) : f32[t]
        %c = elementwise(%a, %a) {fn="add"} : f32[t]
    """
    return function.with_body(_Merger().merge(function.body, frozenset()))


class _Memory:
    """A version number for each alias group: equal versions mean equal content."""

    def __init__(self) -> None:
        self._everything = 0
        self._groups: dict[AliasGroup, int] = {}

    def version(self, group: AliasGroup | None) -> tuple[int, int]:
        if group is None:
            return self._everything, sum(self._groups.values())
        return self._everything, self._groups.get(group, 0)

    def change(self, groups: Iterable[AliasGroup] | None) -> None:
        if groups is None:
            self._everything += 1
            return
        for group in groups:
            self._groups[group] = self._groups.get(group, 0) + 1


class _Merger:
    """A stack of tables of available expressions, one for each open region."""

    def __init__(self) -> None:
        self._scopes: list[tuple[frozenset[str], dict[Hashable, Operation]]] = []
        self._memory = _Memory()
        self._substitution = Substitution()

    def merge(self, region: Region, bound: frozenset[str]) -> Region:
        self._scopes.append((bound, {}))
        new_ops: list[Operation] = []
        for op in region.ops:
            current = self._merge_inside(op.with_operands(self._substitution))
            earlier = self._find_or_add(current)
            if earlier is None:
                new_ops.append(current)
                self._memory.change(written_groups(current))
            else:
                self._substitute(current, earlier)
        self._scopes.pop()
        return region.with_ops(new_ops)

    def _merge_inside(self, op: Operation) -> Operation:
        if not op.regions():
            return op
        if is_pure(op):
            # A combination of elements knows nothing but its arguments.
            return op.with_regions(tuple(_Merger().merge(r, frozenset()) for r in op.regions()))
        repeats = isinstance(op, (Grid, Loop, While))
        inner: list[Region] = []
        for region in op.regions():
            if repeats:
                # An earlier iteration (or program) may have written what this one reads.
                self._change_by(op)
            inner.append(self.merge(region, bound_blocks(op)))
            if isinstance(op, If):
                self._memory.change(groups_written_in(region))
        if repeats:
            self._change_by(op)
        return op.with_regions(tuple(inner))

    def _change_by(self, op: Operation) -> None:
        self._memory.change(written_groups(op))
        for region in op.regions():
            self._memory.change(groups_written_in(region))

    def _substitute(self, op: Operation, earlier: Operation) -> None:
        for old, new in zip(op.results, earlier.results):
            self._substitution[old] = new
            new.name = new.name or old.name

    def _find_or_add(self, op: Operation) -> Operation | None:
        key = self._key(op)
        if key is None:
            return None
        symbols = shape_symbols(op)
        for bound, table in reversed(self._scopes):
            if key in table:
                return table[key]
            # Outside this loop the same expression covers whole blocks instead of valid lanes.
            if bound & symbols:
                break
        self._scopes[-1][1][key] = op
        return None

    def _key(self, op: Operation) -> Hashable | None:
        if op.regions():
            return None
        if is_pure(op):
            return _expression_key(op, ())
        if isinstance(op, Load):
            version = self._memory.version(None if is_elsewhere(op) else alias_group(op.tensor))
            return (version, _expression_key(op, ("slot",)))
        return None


def _expression_key(op: Operation, ignored: tuple[str, ...]) -> Hashable:
    attributes = tuple(
        (name, _exact(value)) for name, value in op.attributes().items() if name not in ignored
    )
    types = tuple(result.type for result in op.results)
    return (type(op), attributes, _operand_key(op), types)


def _operand_key(op: Operation) -> Hashable:
    if isinstance(op, Elementwise) and op.function.is_commutative:
        return tuple(sorted(map(id, op.args)))
    single = tuple(getattr(op, field.name) for field in op.fields_of(OPERAND))
    several: tuple[tuple[Value, ...], ...] = tuple(
        getattr(op, field.name) for field in op.fields_of(OPERANDS)
    )
    return (single, several)


def _exact(value: Any) -> Hashable:
    # 1, 1.0 and True are equal in Python, as are 0.0 and -0.0; they are different constants here.
    if isinstance(value, tuple):
        return tuple(map(_exact, value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return (type(value).__name__, repr(value))
