"""Rules for tiles that change their shape, and for joined, picked, gathered and sorted ones."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tilesmith.backends.triton.emission.emitter import Emitter, Rules
from tilesmith.backends.triton.emission.spelling import Expr, call, literal
from tilesmith.backends.triton.ops.elementwise import convert
from tilesmith.backends.triton.workarounds.view_order import expanded, unmerged
from tilesmith.dtypes import BOOL, I8, I32, DType
from tilesmith.exc import BackendUnsupported
from tilesmith.ir.ops.rearrangement import Gather, Join, Select, Sort
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape, inserted_ones
from tilesmith.ir.types import ONE, Dim, Shape, Value


def _emit_join(emitter: Emitter, op: Join) -> None:
    """Two tiles side by side along a new last axis."""
    lhs, rhs = emitter.exact(op.lhs), emitter.exact(op.rhs)
    emitter.define(op.result, call("tl.join", lhs, rhs, shape=op.result.tile.shape))


def _emit_select(emitter: Emitter, op: Select) -> None:
    """Halve the axis until one element is left: the last digit of the position goes first."""
    shape = op.result.tile.shape
    rest = emitter.schedule.physical(op.x.tile.shape[op.axis])
    part = _axis_to_the_end(emitter, op.x, op.axis)
    position = op.position
    if rest == 1:
        part = call("tl.reshape", part, emitter.spelling.shape(shape), shape=shape)
    while rest > 1:
        rest //= 2
        if rest > 1:
            sizes = [str(emitter.spelling.dim(dim)) for dim in shape]
            part = call("tl.reshape", part, f"[{', '.join([*sizes, str(rest), '2'])}]")
        part = Expr(f"{call('tl.split', part)}[{position % 2}]")
        position //= 2
    emitter.define(op.result, part.with_shape(shape))


def _axis_to_the_end(emitter: Emitter, x: Value, axis: int) -> Expr:
    rank = x.tile.rank
    whole = emitter.exact(x)
    if axis == rank - 1:
        return whole
    order = [other for other in range(rank) if other != axis]
    return call("tl.permute", whole, [*order, axis])


def _emit_gather(emitter: Emitter, op: Gather) -> None:
    """Elements at given positions; positions in invalid lanes are brought into the tile."""
    dim = op.x.tile.shape[op.axis]
    index = emitter.exact(op.index)
    if op.index.tile.dtype.bits < I32.bits:
        index = convert(index, op.index.tile.dtype, I32)
    index = into_lanes(emitter, index, dim)
    lanes = tuple(emitter.schedule.physical(v.tile.shape[op.axis]) for v in (op.x, op.index))
    sizes = [str(emitter.spelling.dim(other)) for other in op.x.tile.shape]
    x = widened(emitter.exact(op.x), sizes, op.axis, *lanes)
    gathered = gather(x, index, op.axis, op.x.tile.dtype)
    emitter.define(op.result, gathered.with_shape(op.result.tile.shape))


def gather(x: Expr, index: Expr, axis: int, dtype: DType) -> Expr:
    """``tl.gather``, with bools as bytes."""
    if dtype != BOOL:
        return call("tl.gather", x, index, axis, shape=index.shape)
    found = call("tl.gather", convert(x, BOOL, I8), index, axis, shape=index.shape)
    return convert(found, I8, BOOL)


def widened(x: Expr, sizes: list[str], axis: int, lanes: int, wanted: int) -> Expr:
    """``x`` repeated along an axis until it has as many lanes as are picked from it.

    Triton fails where a gather's result is longer than its operand and several warps share it.
    """
    if wanted <= lanes or len(sizes) == 1:
        return x
    new = x.subscript((axis,), (ONE,) * (len(sizes) + 1))
    apart = [*sizes[:axis], str(wanted // lanes), *sizes[axis:]]
    whole = [*sizes[:axis], str(wanted), *sizes[axis + 1 :]]
    repeated = call("tl.broadcast_to", new, f"[{', '.join(apart)}]")
    return call("tl.reshape", repeated, f"[{', '.join(whole)}]")


def into_lanes(emitter: Emitter, index: Expr, dim: Dim) -> Expr:
    """Positions along an axis as lanes of it, whatever invalid ones hold.

    An axis merged of several has its own padding behind each but the first.
    """
    schedule = emitter.schedule
    lane = index
    below = 1
    for factor in reversed(dim.factors[1:]):
        logical = schedule.symbols[factor] if isinstance(factor, str) else factor
        physical = schedule.physical(Dim.of(factor))
        if logical != physical:
            inner, outer = lane % (below * logical), lane // (below * logical)
            lane = outer.infix("*", literal(below * physical)).infix("+", inner)
        below *= physical
    symbol = dim.factors[0] if dim.factors else 1
    if isinstance(symbol, str) and not emitter.function.is_block(symbol):
        size = emitter.spelling.dim(dim)
        return lane.infix("&", size.infix("-", literal(1)))
    return lane.infix("&", literal(schedule.physical(dim) - 1))


def _emit_sort(emitter: Emitter, op: Sort) -> None:
    """Triton sorts along the last axis; the frontend puts it there."""
    shape: Shape = op.result.tile.shape
    last = len(shape) - 1
    x = _axis_to_the_end(emitter, op.x, op.axis)
    if emitter.schedule.physical(shape[op.axis]) == 1:
        emitter.define(op.result, emitter.exact(op.x))
        return
    result = call("tl.sort", x, shape=shape)
    if op.axis != last:
        order = list(range(last))
        order.insert(op.axis, last)
        result = call("tl.permute", result, order, shape=shape)
    emitter.define(op.result, result)


@dataclass(frozen=True)
class _Factor:
    """A factor of an axis: how many elements it counts and how many lanes it has."""

    name: int | str
    logical: int
    physical: int


@dataclass(frozen=True)
class _Group:
    """Factors of the operand and of the result that count the same elements."""

    old: tuple[_Factor, ...]
    new: tuple[_Factor, ...]

    @property
    def is_same(self) -> bool:
        """Whether lanes stay where they are: equal factors, or no padding on either side."""
        factors = (*self.old, *self.new)
        return self.old == self.new or all(f.logical == f.physical for f in factors)


def _emit_reshape(emitter: Emitter, op: Reshape) -> None:
    """Row-major reinterpretation; a uniform tile has nothing to rearrange."""
    x = emitter.expr(op.x)
    old, new = op.x.tile.shape, op.result.tile.shape
    if not x.shape or old == new:
        emitter.define(op.result, x)
        return
    axes = inserted_ones(old, new)
    if axes is not None:
        emitter.define(op.result, expanded(x, axes, len(new)))
        return
    if any(0 in dim.factors for dim in old):
        # There are lanes, but none of them counts.
        emitter.define(op.result, emitter.spelling.filled(literal(0), op.result.tile))
        return
    groups = _match(emitter, op)
    whole = emitter.exact(op.x)
    if not all(group.is_same for group in groups):
        whole = _moved(emitter, whole, op, groups)
    emitter.define(op.result, call("tl.reshape", whole, emitter.spelling.shape(new), shape=new))


def _factors(emitter: Emitter, shape: Shape) -> list[_Factor]:
    found: list[_Factor] = []
    for name in (factor for dim in shape for factor in dim.factors):
        logical = emitter.schedule.symbols[name] if isinstance(name, str) else name
        found.append(_Factor(name, logical, emitter.schedule.physical(Dim.of(name))))
    return found


def _match(emitter: Emitter, op: Reshape) -> list[_Group]:
    """Groups as small as possible, outermost first."""
    old, new = (_factors(emitter, v.tile.shape) for v in (op.x, op.result))
    groups: list[_Group] = []
    while old or new:
        ours, theirs = old[:1], new[:1]
        while ours != theirs and _count(ours) != _count(theirs):
            side, rest = (ours, old) if _count(ours) < _count(theirs) else (theirs, new)
            if len(side) == len(rest):
                raise _unsupported(op)
            side.append(rest[len(side)])
        # Further factors of 1 lane belong to whichever group comes next.
        old, new = old[len(ours) :], new[len(theirs) :]
        group = _Group(tuple(ours), tuple(theirs))
        if not group.is_same and _has_runtime_size(emitter, group):
            raise _unsupported(op)
        groups.append(group)
    return groups


def _count(factors: list[_Factor]) -> int:
    return prod(factor.logical for factor in factors)


def _has_runtime_size(emitter: Emitter, group: _Group) -> bool:
    names = [f.name for f in (*group.old, *group.new) if isinstance(f.name, str)]
    return not all(map(emitter.function.is_block, names))


def _unsupported(op: Reshape) -> BackendUnsupported:
    return BackendUnsupported(
        operation=f"reshaping {op.x.type} to {op.result.type}, which moves elements of an axis of "
        "runtime size",
        backend="triton",
        fix="make the sizes known with hl.specialize or static_shapes=True",
        loc=op.loc,
    )


def _moved(emitter: Emitter, whole: Expr, op: Reshape, groups: list[_Group]) -> Expr:
    """The lanes of the result in one line, behind the axes in front that stay as they are."""
    kept = 0
    while groups[kept].is_same:
        kept += 1
    rows = prod(f.physical for group in groups[:kept] for f in group.old)
    moved = groups[kept:]
    old = prod(factor.physical for group in moved for factor in group.old)
    new = prod(factor.physical for group in moved for factor in group.new)
    lane = emitter.named("lane", call("tl.arange", 0, new))
    source = _source(lane, moved).infix("&", literal(old - 1))
    index = emitter.named("source_lane", source)
    if rows > 1:
        whole = call("tl.reshape", whole, f"[{rows}, {old}]")
        whole = widened(whole, [str(rows), str(old)], 1, old, new)
        index = call("tl.broadcast_to", f"{index}[None, :]", f"[{rows}, {new}]")
    else:
        whole = call("tl.reshape", whole, f"[{old}]")
    return gather(whole, index, int(rows > 1), op.x.tile.dtype)


def _source(lane: Expr, groups: list[_Group]) -> Expr:
    """The lane of the operand that a lane of the result shows."""
    total = literal(0)
    below_old = below_new = 1
    for group in reversed(groups):
        position, counted = literal(0), 1
        for factor in reversed(group.new):
            digit = _digit(lane, below_new, factor.physical)
            position = digit * counted + position
            below_new, counted = below_new * factor.physical, counted * factor.logical
        counted = 1
        for factor in reversed(group.old):
            digit = _digit(position, counted, factor.logical)
            total = digit * below_old + total
            below_old, counted = below_old * factor.physical, counted * factor.logical
    return total


def _digit(x: Expr, below: int, size: int) -> Expr:
    if below > 1:
        x //= below
    return x % size


def _emit_expand_dims(emitter: Emitter, op: ExpandDims) -> None:
    """New axes of size 1; a scalar needs none."""
    x = emitter.expr(op.x)
    emitter.define(op.result, expanded(x, op.axes, op.result.tile.rank) if x.shape else x)


def _emit_permute(emitter: Emitter, op: Permute) -> None:
    x = emitter.expr(op.x)
    if not x.shape or op.order == tuple(range(len(op.order))):
        emitter.define(op.result, x)
        return
    shape = tuple(x.shape[axis] for axis in op.order)
    if op.order == (1, 0):
        turned = call("tl.trans", unmerged(emitter, op, x), shape=shape)
        emitter.define(op.result, turned)
    else:
        emitter.define(op.result, call("tl.permute", x, list(op.order), shape=shape))


RULES: Rules = {
    ExpandDims: _emit_expand_dims,
    # Triton repeats axes of size 1 by itself where the tile meets a larger one.
    Broadcast: lambda emitter, op: emitter.define(op.result, emitter.expr(op.x)),
    Reshape: _emit_reshape,
    Permute: _emit_permute,
    Join: _emit_join,
    Select: _emit_select,
    Gather: _emit_gather,
    Sort: _emit_sort,
}
