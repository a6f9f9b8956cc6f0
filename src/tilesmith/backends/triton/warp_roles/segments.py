"""Turns of a loop in which no lane is masked: the others alone pay for masks.

A condition such as ``row >= column`` or ``column < end`` is linear in the positions of lanes. For a
group's rows and one turn's columns its least value says whether it holds in every lane; as a
function of the turn that is a bound from above or from below. Between the greatest lower bound and
the least upper one, selections by such conditions give what they were given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tilesmith.analysis.affine import AffineIndex, find_affine
from tilesmith.backends.triton.emission.emitter import Emitter
from tilesmith.backends.triton.emission.spelling import Expr, call, literal
from tilesmith.backends.triton.warp_roles.emitter import GROUP, ROWS, RoleEmitter
from tilesmith.backends.triton.warp_roles.plan import RolePlan
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import Mask
from tilesmith.ir.ops.shape import Broadcast, ExpandDims
from tilesmith.ir.types import Dim, Value

IS_MASKED = "IS_MASKED"
"""Whether a step applies masks: a constant of the emitted function."""
Definitions = Mapping[Value, Operation]
_STRICT = {"gt": 1, "lt": 1, "ge": 0, "le": 0}


@dataclass(frozen=True)
class Condition:
    """That the sum of some indices, each with a sign, is ``least`` or more."""

    terms: tuple[tuple[int, AffineIndex], ...]
    least: int

    def slope(self, columns: Dim) -> int:
        """How the sum grows along the axis of the loop."""
        return sum(sign * index.scale for sign, index in self.terms if index.dim == columns)


@dataclass
class Segments:
    """What is selected by conditions on positions, and those conditions."""

    selections: dict[Operation, None] = field(default_factory=dict[Operation, None])
    conditions: list[Condition] = field(default_factory=list[Condition])
    has_partial_turn: bool = False
    """Whether the last turn may have lanes past the end."""

    def __bool__(self) -> bool:
        return bool(self.selections)

    def has_lower_bound(self, plan: RolePlan) -> bool:
        """Whether some condition does not hold in the first turns."""
        columns = Dim.of(plan.loop.blocks[0])
        return any(condition.slope(columns) > 0 for condition in self.conditions)

    def has_upper_bound(self, plan: RolePlan) -> bool:
        """Whether some condition does not hold in the last turns."""
        columns = Dim.of(plan.loop.blocks[0])
        is_bound = any(condition.slope(columns) < 0 for condition in self.conditions)
        return is_bound or self.has_partial_turn


def find_segments(plan: RolePlan, emitter: RoleEmitter, ops: Sequence[Operation]) -> Segments:
    """The selections of a step that all but a few turns can do without."""
    found, defining = Segments(), emitter.uses.defining
    columns = Dim.of(plan.loop.blocks[0])
    known = {columns, Dim.of(plan.rows)}
    is_partial = emitter.facts.axes[plan.loop][0]
    for op in ops:
        if isinstance(op, Mask):
            axes = [op.x.tile.shape[axis] for axis in op.axes]
            if is_partial and axes == [columns] and op not in emitter.facts.identities:
                found.selections[op] = None
                found.has_partial_turn = True
        elif isinstance(op, Elementwise) and op.fn == "where":
            conditions = find_conditions(op.args[0], defining)
            if conditions and all(_is_bound(item, columns, known) for item in conditions):
                found.selections[op] = None
                found.conditions += conditions
    return found


def _is_bound(condition: Condition, columns: Dim, known: set[Dim]) -> bool:
    """Whether a condition begins or ceases to hold as the loop goes on."""
    are_known = all(index.dim is None or index.dim in known for _, index in condition.terms)
    return are_known and condition.slope(columns) != 0


def find_conditions(value: Value, defining: Definitions) -> list[Condition] | None:
    """What a tile of truths says about positions; None where that is not linear."""
    op = defining.get(value)
    while isinstance(op, (Broadcast, ExpandDims)):
        op = defining.get(op.x)
    if not isinstance(op, Elementwise):
        return None
    if op.fn == "and":
        parts = [find_conditions(arg, defining) for arg in op.args]
        return None if None in parts else [c for part in parts if part for c in part]
    if op.fn not in _STRICT:
        return None
    greater, less = op.args if op.fn in ("gt", "ge") else reversed(op.args)
    terms = [*_terms(greater, 1, defining), *_terms(less, -1, defining)]
    if any(index is None for _, index in terms):
        return None
    known = tuple((sign, index) for sign, index in terms if index is not None)
    return [Condition(known, _STRICT[op.fn])]


def _terms(
    value: Value, sign: int, defining: Definitions
) -> Iterable[tuple[int, AffineIndex | None]]:
    """A difference or sum of indices along two axes, taken apart."""
    index = find_affine(value, defining)
    op = defining.get(value)
    while index is None and isinstance(op, (Broadcast, ExpandDims)):
        op = defining.get(op.x)
    if index is not None or not isinstance(op, Elementwise) or op.fn not in ("add", "sub"):
        yield sign, index
        return
    yield from _terms(op.args[0], sign, defining)
    yield from _terms(op.args[1], -sign if op.fn == "sub" else sign, defining)


def emit_bounds(emitter: RoleEmitter, plan: RolePlan, segments: Segments, first: int = 1) -> None:
    """``full_from`` and ``full_to``: the turns from a first one on that need no masks."""
    lower, upper = [literal(first)], [Expr("turns")]
    for condition in segments.conditions:
        _add_bound(emitter, plan, condition, lower, upper)
    if segments.has_partial_turn:
        begin, end = emitter.expr(plan.loop.begins[0]), emitter.expr(plan.loop.ends[0])
        block = emitter.spelling.block_name(plan.loop.blocks[0])
        upper.append((end - begin) // Expr(block))
    writer = emitter.writer
    writer.line(
        f"full_from = {_extreme('gl.minimum', [_extreme('gl.maximum', lower), Expr('turns')])}"
    )
    writer.line(
        f"full_to = {_extreme('gl.maximum', [_extreme('gl.minimum', upper), Expr('full_from')])}"
    )


def _extreme(function: str, items: list[Expr]) -> Expr:
    first, *rest = items
    for item in rest:
        first = call(function, first, item)
    return first


def _add_bound(
    emitter: RoleEmitter,
    plan: RolePlan,
    condition: Condition,
    lower: list[Expr],
    upper: list[Expr],
) -> None:
    """The first or last turn at which a condition holds in all lanes."""
    columns, rows = Dim.of(plan.loop.blocks[0]), Dim.of(plan.rows)
    block = emitter.spelling.block_name(plan.loop.blocks[0])
    slope, start = condition.slope(columns), plan.loop.body.args[0]
    rest = literal(-condition.least)
    for sign, index in condition.terms:
        rest += literal(sign * index.offset)
        for value, factor in index.base:
            # The first column of a turn is what is solved for.
            source = plan.loop.begins[0] if value is start else value
            rest += emitter.expr(source) * (sign * factor)
        if index.dim == rows:
            scale = sign * index.scale
            rest += Expr(f"{GROUP} * {ROWS}") * scale
            if scale < 0:
                rest += Expr(f"({ROWS} - 1)") * scale
    step = Expr(f"{block}") * abs(slope)
    if slope < 0:
        rest += Expr(f"({block} - 1)") * slope
        upper.append(Expr(f"gl.maximum({rest + step}, 0) // ({step})"))
    else:
        lower.append(Expr(f"gl.maximum(({step}) - 1 - ({rest}), 0) // ({step})"))


def emit_selection(emitter: Emitter, op: Mask | Elementwise) -> None:
    """What is selected, as it is where the step is not masked."""
    assert isinstance(emitter, RoleEmitter)
    source, result = op.x if isinstance(op, Mask) else op.args[1], op.results[0]
    name = emitter.spelling.names.fresh(emitter.name_hint(result))
    emitter.assign(name, emitter.exact(source))
    with emitter.writer.block(f"if {IS_MASKED}"):
        emitter.assign(name, emitter.plain_expression(op))
    emitter.bind(result, name)
