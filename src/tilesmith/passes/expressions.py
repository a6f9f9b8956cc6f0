"""Where expressions are computed: equal ones once, invariant ones before their loop.

Unchanged memory is read once. A product is added to its accumulator inside the dot, unrounded.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import replace
from typing import Any

from tilesmith.analysis.effects import (
    AliasGroup,
    alias_group,
    groups_written_in,
    is_elsewhere,
    is_pure,
    written_groups,
)
from tilesmith.ir import traversal
from tilesmith.ir.function import Function
from tilesmith.ir.operation import OPERAND, OPERANDS, Operation, Region
from tilesmith.ir.ops.control_flow import Grid, If, Loop, While
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Load
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
        self._substitution = traversal.Substitution()

    def merge(self, region: Region, bound: frozenset[str]) -> Region:
        self._scopes.append((bound, {}))
        new_ops: list[Operation] = []
        for op in region.ops:
            current = self._merge_inside(op.with_operands(self._substitution))
            earlier = self._find_or_add(current)
            if earlier is None:
                new_ops.append(current)
                self._memory.change(written_groups(current))
                continue
            for old, new in zip(current.results, earlier.results):
                self._substitution[old] = new
                new.name = new.name or old.name
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
            inner.append(self.merge(region, traversal.bound_blocks(op)))
            if isinstance(op, If):
                self._memory.change(groups_written_in(region))
        if repeats:
            self._change_by(op)
        return op.with_regions(tuple(inner))

    def _change_by(self, op: Operation) -> None:
        self._memory.change(written_groups(op))
        for region in op.regions():
            self._memory.change(groups_written_in(region))

    def _find_or_add(self, op: Operation) -> Operation | None:
        key = self._key(op)
        if key is None:
            return None
        symbols = traversal.shape_symbols(op)
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
    fields = (*op.fields_of(OPERAND), *op.fields_of(OPERANDS))
    return tuple(getattr(op, field.name) for field in fields)


def _exact(value: Any) -> Hashable:
    # 1, 1.0 and True are equal in Python, as are 0.0 and -0.0; they are different constants here.
    if isinstance(value, tuple):
        return tuple(map(_exact, value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return (type(value).__name__, repr(value))


_DIVISIONS = ("floordiv", "truncdiv", "mod", "fmod")


def hoist_loop_invariants(function: Function) -> Function:
    """Move pure ops whose operands come from outside out of sequential loops.

    Before::

        %r = loop([%zero], [%n], [], [%acc]) {blocks=["k"]} : f32[m]
        (%i: i32[], %a: f32[m]) {
          %s = elementwise(%q, %scale) {fn="mul"} : f32[m]
          %b = elementwise(%a, %s) {fn="add"} : f32[m]
          yield(%b)
        }

    After::

        %s = elementwise(%q, %scale) {fn="mul"} : f32[m]
        %r = loop([%zero], [%n], [], [%acc]) {blocks=["k"]} : f32[m]
        (%i: i32[], %a: f32[m]) {
          %b = elementwise(%a, %s) {fn="add"} : f32[m]
          yield(%b)
        }

    Nothing leaves a branch, and nothing with an axis of the loop's own blocks leaves the loop.
    """
    defined_by = traversal.definitions(function.body)

    def rewrite(op: Operation) -> list[Operation] | Operation:
        if not isinstance(op, (Loop, While)):
            return op
        hoisted: list[Operation] = []
        regions = tuple(_split(region, op, hoisted, defined_by) for region in op.regions())
        return [*hoisted, op.with_regions(regions)] if hoisted else op

    return traversal.rewrite_function(function, rewrite)


def _split(
    region: Region, loop: Operation, hoisted: list[Operation], defined_by: dict[Value, Operation]
) -> Region:
    """Move the invariant ops of a region to ``hoisted`` and give back the rest."""
    inside = set(region.args)
    kept: list[Operation] = []
    for op in region.ops:
        is_invariant = (
            not inside.intersection(op.operand_values())
            and _is_movable(op, defined_by)
            and not traversal.shape_symbols(op) & traversal.bound_blocks(loop)
        )
        if is_invariant:
            hoisted.append(op)
        else:
            kept.append(op)
            inside.update(op.results)
    return region.with_ops(kept)


def _is_movable(op: Operation, defined_by: dict[Value, Operation]) -> bool:
    if not is_pure(op) or op.regions():
        return False
    # A loop may run no iteration at all, and an integer division by zero traps on CPUs.
    if isinstance(op, Elementwise) and op.fn in _DIVISIONS and op.result.tile.dtype.is_integer:
        divisor = defined_by.get(op.args[1])
        return isinstance(divisor, Full) and divisor.value != 0
    return True


def fuse_accumulating_dots(function: Function) -> Function:
    """Turn ``acc + a @ b`` into one dot with an accumulator.

    Before::

        %d = dot(%a, %b, none) {precision="ieee"} : f32[m, n]
        %h = cast(%d) {bitcast=false} : bf16[m, n]
        %w = cast(%h) {bitcast=false} : f32[m, n]
        %s = elementwise(%acc, %w) {fn="add"} : f32[m, n]

    After::

        %s = dot(%a, %b, %acc) {precision="ieee"} : f32[m, n]

    The casts are those of a product of half types: leaving them out makes ``acc += a @ b`` as
    accurate as ``addmm``. The product must have no other use and stand in the same region.
    """
    return function.with_body(_fuse_in(function.body, traversal.count_uses(function.body)))


def _fuse_in(region: Region, uses: dict[Value, int]) -> Region:
    ops = [
        op.with_regions(tuple(_fuse_in(inner, uses) for inner in op.regions())) for op in region.ops
    ]
    defined_by = {result: op for op in ops for result in op.results}
    absorbed: set[Operation] = set()
    for i, op in enumerate(ops):
        fused = _try_fuse(op, defined_by, uses)
        if fused is not None:
            dot, chain = fused
            ops[i] = dot
            absorbed.update(chain)
            defined_by[op.result] = dot
    return region.with_ops(op for op in ops if op not in absorbed)


def _try_fuse(
    op: Operation, defined_by: dict[Value, Operation], uses: dict[Value, int]
) -> tuple[Operation, list[Operation]] | None:
    if not isinstance(op, Elementwise) or op.fn != "add" or not op.result.tile.dtype.is_float:
        return None
    lhs, rhs = op.args
    for acc, product in ((lhs, rhs), (rhs, lhs)):
        chain = _find_product(product, defined_by, uses)
        dot = chain[-1] if chain else None
        if isinstance(dot, Dot) and dot.result.type == op.result.type:
            return replace(dot, acc=acc, results=op.results, loc=op.loc), chain
    return None


def _find_product(
    value: Value, defined_by: dict[Value, Operation], uses: dict[Value, int]
) -> list[Operation]:
    """The casts from ``value`` back to a dot without accumulator, and the dot; else nothing."""
    chain: list[Operation] = []
    while uses.get(value) == 1 and value in defined_by:
        op = defined_by[value]
        chain.append(op)
        if isinstance(op, Dot):
            # The casts may only go through the operands' types, as half products do anyway.
            types = {op.lhs.tile.dtype, op.rhs.tile.dtype, op.result.tile.dtype}
            is_implied = all(step.result.tile.dtype in types for step in chain)
            return chain if op.acc is None and is_implied else []
        if not isinstance(op, Cast) or op.bitcast or not op.x.tile.dtype.is_float:
            return []
        value = op.x
    return []
