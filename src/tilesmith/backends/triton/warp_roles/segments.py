"""Turns of a loop in which no lane is masked: the others alone pay for masks.

A condition such as ``row >= column`` or ``column < end`` is linear in the positions of lanes. For a
group's rows and one turn's columns its least value says whether it holds in every lane; as a
function of the turn that is a bound from above or from below. Between the greatest lower bound and
the least upper one, selections by such conditions give what they were given.

``take_factors_out_of_maxima`` runs on the IR before that, so that less is left for masked turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite

from tilesmith.analysis.affine import AffineIndex, find_affine
from tilesmith.backends.triton.emission.emitter import Emitter
from tilesmith.backends.triton.emission.spelling import Expr, call, literal
from tilesmith.backends.triton.warp_roles.emitter import GROUP, ROWS, RoleEmitter
from tilesmith.backends.triton.warp_roles.factors.bits import in_single
from tilesmith.backends.triton.warp_roles.factors.joined import join_factors
from tilesmith.backends.triton.warp_roles.plan import RolePlan
from tilesmith.dtypes import BF16, F8E4M3, F16, F32
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Full, Mask
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.ops.shape import Broadcast, ExpandDims
from tilesmith.ir.traversal import Definitions as Lookup
from tilesmith.ir.traversal import apply_rules, count_uses
from tilesmith.ir.types import Dim, TileType, Value

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


def emit_bounds(emitter: RoleEmitter, plan: RolePlan, segments: Segments) -> None:
    """``full_from`` and ``full_to``: the turns that need no masks."""
    lower, upper = [literal(0)], [Expr("turns")]
    for condition in segments.conditions:
        _add_bound(emitter, plan, condition, lower, upper)
    if segments.has_partial_turn:
        begin, end = emitter.expr(plan.loop.begins[0]), emitter.expr(plan.loop.ends[0])
        block = emitter.spelling.block_name(plan.loop.blocks[0])
        upper.append((end - begin) // Expr(block))
    writer = emitter.writer
    first = [_extreme("gl.maximum", lower), Expr("turns")] if len(lower) > 1 else lower
    writer.line(f"full_from = {_extreme('gl.minimum', first)}")
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


def take_factors_out_of_maxima(function: Function) -> Function:
    """Maxima of scaled or rounded tiles as scaled or rounded maxima, the same bit for bit.

    Before::

        %y = elementwise(%x, %c) {fn="mul"} : f32[m, n]
        %z = mask(%y) {fill=-inf, axes=[1]} : f32[m, n]
        %peak = reduce(%z) {axis=1, kind="max"} : f32[m]

    After::

        %y = mask(%x) {fill=-inf, axes=[1]} : f32[m, n]
        %z = elementwise(%y, %c) {fn="mul"} : f32[m, n]
        %largest = reduce(%y) {axis=1, kind="max"} : f32[m]
        %peak = elementwise(%largest, %c) {fn="mul"} : f32[m]
    """
    uses = count_uses(function.body)

    def join(op: Operation, defined: Lookup) -> Sequence[Operation] | None:
        # What else reads the first product has its rounding: both would not meet at a maximum.
        found = join_factors(op, defined)
        is_alone = isinstance(op, Elementwise) and uses.get(op.args[0], 1) == 1
        return found if is_alone else None

    return apply_rules(function, [join, _select_first, _take_out, _mask_first])


def _take_out(op: Operation, defined: Lookup) -> Sequence[Operation] | None:
    """The maximum of a tile before what keeps the order of its elements."""
    last = _find_scaling(op.x, defined) if isinstance(op, Reduce) and op.kind == "max" else None
    if last is None:
        return None
    largest = replace(op, x=_scaled(last), results=(_in_fp32(op.result),))
    return [largest, *_apply_to(largest.result, last, op.result, defined)]


def _select_first(op: Operation, defined: Lookup) -> Sequence[Operation] | None:
    """Lanes that are left out before what keeps the order of the others."""
    if isinstance(op, Mask):
        source, fill = op.x, op.fill
    elif isinstance(op, Elementwise) and op.fn == "where":
        other = defined(op.args[2])
        source, fill = op.args[1], other.value if isinstance(other, Full) else 0
    else:
        return None
    last = _find_scaling(source, defined)
    before = None if last is None else _find_fill(fill, last, defined)
    if last is None or before is None:
        return None
    result = _in_fp32(op.results[0])
    if isinstance(op, Mask):
        selected = [replace(op, x=_scaled(last), fill=before, results=(result,))]
        return [*selected, *_apply_to(result, last, op.results[0], defined)]
    left_out = Full(results=(result.like(),), value=before, loc=op.loc)
    args = (op.args[0], _scaled(last), left_out.result)
    selected = [left_out, replace(op, args=args, results=(result,))]
    return [*selected, *_apply_to(result, last, op.results[0], defined)]


def _mask_first(op: Operation, defined: Lookup) -> Sequence[Operation] | None:
    """Lanes that are zero before a tile is rounded to fp8, which is done together with packing."""
    rounding = defined(op.x) if isinstance(op, Mask) and op.fill == 0 else None
    if not isinstance(op, Mask) or not isinstance(rounding, Cast) or rounding.dtype != F8E4M3:
        return None
    masked = replace(op, x=rounding.x, results=(rounding.x.like(),))
    return [masked, replace(rounding, x=masked.result, results=(op.result,))]


def _find_fill(fill: float, scaling: Cast | Elementwise, defined: Lookup) -> float | None:
    """What becomes a low number by a factor or rounding; None where nothing does exactly.

    A factor and the difference after it may be one instruction, which does not round between: the
    lowest number minus itself must be zero there too, not what rounding would have cut off.
    """
    factor = defined(scaling.args[1]) if isinstance(scaling, Elementwise) else None
    if fill == -inf or fill >= 0 or not isinstance(factor, Full):
        return fill if fill == -inf else None
    wanted, scale = in_single(fill), in_single(factor.value)
    near = [in_single(fill / scale * (1 + step * 2.0**-24)) for step in range(-3, 4)]
    # Products of two numbers in fp32 are exact in Python's.
    return next((x for x in near if x * scale == wanted), None)


def _in_fp32(value: Value) -> Value:
    return value.like(TileType(F32, value.tile.shape))


def _find_scaling(value: Value, defined: Lookup) -> Cast | Elementwise | None:
    """What made a tile of one in fp32 and kept its order: a positive factor, or rounding."""
    op = defined(value)
    if isinstance(op, Cast) and op.x.tile.dtype == F32 and op.dtype in (BF16, F16):
        return None if op.bitcast else op
    if not isinstance(op, Elementwise) or op.fn != "mul" or value.tile.dtype != F32:
        return None
    factor = defined(op.args[1])
    is_positive = isinstance(factor, Full) and factor.value > 0 and isfinite(factor.value)
    return op if is_positive else None


def _scaled(op: Cast | Elementwise) -> Value:
    return op.x if isinstance(op, Cast) else op.args[0]


def _apply_to(
    x: Value, op: Cast | Elementwise, result: Value, defined: Lookup
) -> Sequence[Operation]:
    """The same factor or rounding, of another tile."""
    if isinstance(op, Cast):
        return [replace(op, x=x, results=(result,))]
    constant = defined(op.args[1])
    assert isinstance(constant, Full)
    factor = replace(constant, results=(constant.result.like(x.type),))
    return [factor, replace(op, args=(x, factor.result), results=(result,))]
