"""Ops on constants become constants, and identities are applied: NaN, inf and -0.0 stay exact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from typing import Any

from tilesmith.analysis.scalar_arithmetic import convert, evaluate, is_same_constant
from tilesmith.dtypes import DType
from tilesmith.ir.axis_roles import Gathered, Inserted, Permuted, Picked, Repeated, Reshaped
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region, Trait
from tilesmith.ir.ops.control_flow import If, While
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import BlockSize, Full, Mask
from tilesmith.ir.ops.rearrangement import Join, Select
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape, inserted_ones
from tilesmith.ir.traversal import (
    Definitions,
    Replacement,
    Rule,
    Substitution,
    apply_rules,
    rewrite_region,
)
from tilesmith.ir.types import Constant, Value
from tilesmith.passes.rejoined_indices import rejoin
from tilesmith.passes.undone_views import UNDONE_VIEWS

_MOVING_FORMS = (Inserted, Repeated, Permuted, Reshaped, Picked, Gathered)
"""Forms in which every element of the result is one of the first operand."""
Applies = Callable[[DType], bool]


def fold_constants(function: Function) -> Function:
    """Replace ops on constants by their value, branches by the arm taken, loops that never run.

    Before::

        %a = full() {value=2} : i32[]
        %b = full() {value=3} : i32[]
        %c = elementwise(%a, %b) {fn="mul"} : i32[]

    After::

        %a = full() {value=2} : i32[]
        %b = full() {value=3} : i32[]
        %c = full() {value=6} : i32[]
    """

    def fold(op: Operation, defined_by: Definitions) -> Replacement | None:
        if isinstance(op, BlockSize):
            value = function.block(op.block).fixed
        else:
            value = _result_of(op, lambda value: _constant(value, defined_by))
        return None if value is None else _full(op, value)

    folded = apply_rules(function, (fold, _fold_mask))
    return folded.with_body(_inline_known(folded.body))


def _constant(value: Value, defined_by: Definitions) -> Constant | None:
    """The constant that fills a tile, if one does."""
    op = defined_by(value)
    return op.value if isinstance(op, Full) else None


def _full(op: Operation, value: Constant) -> Replacement:
    return (Full(value=value, results=op.results, loc=op.loc),)


def _result_of(op: Operation, find: Callable[[Value], Constant | None]) -> Constant | None:
    """What an op gives where its operands are constants."""
    if isinstance(op.form, _MOVING_FORMS):
        return find(next(op.operand_values()))
    if isinstance(op, Cast) and not op.bitcast:
        return convert(find(op.x), op.x.tile.dtype, op.dtype)
    if not isinstance(op, Elementwise):
        return None
    return evaluate(op.fn, op.args[-1].tile.dtype, map(find, op.args))


def _fold_mask(op: Operation, defined_by: Definitions) -> Replacement | None:
    if not isinstance(op, Mask):
        return None
    return op.x if is_same_constant(_constant(op.x, defined_by), op.fill) else None


def _inline_known(body: Region) -> Region:
    """Replace each branch on a constant by the ops of the arm taken, and drop idle loops."""
    constants: dict[Value, Constant] = {}
    substitution = Substitution()

    def inline(op: Operation) -> Operation | list[Operation]:
        if isinstance(op, Full) and op.result.tile.rank == 0:
            constants[op.result] = op.value
        if isinstance(op, If) and op.condition in constants:
            arm = op.then if constants[op.condition] else op.otherwise
            values, kept = arm.yielded, [o for o in arm.ops if Trait.TERMINATOR not in o.traits]
        elif isinstance(op, While) and _never_runs(op, constants):
            values, kept = op.init, []
        else:
            return op
        for result, value in zip(op.results, values):
            substitution[result] = value
        return kept

    return rewrite_region(body, inline, substitution)


def _never_runs(loop: While, constants: dict[Value, Constant]) -> bool:
    """Whether the condition is false for the values the loop starts with."""
    begins = zip(loop.condition.args, loop.init)
    known = constants | {arg: constants[init] for arg, init in begins if init in constants}
    for op in loop.condition.ops:
        if isinstance(op, (Full, Cast, Elementwise)):
            value = op.value if isinstance(op, Full) else _result_of(op, known.get)
            if value is not None and op.result.tile.rank == 0:
                known[op.result] = value
    (condition,) = loop.condition.yielded
    return known.get(condition) is False


def simplify_algebra(function: Function) -> Function:
    """Apply the identities below until none matches.

    Before::

        %one = full() {value=1} : i32[]
        %a = elementwise(%begin, %one) {fn="mul"} : i32[]
        %b = cast(%a) {bitcast=false} : i32[]

    After::

        %one = full() {value=1} : i32[]

    with ``%begin`` used for ``%b``.
    """
    return apply_rules(function, [*RULES, _detached])


def simplify_attached(function: Function) -> Function:
    """The same, but what is detached stays: for what is differentiated."""
    return apply_rules(function, RULES)


_is_integer: Applies = attrgetter("is_integer")
_is_float: Applies = attrgetter("is_float")
_is_bool: Applies = attrgetter("is_bool")


def _is_number(dtype: DType) -> bool:
    return not dtype.is_bool


def _any(dtype: DType) -> bool:
    return True


def _holds(value: Value, expected: Constant, defined_by: Definitions) -> bool:
    """Whether a tile is filled with that constant, with its sign of zero."""
    found = _constant(value, defined_by)
    if found is None or found != expected:
        return False
    return not value.tile.dtype.is_float or str(float(found)) == str(float(expected))


def _of(
    fn: str, change: Callable[[Elementwise, Definitions], Replacement | None], applies: Applies
) -> Rule:
    """A rule for one function of those types."""

    def rule(op: Operation, defined_by: Definitions) -> Replacement | None:
        if isinstance(op, Elementwise) and op.fn == fn and applies(op.result.tile.dtype):
            return change(op, defined_by)
        return None

    return rule


def _neutral(fn: str, constant: Constant, applies: Applies) -> Rule:
    """``fn(x, constant) = x``, and ``fn(constant, x) = x`` when commutative."""

    def change(op: Elementwise, defined_by: Definitions) -> Replacement | None:
        lhs, rhs = op.args
        if _holds(rhs, constant, defined_by):
            return lhs
        return rhs if op.function.is_commutative and _holds(lhs, constant, defined_by) else None

    return _of(fn, change, applies)


def _absorbing(fn: str, constant: Constant, result: Constant, applies: Applies) -> Rule:
    """``fn(x, constant) = result``, and ``fn(constant, x) = result`` when commutative."""
    beside = _neutral(fn, constant, applies)
    return lambda op, defined_by: _full(op, result) if beside(op, defined_by) is not None else None


def _idempotent(fn: str) -> Rule:
    """``fn(x, x) = x``."""
    return _of(fn, lambda op, _: op.args[0] if op.args[0] is op.args[1] else None, _any)


def _involution(fn: str) -> Rule:
    """``fn(fn(x)) = x``."""

    def change(op: Elementwise, defined_by: Definitions) -> Replacement | None:
        inner = defined_by(op.args[0])
        return inner.args[0] if isinstance(inner, Elementwise) and inner.fn == fn else None

    return _of(fn, change, _any)


def _join_added_constants(op: Elementwise, defined_by: Definitions) -> Replacement | None:
    inner = defined_by(op.args[0])
    outer_constant = _constant(op.args[1], defined_by)
    if not isinstance(inner, Elementwise) or inner.fn != "add" or outer_constant is None:
        return None
    inner_constant = _constant(inner.args[1], defined_by)
    if inner_constant is None:
        return None
    total = evaluate("add", op.result.tile.dtype, (inner_constant, outer_constant))
    assert total is not None
    sum_op = Full(value=total, results=(Value(op.result.type, "", op.loc),), loc=op.loc)
    return (sum_op, replace(op, args=(inner.args[0], sum_op.result)))


def _constant_to_the_right(op: Elementwise, defined_by: Definitions) -> Replacement | None:
    lhs, rhs = op.args
    if _constant(lhs, defined_by) is None or _constant(rhs, defined_by) is not None:
        return None
    return (replace(op, args=(rhs, lhs)),)


def _where(op: Elementwise, defined_by: Definitions) -> Replacement | None:
    condition, chosen, other = op.args
    known, test = _constant(condition, defined_by), defined_by(condition)
    if known is not None:
        return chosen if known else other
    if chosen is other:
        return chosen
    if isinstance(test, Elementwise) and test.fn == "not":
        return (replace(op, args=(test.args[0], other, chosen)),)
    return None


def _idle(op: Operation, defined_by: Definitions) -> Replacement | None:
    """Ops that give what they are given."""
    if isinstance(op, (Cast, Broadcast, ExpandDims, Reshape)):
        is_idle = op.x.type == op.result.type and not is_detached(op)
    elif isinstance(op, Permute):
        is_idle = op.order == tuple(range(len(op.order)))
    else:
        is_idle = isinstance(op, Mask) and not op.axes
    return next(op.operand_values()) if is_idle else None


def is_detached(op: Operation) -> bool:
    """Whether a value is taken for its bits, which have no gradient, and stays what it is."""
    return isinstance(op, Cast) and op.bitcast and op.x.type == op.result.type


def _detached(op: Operation, defined_by: Definitions) -> Replacement | None:
    return next(op.operand_values()) if is_detached(op) else None


def _nested(
    outer: type[Operation],
    inner: type[Operation] | tuple[type[Operation], ...],
    change: Callable[[Any, Any], Replacement | None],
) -> Rule:
    """A rule for an op of what another op gives."""

    def rule(op: Operation, defined_by: Definitions) -> Replacement | None:
        source = defined_by(next(op.operand_values())) if isinstance(op, outer) else None
        return change(op, source) if isinstance(source, inner) else None

    return rule


def _skip(op: Broadcast | Reshape, inner: Broadcast | Reshape | ExpandDims) -> Replacement:
    return (replace(op, x=inner.x),)


def _cast_of_cast(op: Cast, inner: Cast) -> Replacement | None:
    is_idle = inner.bitcast or inner.x.tile.dtype.is_held_by(inner.dtype)
    return (replace(op, x=inner.x),) if op.bitcast == inner.bitcast and is_idle else None


def _expand_of_expand(op: ExpandDims, inner: ExpandDims) -> Replacement:
    kept = [axis for axis in range(op.result.tile.rank) if axis not in op.axes]
    axes = sorted((*op.axes, *(kept[axis] for axis in inner.axes)))
    return (replace(op, x=inner.x, axes=tuple(axes)),)


def _permute_of_permute(op: Permute, inner: Permute) -> Replacement:
    return (replace(op, x=inner.x, order=tuple(inner.order[axis] for axis in op.order)),)


def _select_of_join(op: Select, pair: Join) -> Replacement | None:
    if op.axis != pair.result.tile.rank - 1:
        return None
    return pair.rhs if op.position else pair.lhs


def _mask_of_mask(op: Mask, inner: Mask) -> Replacement | None:
    is_idle = is_same_constant(op.fill, inner.fill) and set(op.axes) <= set(inner.axes)
    return op.x if is_idle else None


def _reshape_that_expands(op: Operation, defined_by: Definitions) -> Replacement | None:
    if not isinstance(op, Reshape):
        return None
    axes = inserted_ones(op.x.tile.shape, op.result.tile.shape)
    return (ExpandDims(x=op.x, axes=axes, results=op.results, loc=op.loc),) if axes else None


RULES: tuple[Rule, ...] = (
    _of("add", _constant_to_the_right, _any),  # c + x = x + c
    _of("mul", _constant_to_the_right, _any),  # c * x = x * c
    _neutral("add", 0, _is_integer),  # x + 0 = x
    _neutral("add", -0.0, _is_float),  # x + -0.0 = x (but -0.0 + 0.0 = 0.0)
    _neutral("sub", 0, _is_number),  # x - 0 = x
    _neutral("mul", 1, _is_number),  # x * 1 = x
    _neutral("div", 1, _is_number),  # x / 1 = x
    _neutral("floordiv", 1, _is_integer),  # x // 1 = x
    _neutral("truncdiv", 1, _is_integer),  # x quo 1 = x
    _neutral("pow", 1, _is_number),  # x ^ 1 = x
    _neutral("shl", 0, _is_integer),  # x << 0 = x
    _neutral("shr", 0, _is_integer),  # x >> 0 = x
    _neutral("or", 0, _is_integer),  # x | 0 = x
    _neutral("xor", 0, _is_integer),  # x ^ 0 = x
    _neutral("and", True, _is_bool),  # x and true = x
    _neutral("or", False, _is_bool),  # x or false = x
    _absorbing("and", False, False, _is_bool),  # x and false = false
    _absorbing("or", True, True, _is_bool),  # x or true = true
    _absorbing("and", 0, 0, _is_integer),  # x & 0 = 0
    _absorbing("mul", 0, 0, _is_integer),  # x * 0 = 0 (not for floats: NaN, infinity, -0.0)
    _absorbing("mod", 1, 0, _is_integer),  # x mod 1 = 0
    _absorbing("fmod", 1, 0, _is_integer),  # x rem 1 = 0
    _idempotent("maximum"),  # max(x, x) = x
    _idempotent("minimum"),  # min(x, x) = x
    _idempotent("and"),  # x & x = x
    _idempotent("or"),  # x | x = x
    _involution("neg"),  # -(-x) = x
    _involution("not"),  # not (not x) = x
    _of("sub", lambda op, _: _full(op, 0) if op.args[0] is op.args[1] else None, _is_integer),
    _of("add", _join_added_constants, _is_integer),  # (x + c) + d = x + (c + d)
    rejoin,  # (x // w) * w + x mod w = x
    _of("where", _where, _any),  # where(true, a, b) = a, where(not c, a, b) = where(c, b, a), ...
    _idle,  # cast_t(x: t) = x, view_s(x: s) = x, permute(x, (0, 1, ...)) = x, mask(x, axes=()) = x
    _nested(Cast, Cast, _cast_of_cast),  # cast(widen(x)) = cast(x), bits(bits(x)) = bits(x)
    _nested(Broadcast, Broadcast, _skip),  # broadcast(broadcast(x)) = broadcast(x)
    _nested(ExpandDims, ExpandDims, _expand_of_expand),  # expand(expand(x)) = expand(x)
    _nested(Reshape, (Reshape, ExpandDims), _skip),  # reshape(reshape(x)) = reshape(x)
    _reshape_that_expands,  # reshape(x: [m], [m, 1]) = expand(x)
    _nested(Permute, Permute, _permute_of_permute),  # permute(permute(x, p), q) = permute(x, p[q])
    _nested(Select, Join, _select_of_join),  # split(join(x, y)) = x, y
    *UNDONE_VIEWS,
    _nested(Mask, Mask, _mask_of_mask),  # mask(mask(x, a), b) = mask(x, a) (one fill, b within a)
)
