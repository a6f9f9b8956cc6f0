"""The small vocabulary in which all rules are written: constants, casts, views, scalar functions.

Operands may be proxies or Python numbers; results are proxies. Broadcasting follows torch, plus
alignment by axis identity: in ``a[t, u] + b[t]`` the operand of lower rank takes the place of its
own axis. Axes are counted from 0 and positions lie within them; the rules above check both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tilesmith.exc as errors
from tilesmith.diagnostics.wording import kind_of
from tilesmith.dtypes import BOOL, F32, F64, I32, I64, DType
from tilesmith.frontend.refusals import invalid_kind
from tilesmith.frontend.tracing.settled_sizes import settled_size
from tilesmith.frontend.tracing.tracer import current_tracer
from tilesmith.frontend.tracing.values import Scalar, TileValue, shape_text
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import SCALAR_FUNCTIONS, Cast, Elementwise, ResultKind
from tilesmith.ir.ops.indexing import Arange, Full
from tilesmith.ir.ops.rearrangement import Gather, Join, Select, Sort
from tilesmith.ir.ops.reduction import Reduce, ReduceKind
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape
from tilesmith.ir.types import ONE, Dim, Shape, TileType

Number = int | float | bool
Operand = TileValue | int | float | bool
Rule = Callable[..., Any]
"""What the table of torch functions holds: a function of device values and numbers."""


def emit(
    cls: type[Operation], result: TileType, /, *, is_reduced: bool = False, **fields: object
) -> TileValue:
    """One op with one result."""
    value = current_tracer(cls.name).create(cls, result, **fields)
    return TileValue(value, is_reduced=is_reduced)


def full(value: Number, dtype: DType, shape: Shape = ()) -> TileValue:
    """A tile of one constant, rounded to ``dtype`` on use."""
    return emit(Full, TileType(dtype, shape), value=as_constant(value, dtype))


def as_constant(value: Number, dtype: DType) -> Number:
    """The Python number that a constant of that type holds: of bytes, 253 and not -3."""
    if dtype.is_integer:
        return dtype.wrap(int(value))
    return float(value) if dtype.is_float else bool(value)


def number_dtype(value: Number) -> DType:
    """The type a bare Python number takes when nothing else decides."""
    whole = I32 if -(2**31) <= value < 2**31 else I64
    return BOOL if isinstance(value, bool) else F32 if isinstance(value, float) else whole


def as_tile(operand: Operand, dtype: DType | None = None) -> TileValue:
    """A proxy for the operand, converted to ``dtype`` if given."""
    if not isinstance(operand, TileValue):
        if not hasattr(type(operand), "__index__") and not isinstance(operand, float):
            raise errors.TypeInferenceError(problem=f"{kind_of(operand)} cannot be computed with")
        return full(operand, dtype or number_dtype(operand))
    if dtype is F64 and isinstance(operand, Scalar) and operand.double is not None:
        return operand.double()
    return cast(operand, dtype) if dtype is not None else operand


def strong(operand: Operand, dtype: DType) -> TileValue:
    """As ``as_tile``, of an operand that compositions may use like any tensor: never weak."""
    tile = as_tile(operand, dtype)
    return TileValue(tile.value) if tile.is_weak else tile


def device_value(operand: Any, function: str) -> TileValue:
    """The operand of a function of the language that takes device values only."""
    if not isinstance(operand, TileValue):
        raise invalid_kind(function, f"{kind_of(operand)} is no device value")
    return operand


def one_by_one(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Sizes or axes that a user gives one by one or, as torch allows, as one sequence."""
    is_sequence = len(given) == 1 and isinstance(given[0], (tuple, list))
    return tuple(given[0]) if is_sequence else given


def reinterpret(x: TileValue, dtype: DType) -> TileValue:
    """The same bits as another type of the same width."""
    if x.tile.dtype == dtype:
        return x
    return emit(Cast, x.tile.with_dtype(dtype), x=x.value, bitcast=True)


def detach(x: TileValue) -> TileValue:
    """The same bits, which have no gradient."""
    return emit(Cast, x.tile, x=x.value, bitcast=True, is_reduced=x.is_reduced)


def cast(operand: TileValue, dtype: DType) -> TileValue:
    """Convert the element type; the same proxy when there is nothing to do."""
    if operand.tile.dtype == dtype:
        return operand
    kind = operand.tile.with_dtype(dtype)
    return emit(Cast, kind, x=operand.value, is_reduced=operand.is_reduced)


