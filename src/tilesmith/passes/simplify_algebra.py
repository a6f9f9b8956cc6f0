"""Algebraic identities, one rule each, all exact: NaN, infinity and -0.0 come out as before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilesmith.analysis.scalar_arithmetic import evaluate, is_same_constant
from tilesmith.dtypes import DType, ElementKind
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Full, Mask
from tilesmith.ir.ops.rearrangement import Join, Select
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape
from tilesmith.ir.traversal import Definitions, Replacement, Rule, apply_rules
from tilesmith.ir.types import Constant, Shape, Value

Applies = Callable[[DType], bool]


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
    return apply_rules(function, RULES)


def _constant(value: Value, defined_by: Definitions) -> Constant | None:
    op = defined_by(value)
    return op.value if isinstance(op, Full) else None


def _is_integer(dtype: DType) -> bool:
    return dtype.is_integer


def _is_number(dtype: DType) -> bool:
    return not dtype.is_bool


def _is_float(dtype: DType) -> bool:
    return dtype.is_float


def _is_bool(dtype: DType) -> bool:
    return dtype.is_bool


def _holds(value: Value, expected: Constant, defined_by: Definitions) -> bool:
    """Whether a tile is filled with that constant, with its sign of zero."""
    found = _constant(value, defined_by)
    if found is None or found != expected:
        return False
    return not value.tile.dtype.is_float or str(float(found)) == str(float(expected))


def _neutral(fn: str, constant: Constant, applies: Applies) -> Rule:
    """``fn(x, constant) = x``, and ``fn(constant, x) = x`` when commutative."""

    def rule(op: Operation, defined_by: Definitions) -> Replacement | None:
        if not isinstance(op, Elementwise) or op.fn != fn or not applies(op.result.tile.dtype):
            return None
        lhs, rhs = op.args
        if _holds(rhs, constant, defined_by):
            return lhs
        if op.function.is_commutative and _holds(lhs, constant, defined_by):
            return rhs
        return None

    return rule


def _absorbing(fn: str, constant: Constant, result: Constant, applies: Applies) -> Rule:
    """``fn(x, constant) = result``, and ``fn(constant, x) = result`` when commutative."""

    def rule(op: Operation, defined_by: Definitions) -> Replacement | None:
        if not isinstance(op, Elementwise) or op.fn != fn or not applies(op.result.tile.dtype):
            return None
        lhs, rhs = op.args
        matches = _holds(rhs, constant, defined_by) or (
            op.function.is_commutative and _holds(lhs, constant, defined_by)
        )
        return (Full(value=result, results=op.results, loc=op.loc),) if matches else None

    return rule


def _idempotent(fn: str) -> Rule:
    """``fn(x, x) = x``."""

    def rule(op: Operation, defined_by: Definitions) -> Replacement | None:
        if not isinstance(op, Elementwise) or op.fn != fn:
            return None
        return op.args[0] if op.args[0] is op.args[1] else None

    return rule


def _involution(fn: str) -> Rule:
    """``fn(fn(x)) = x``."""

    def rule(op: Operation, defined_by: Definitions) -> Replacement | None:
        if not isinstance(op, Elementwise) or op.fn != fn:
            return None
        inner = defined_by(op.args[0])
        return inner.args[0] if isinstance(inner, Elementwise) and inner.fn == fn else None

    return rule


def _subtract_itself(op: Operation, defined_by: Definitions) -> Replacement | None:
    if not isinstance(op, Elementwise) or op.fn != "sub" or not op.result.tile.dtype.is_integer:
        return None
    if op.args[0] is not op.args[1]:
        return None
    return (Full(value=0, results=op.results, loc=op.loc),)


def _join_added_constants(op: Operation, defined_by: Definitions) -> Replacement | None:
    if not isinstance(op, Elementwise) or op.fn != "add" or not op.result.tile.dtype.is_integer:
        return None
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


def _constant_to_the_right(op: Operation, defined_by: Definitions) -> Replacement | None:
    if not isinstance(op, Elementwise) or op.fn not in ("add", "mul"):
        return None
    lhs, rhs = op.args
    if _constant(lhs, defined_by) is None or _constant(rhs, defined_by) is not None:
        return None
    return (replace(op, args=(rhs, lhs)),)


def _where_constant(op: Operation, defined_by: Definitions) -> Replacement | None:
    if not isinstance(op, Elementwise) or op.fn != "where":
        return None
    condition = _constant(op.args[0], defined_by)
    return None if condition is None else op.args[1 if condition else 2]


def _where_equal(op: Operation, defined_by: Definitions) -> Replacement | None:
    if not isinstance(op, Elementwise) or op.fn != "where":
        return None
    return op.args[1] if op.args[1] is op.args[2] else None


def _where_not(op: Operation, defined_by: Definitions) -> Replacement | None:
    if not isinstance(op, Elementwise) or op.fn != "where":
        return None
    condition = defined_by(op.args[0])
    if not isinstance(condition, Elementwise) or condition.fn != "not":
        return None
    return (replace(op, args=(condition.args[0], op.args[2], op.args[1])),)


def is_lossless(source: DType, target: DType) -> bool:
    """Whether every value of ``source`` is a value of ``target``."""
    if source == target or source.is_bool:
        return True
    if source.is_float:
        # Every wider float format here has at least the exponent range of the narrower ones.
        return target.is_float and target.bits > source.bits
    if target.kind is ElementKind.UNSIGNED and source.kind is ElementKind.SIGNED:
        return False
    return not target.is_bool and target.precision >= source.precision


def _cast_to_same(op: Operation, defined_by: Definitions) -> Replacement | None:
    return op.x if isinstance(op, Cast) and op.x.type == op.result.type else None


def _cast_of_widening(op: Operation, defined_by: Definitions) -> Replacement | None:
    if not isinstance(op, Cast) or op.bitcast:
        return None
    inner = defined_by(op.x)
    if not isinstance(inner, Cast) or inner.bitcast:
        return None
    return (replace(op, x=inner.x),) if is_lossless(inner.x.tile.dtype, inner.dtype) else None


def _bitcast_of_bitcast(op: Operation, defined_by: Definitions) -> Replacement | None:
    if not isinstance(op, Cast) or not op.bitcast:
        return None
    inner = defined_by(op.x)
    return (replace(op, x=inner.x),) if isinstance(inner, Cast) and inner.bitcast else None


def _same_shape_view(op: Operation, defined_by: Definitions) -> Replacement | None:
    if isinstance(op, (Broadcast, ExpandDims, Reshape)) and op.x.type == op.result.type:
        return op.x
    return None


def _identity_permute(op: Operation, defined_by: Definitions) -> Replacement | None:
    is_identity = isinstance(op, Permute) and op.order == tuple(range(len(op.order)))
    return op.x if is_identity and isinstance(op, Permute) else None


def _broadcast_of_broadcast(op: Operation, defined_by: Definitions) -> Replacement | None:
    if not isinstance(op, Broadcast):
        return None
    inner = defined_by(op.x)
    return (replace(op, x=inner.x),) if isinstance(inner, Broadcast) else None


def _expand_of_expand(op: Operation, defined_by: Definitions) -> Replacement | None:
    if not isinstance(op, ExpandDims):
        return None
    inner = defined_by(op.x)
    if not isinstance(inner, ExpandDims):
        return None
    kept = [axis for axis in range(op.result.tile.rank) if axis not in op.axes]
    axes = sorted((*op.axes, *(kept[axis] for axis in inner.axes)))
    return (replace(op, x=inner.x, axes=tuple(axes)),)


def _reshape_of_view(op: Operation, defined_by: Definitions) -> Replacement | None:
    if not isinstance(op, Reshape):
        return None
    inner = defined_by(op.x)
    return (replace(op, x=inner.x),) if isinstance(inner, (Reshape, ExpandDims)) else None


def _inserted_ones(before: Shape, after: Shape) -> tuple[int, ...] | None:
    """The positions of ones in ``after`` without which it is ``before``."""
    axes: list[int] = []
    left = list(before)
    for axis, dim in enumerate(after):
        if left and left[0] == dim:
            left.pop(0)
        elif dim.is_one:
            axes.append(axis)
        else:
            return None
    return None if left else tuple(axes)


def _reshape_that_expands(op: Operation, defined_by: Definitions) -> Replacement | None:
    if not isinstance(op, Reshape):
        return None
    axes = _inserted_ones(op.x.tile.shape, op.result.tile.shape)
    return (ExpandDims(x=op.x, axes=axes, results=op.results, loc=op.loc),) if axes else None


def _permute_of_permute(op: Operation, defined_by: Definitions) -> Replacement | None:
    if not isinstance(op, Permute):
        return None
    inner = defined_by(op.x)
    if not isinstance(inner, Permute):
        return None
    return (replace(op, x=inner.x, order=tuple(inner.order[axis] for axis in op.order)),)


def _select_of_join(op: Operation, defined_by: Definitions) -> Replacement | None:
    if not isinstance(op, Select):
        return None
    pair = defined_by(op.x)
    if not isinstance(pair, Join) or op.axis != pair.result.tile.rank - 1:
        return None
    return pair.rhs if op.position else pair.lhs


def _mask_without_axes(op: Operation, defined_by: Definitions) -> Replacement | None:
    return op.x if isinstance(op, Mask) and not op.axes else None


def _mask_of_mask(op: Operation, defined_by: Definitions) -> Replacement | None:
    if not isinstance(op, Mask):
        return None
    inner = defined_by(op.x)
    if not isinstance(inner, Mask) or not is_same_constant(op.fill, inner.fill):
        return None
    return op.x if set(op.axes) <= set(inner.axes) else None


RULES: tuple[Rule, ...] = (
    _constant_to_the_right,  # c + x = x + c
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
    _subtract_itself,  # x - x = 0 (integers)
    _join_added_constants,  # (x + c) + d = x + (c + d) (integers)
    _where_constant,  # where(true, a, b) = a, where(false, a, b) = b
    _where_equal,  # where(c, a, a) = a
    _where_not,  # where(not c, a, b) = where(c, b, a)
    _cast_to_same,  # cast_t(x: t) = x
    _cast_of_widening,  # cast(widen(x)) = cast(x)
    _bitcast_of_bitcast,  # bits(bits(x)) = bits(x)
    _same_shape_view,  # view_s(x: s) = x
    _identity_permute,  # permute(x, (0, 1, ...)) = x
    _broadcast_of_broadcast,  # broadcast(broadcast(x)) = broadcast(x)
    _expand_of_expand,  # expand(expand(x)) = expand(x)
    _reshape_of_view,  # reshape(reshape(x)) = reshape(x)
    _reshape_that_expands,  # reshape(x: [m], [m, 1]) = expand(x)
    _permute_of_permute,  # permute(permute(x, p), q) = permute(x, p[q])
    _select_of_join,  # split(join(x, y)) = x, y
    _mask_without_axes,  # mask(x, axes=()) = x
    _mask_of_mask,  # mask(mask(x, a), b) = mask(x, a) (one fill, b within a)
)
