"""A view, elementwise functions, and the view undone: the functions of the tile as it was.

Each element of such a result is the same function of the same elements, so these identities are
exact. Where a tile is cut into halves and joined again, neither is left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tilesmith.analysis.scalar_arithmetic import is_same_constant
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.ops.rearrangement import Join, Select
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape
from tilesmith.ir.traversal import Definitions, Replacement, Rule
from tilesmith.ir.types import Dim, Shape, Value

Function = Elementwise | Cast
View = Permute | Reshape
HALVES = Dim.of(2)


@dataclass
class _Build:
    """Ops that compute a value of another shape, and whether a view was undone for it."""

    defined_by: Definitions
    ops: list[Operation] = field(default_factory=list[Operation])
    undone: bool = False
    known: dict[tuple[Value, ...], Value | None] = field(
        default_factory=dict[tuple[Value, ...], "Value | None"]
    )
    """What was found for values that several ops read."""

    def once(self, key: tuple[Value, ...], make: Callable[[], Value | None]) -> Value | None:
        """What is made for these values, made once."""
        if key not in self.known:
            self.known[key] = make()
        return self.known[key]

    def add(self, op: Operation) -> Value:
        self.ops.append(op)
        return op.result

    def rebuild(
        self, op: Function, shape: Shape, change: Callable[[int, Value], Value | None]
    ) -> Value | None:
        """The same function of changed operands, if all can be."""
        old = (op.x,) if isinstance(op, Cast) else op.args
        args: list[Value] = []
        for position, arg in enumerate(old):
            if (changed := change(position, arg)) is None:
                return None
            args.append(changed)
        result = (op.result.like(op.result.tile.with_shape(shape)),)
        if isinstance(op, Cast):
            return self.add(replace(op, x=args[0], results=result))
        return self.add(replace(op, args=tuple(args), results=result))

    def replacement(self, value: Value | None) -> Replacement | None:
        """What takes the place of the op, if it is less than there was."""
        if value is None or not self.undone:
            return None
        return self.ops if self.ops else value


def _of_halves(op: Operation, defined_by: Definitions) -> Replacement | None:
    """``join(f(low, y), f(high, y)) = f(x, y)``, where ``low`` and ``high`` are all of ``x``."""
    if not isinstance(op, Join):
        return None
    build = _Build(defined_by)
    return build.replacement(_whole(build, op.lhs, op.rhs))


def _whole(build: _Build, low: Value, high: Value) -> Value | None:
    """The tile whose halves these are."""
    first, second = build.defined_by(low), build.defined_by(high)
    if _are_same(build, low, high):
        return _repeated(build, low, first.x if isinstance(first, Broadcast) else low)
    if isinstance(first, Select) and isinstance(second, Select):
        is_whole = first.x is second.x and first.axis == second.axis == low.tile.rank
        if not is_whole or (first.position, second.position) != (0, 1):
            return None
        build.undone = True
        return first.x if first.x.tile.shape[-1] == HALVES else None
    if isinstance(first, Elementwise) and isinstance(second, Elementwise) and first.fn == second.fn:
        others = second.args
    elif isinstance(first, Cast) and isinstance(second, Cast):
        is_same = (first.dtype, first.bitcast) == (second.dtype, second.bitcast)
        others = (second.x,) if is_same else ()
    else:
        return None
    if not others:
        return None
    shape = (*low.tile.shape, HALVES)
    return build.rebuild(
        first,
        shape,
        lambda i, arg: build.once((arg, others[i]), lambda: _whole(build, arg, others[i])),
    )


def _are_same(build: _Build, low: Value, high: Value) -> bool:
    """Whether both repeat one value in the same way: equal expressions are not merged yet."""
    first, second = build.defined_by(low), build.defined_by(high)
    if low is high or low.type != high.type:
        return low is high
    if isinstance(first, ExpandDims) and isinstance(second, ExpandDims):
        return first.axes == second.axes and _are_same(build, first.x, second.x)
    if isinstance(first, Broadcast) and isinstance(second, Broadcast):
        return _are_same(build, first.x, second.x)
    if isinstance(first, Full) and isinstance(second, Full):
        return is_same_constant(first.value, second.value)
    return False


def _repeated(build: _Build, value: Value, source: Value) -> Value:
    """A value beside itself, by one broadcast of what it repeats."""
    wide = source.like(source.tile.with_shape((*source.tile.shape, Dim.of(1))))
    pair = value.like(value.tile.with_shape((*value.tile.shape, HALVES)))
    axes = (source.tile.rank,)
    x = build.add(ExpandDims(x=source, axes=axes, results=(wide,), loc=value.loc))
    return build.add(Broadcast(x=x, results=(pair,), loc=value.loc))


def _of_view(op: Operation, defined_by: Definitions) -> Replacement | None:
    """``view(f(undone_view(x), y)) = f(x, y')``: ``y`` is the same along all that is moved."""
    if not isinstance(op, (Permute, Reshape)):
        return None
    if not isinstance(defined_by(op.x), (Elementwise, Cast)):
        return None
    build = _Build(defined_by)
    return build.replacement(_viewed(build, op, op.x))


def _viewed(build: _Build, view: View, value: Value) -> Value | None:
    """A value as the view shows it, where that takes no view."""
    source = build.defined_by(value)
    shape = view.result.tile.shape
    if isinstance(source, (Elementwise, Cast)):
        return build.rebuild(
            source,
            shape,
            lambda _, arg: build.once((arg,), lambda: _viewed(build, view, arg)),
        )
    if isinstance(source, Full):
        return build.add(replace(source, results=(value.like(value.tile.with_shape(shape)),)))
    if isinstance(source, Broadcast):
        return _viewed_repetition(build, view, source)
    if _is_undone(source, view):
        assert isinstance(source, (Permute, Reshape))
        build.undone = True
        return source.x
    return None


def _is_undone(source: Operation | None, view: View) -> bool:
    if isinstance(source, Permute) and isinstance(view, Permute):
        return [source.order[axis] for axis in view.order] == list(range(len(view.order)))
    if isinstance(source, Reshape) and isinstance(view, Reshape):
        return source.x.tile.shape == view.result.tile.shape
    return False


def _viewed_repetition(build: _Build, view: View, source: Broadcast) -> Value | None:
    """A broadcast value that is one element along all axes that the view moves."""
    shape, before = view.result.tile.shape, source.x.tile.shape
    if isinstance(view, Permute):
        kept = tuple(before[axis] for axis in view.order)
        order = [axis for axis in view.order if not before[axis].is_one]
        small = kept if order == sorted(order) else None
    else:
        small = _reshaped_ones(before, source.result.tile.shape, shape)
    if small is None:
        return None
    result = Value(source.x.tile.with_shape(small), "", source.loc)
    x = build.add(Reshape(x=source.x, results=(result,), loc=source.loc))
    wide = source.result.like(source.result.tile.with_shape(shape))
    return build.add(replace(source, x=x, results=(wide,)))


def _reshaped_ones(small: Shape, before: Shape, after: Shape) -> Shape | None:
    """The small shape among the new axes, if it has one element along all that change."""
    shortest = min(len(before), len(after))
    head = next((i for i in range(shortest) if before[i] != after[i]), shortest)
    tails = zip(reversed(before[head:]), reversed(after[head:]))
    tail = next((i for i, (old, new) in enumerate(tails) if old != new), shortest - head)
    if not all(dim.is_one for dim in small[head : len(before) - tail]):
        return None
    ones = (Dim.of(1),) * (len(after) - tail - head)
    return (*small[:head], *ones, *small[len(before) - tail :])


UNDONE_VIEWS: tuple[Rule, ...] = (
    _of_halves,  # join(f(low, y), f(high, y)) = f(x, y)
    _of_view,  # permute(f(permute(x), y)) = f(x, y), reshape(f(reshape(x), y)) = f(x, y)
)