def unify_dims(left: Dim, right: Dim) -> Dim | None:
    """The dimension of the broadcast of two, or None when they differ."""
    if left == right or right.is_one:
        return left
    if left.is_one:
        return right
    for small, large in ((left, right), (right, left)):
        if is_rounded_up(small, large):
            return large
    _note_equal_sizes(left.symbol, right.symbol)
    for block, other in ((left, right), (right, left)):
        # A tile whose block size is n in all that the trace is for accepts plain values of size n.
        if block.symbol is not None and other.constant is not None:
            if settled_size(block.symbol) == other.constant:
                return block
            _note_equal(block.symbol, other.constant)
    return None


def is_rounded_up(small: Dim, large: Dim) -> bool:
    """Whether host code made one constant of the other: ``helion.next_power_of_2(n)``."""
    rounded = current_tracer("shape").host.rounded_sizes
    return (small.constant, large.constant) in rounded


def pad_to(operand: TileValue, axis: int, dim: Dim) -> TileValue:
    """Zeros behind a constant axis whose size host code has rounded up; others stay."""
    if not is_rounded_up(operand.tile.shape[axis], dim):
        return operand
    size = operand.tile.shape[axis].constant or 0
    places = positions_in(with_dim(operand.tile.shape, axis, dim), axis)
    found = gather(operand, apply("minimum", places, size - 1), axis)
    return select(apply("lt", places, size), found, 0)


def _note_equal_sizes(left: str | None, right: str | None) -> None:
    """Two runtime sizes met that are equal: as one they would fit."""
    tracer = current_tracer("shape")
    sizes = [tracer.sizes.get(symbol or "") for symbol in (left, right)]
    if sizes[0] is not None and sizes[1] is not None and sizes[0].hint == sizes[1].hint:
        names = (size.name for size in sizes if size is not None)
        tracer.host.constant_sizes.wanted_shared.update(map(tracer.source_of, names))


def _note_equal(symbol: str, constant: int) -> None:
    """A runtime size met a constant that it equals: as a constant itself it would fit."""
    tracer = current_tracer("shape")
    size = tracer.sizes.get(symbol)
    if size is not None and size.hint == constant:
        tracer.host.constant_sizes.note_met(tracer.source_of(symbol))


def _fits(own: Dim, target: Dim) -> bool:
    """Whether a dimension may be broadcast to another: to one, only what is one itself."""
    if target.is_one and own.symbol is not None:
        _note_equal(own.symbol, 1)
    return unify_dims(own, target) == target


def align_shapes(shapes: list[Shape]) -> Shape | None:
    """The common shape of several, the last axes below each other; None where sizes differ."""
    rank = max(map(len, shapes))
    result: list[Dim] = [ONE] * rank
    for shape in shapes:
        for offset, dim in enumerate(reversed(shape)):
            unified = unify_dims(result[rank - 1 - offset], dim)
            if unified is None:
                return None
            result[rank - 1 - offset] = unified
    return tuple(result)


def _identity_axes(shape: Shape, target: Shape) -> tuple[int, ...] | None:
    """Positions of the axes of ``shape`` in ``target``, or None.

    Tiles are found by identity, in order. Constant sizes have none, two axes of 5 may be
    different ones: those after the last tile stand below the last axes, as torch has it.
    """
    num_tiles = max((place + 1 for place, dim in enumerate(shape) if dim.symbol), default=0)
    first_plain = len(target) - (len(shape) - num_tiles)
    if any(unify_dims(a, b) != b for a, b in zip(shape[num_tiles:], target[first_plain:])):
        return None
    positions: list[int] = []
    start = 0
    for dim in shape[:num_tiles]:
        if dim.symbol is None or dim not in target[start:first_plain]:
            return None
        positions.append(target.index(dim, start))
        start = positions[-1] + 1
    return (*positions, *range(first_plain, len(target)))


def broadcast_shapes(operands: list[TileValue]) -> Shape:
    """The common shape of several operands."""
    shapes = [operand.tile.shape for operand in operands]
    aligned = align_shapes(shapes)
    if aligned is not None:
        return aligned
    largest = max(shapes, key=len)
    for operand in operands:
        shape = operand.tile.shape
        fits = align_shapes([shape, largest]) == largest
        by_identity = len(shape) < len(largest) and _identity_axes(shape, largest) is not None
        if not fits and (not by_identity or operand.is_reduced):
            raise _shape_mismatch(largest, shape)
    return largest


def _shape_mismatch(left: Shape, right: Shape) -> errors.BaseError:
    fix: dict[str, Any] = {}
    if len(left) == len(right):
        fix = {"fix": "index both with the same tiles or slices; transpose one with .T if needed"}
    return errors.ShapeMismatch(left=shape_text(left), right=shape_text(right), **fix)


def expand_dims(operand: TileValue, axes: tuple[int, ...]) -> TileValue:
    """Insert axes of size 1 at these positions of the result."""
    if not axes:
        return operand
    shape = list(operand.tile.shape)
    for axis in sorted(axes):
        shape.insert(axis, ONE)
    kind = operand.tile.with_shape(tuple(shape))
    return emit(ExpandDims, kind, x=operand.value, axes=tuple(sorted(axes)))


def broadcast_to(operand: TileValue, shape: Shape) -> TileValue:
    """Broadcast to ``shape``, aligning to the right or by axis identity."""
    own = operand.tile.shape
    if own == shape:
        return operand
    if len(own) < len(shape):
        if align_shapes([own, shape]) == shape:
            missing = tuple(range(len(shape) - len(own)))
        else:
            kept = _identity_axes(own, shape)
            if kept is None:
                raise _shape_mismatch(shape, own)
            missing = tuple(axis for axis in range(len(shape)) if axis not in kept)
        operand = expand_dims(operand, missing)
        own = operand.tile.shape
    if len(own) != len(shape) or not all(_fits(a, b) for a, b in zip(own, shape)):
        raise _shape_mismatch(shape, own)
    for axis, dim in enumerate(shape):
        operand = pad_to(operand, axis, dim)
    own = operand.tile.shape
    if own == shape:
        return operand
    if any(a != b and not a.is_one for a, b in zip(own, shape)):
        # A plain size n meets a tile fixed to n: same elements under the tile's name.
        retagged = tuple(b if not a.is_one else a for a, b in zip(own, shape))
        operand = reshape(operand, retagged)
    if operand.tile.shape == shape:
        return operand
    return emit(Broadcast, operand.tile.with_shape(shape), x=operand.value)


def reshape(operand: TileValue, shape: Shape) -> TileValue:
    """Row-major reinterpretation; the caller has checked the number of elements."""
    if operand.tile.shape == shape:
        return operand
    return emit(Reshape, operand.tile.with_shape(shape), x=operand.value)


def permute(operand: TileValue, order: tuple[int, ...]) -> TileValue:
    """The axes of a value in another order."""
    if order == tuple(range(len(order))):
        return operand
    shape = tuple(operand.tile.shape[axis] for axis in order)
    return emit(Permute, operand.tile.with_shape(shape), x=operand.value, order=order)


def apply(fn: str, *operands: Operand, dtype: DType | None = None) -> TileValue:
    """Apply a scalar function in ``dtype`` (default: the first tile's).

    For ``where`` the condition keeps its own type.
    """
    if dtype is None:
        dtype = next(o.tile.dtype for o in operands if isinstance(o, TileValue))
    tiles = [
        as_tile(operand, BOOL if fn == "where" and position == 0 else dtype)
        for position, operand in enumerate(operands)
    ]
    shape = broadcast_shapes(tiles)
    args = tuple(broadcast_to(tile, shape).value for tile in tiles)
    result = BOOL if SCALAR_FUNCTIONS[fn].result is ResultKind.BOOL else dtype
    is_reduced = any(tile.is_reduced for tile in tiles if tile.tile.shape == shape)
    return emit(Elementwise, TileType(result, shape), fn=fn, args=args, is_reduced=is_reduced)


def select(condition: TileValue, then: Operand, otherwise: Operand) -> TileValue:
    """``then`` where the condition holds; one of the two is a tile, which gives the type."""
    tile = then if isinstance(then, TileValue) else otherwise
    assert isinstance(tile, TileValue)
    return apply("where", condition, then, otherwise, dtype=tile.tile.dtype)


def reduce(operand: TileValue, axis: int, kind: ReduceKind) -> TileValue:
    """Combine along one axis, which the result lacks."""
    shape = operand.tile.shape
    dtype = I64 if kind.is_arg else operand.tile.dtype
    result = TileType(dtype, shape[:axis] + shape[axis + 1 :])
    return emit(Reduce, result, x=operand.value, axis=axis, kind=kind.value, is_reduced=True)


def integer(fn: str, left: Operand, right: Operand) -> Any:
    """Index arithmetic on scalars: Python numbers stay Python numbers."""
    tiles = [o for o in (left, right) if isinstance(o, TileValue)]
    dtype = I64 if any(t.tile.dtype == I64 for t in tiles) else I32
    return Scalar(apply(fn, left, right, dtype=dtype).value)


def arange(dim: Dim, dtype: DType = I32) -> TileValue:
    """``[0, 1, ...)`` along a new axis of that dimension."""
    return emit(Arange, TileType(dtype, (dim,)))


def spaced_range(start: Any, dim: Dim, step: int, dtype: DType = I32) -> TileValue:
    """``start, start + step, ...`` along a new axis."""
    indices = full(0, dtype, (ONE,)) if dim.is_one else arange(dim, dtype)
    if step != 1:
        indices = apply("mul", indices, step)
    if isinstance(start, int):
        return apply("add", indices, start) if start else indices
    return apply("add", indices, start, dtype=I64 if start.tile.dtype == I64 else dtype)


def join_pair(lhs: TileValue, rhs: TileValue) -> TileValue:
    """Two values of one type side by side along a new last axis."""
    joined = lhs.tile.with_shape((*lhs.tile.shape, Dim.of(2)))
    return emit(Join, joined, lhs=lhs.value, rhs=rhs.value)


def pick(x: TileValue, axis: int, position: int) -> TileValue:
    """The elements at one position of a constant axis, which the result lacks."""
    shape = x.tile.shape[:axis] + x.tile.shape[axis + 1 :]
    if x.tile.shape[axis].is_one:
        return reshape(x, shape)
    kind = x.tile.with_shape(shape)
    return emit(Select, kind, x=x.value, axis=axis, position=position, is_reduced=True)


def gather(x: TileValue, index: TileValue, axis: int) -> TileValue:
    """The elements at positions of the rank of ``x``; other axes of size 1 are repeated."""
    shape = with_dim(x.tile.shape, axis, index.tile.shape[axis])
    positions = broadcast_to(index, shape).value
    return emit(Gather, x.tile.with_shape(shape), x=x.value, index=positions, axis=axis)


def sort_integers(x: TileValue, axis: int, count: int = 0) -> TileValue:
    """Integers in ascending order along an axis; with ``count`` the first ones only."""
    return emit(Sort, x.tile, x=x.value, axis=axis, count=count)


def with_dim(shape: Shape, axis: int, dim: Dim) -> Shape:
    """The shape with one axis of another size."""
    return (*shape[:axis], dim, *shape[axis + 1 :])


def along(positions: TileValue, axis: int, rank: int) -> TileValue:
    """A line of numbers as one axis of ``rank``."""
    return expand_dims(positions, tuple(other for other in range(rank) if other != axis))


def positions_in(shape: Shape, axis: int) -> TileValue:
    """The position of every element along an axis; the other axes have size 1."""
    return along(spaced_range(0, shape[axis], 1), axis, len(shape))


def take_range(x: TileValue, axis: int, picked: range) -> TileValue:
    """The positions of a range, of a constant axis."""
    size = x.tile.shape[axis].constant or 0
    length = len(picked)
    if picked == range(size):
        return x
    if length == 0:
        return full(0, x.tile.dtype, with_dim(x.tile.shape, axis, Dim.of(0)))
    if length == 1:
        return expand_dims(pick(x, axis, picked[0]), (axis,))
    # One of equal parts whose sizes need no padding anywhere.
    is_even = size > 0 and size & (size - 1) == 0 and length & (length - 1) == 0
    if picked.step == 1 and is_even and picked.start % length == 0:
        parts = (Dim.of(size // length), Dim.of(length))
        split = reshape(x, (*x.tile.shape[:axis], *parts, *x.tile.shape[axis + 1 :]))
        return pick(split, axis, picked.start // length)
    positions = positions_in(with_dim(x.tile.shape, axis, Dim.of(length)), axis)
    scaled = apply("mul", positions, picked.step) if picked.step != 1 else positions
    return gather(x, apply("add", scaled, picked.start) if picked.start else scaled, axis)
