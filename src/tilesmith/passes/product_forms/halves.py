"""A product over pairs becomes two: of the first numbers of all pairs, and of the second ones.

Two weights of a byte are unpacked into two tiles. To multiply them in the order of the source they
are joined, so that every lane moves. A sum may be taken in another order: all first numbers, then
all second ones. Then nothing is joined; the other operand, which is loaded as it lies in memory, is
taken apart instead. Terms are the same, each rounded as before; only the order of the sum differs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod

from tilesmith.dtypes import F32
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Full, Mask
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.rearrangement import Join, Select
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape
from tilesmith.ir.traversal import Definitions, apply_rules
from tilesmith.ir.types import ONE, Dim, Shape, Value

PAIR = Dim.of(2)
LEAST_HALF = 16
"""Elements along a sum that matrix units take at once."""
Two = tuple[Value, Value]


def multiply_halves(
    function: Function, is_wanted: Callable[[Dim], bool] = lambda _: True
) -> Function | None:
    """The same with two products for each over joined pairs; None where there is no such product.

    ``is_wanted`` is asked about the rows, or columns, of the operand that is taken apart.

    Before::

        %pairs = join(%low, %high) : i8[k, n, 2]
        %turned = permute(%pairs) {order=[0, 2, 1]} : i8[k, 2, n]
        %rows = reshape(%turned) : i8[k*2, n]
        %y = cast(%rows) : bf16[k*2, n]
        %new = dot(%x, %y, %acc) : f32[m, n]

    After::

        %x2 = reshape(%x) : bf16[m, k, 2]
        %x_low = select(%x2) {axis=2, position=0} : bf16[m, k]
        %y_low = cast(%low) : bf16[k, n]
        %some = dot(%x_low, %y_low, %acc) : f32[m, n]
        ...
        %new = dot(%x_high, %y_high, %some) : f32[m, n]
    """
    made = apply_rules(function, [partial(_multiply_halves, is_wanted)])
    return None if made is function else made


def _multiply_halves(
    is_wanted: Callable[[Dim], bool], op: Operation, defined_by: Definitions
) -> list[Operation] | None:
    if not isinstance(op, Dot) or op.result.tile.dtype != F32:
        return None
    half = _half(op.lhs.tile.shape[-1])
    if half is None or (half.constant or LEAST_HALF) < LEAST_HALF:
        return None
    rank = op.lhs.tile.rank
    sides = ((op.lhs, rank - 1), (op.rhs, rank - 2))
    lines = op.lhs.tile.shape[-2], op.rhs.tile.shape[-1]
    for joined in (1, 0):
        build = _Halves(defined_by)
        halves = build.of(*sides[joined])
        # What has to be taken apart lane by lane gains nothing.
        if halves is None or not build.has_pairs or not is_wanted(lines[1 - joined]):
            continue
        others = build.of(*sides[1 - joined]) or build.taken_apart(*sides[1 - joined])
        pairs = zip(halves, others) if joined == 0 else zip(others, halves)
        return [*build.ops, *_sums(op, list(pairs))]
    return None


def _sums(op: Dot, pairs: list[Two]) -> list[Operation]:
    """Products that are added one after the other."""
    made: list[Operation] = []
    acc = op.acc
    for lhs, rhs in pairs:
        made.append(replace(op, lhs=lhs, rhs=rhs, acc=acc, results=(op.result.like(),)))
        acc = made[-1].result
    return made


def _half(dim: Dim) -> Dim | None:
    """The dimension of pairs of which this is one of single numbers."""
    *others, last = dim.factors or (1,)
    if isinstance(last, str) or last % 2:
        return None
    # A constant that a device pads is not the size that it has there.
    if not others and last & (last - 1):
        return None
    return Dim((*others, last // 2) if last > 2 else tuple(others))


@dataclass
class _Halves:
    """Ops that compute both numbers of all pairs along an axis: its halves."""

    defined_by: Definitions
    ops: list[Operation] = field(default_factory=list[Operation])
    has_pairs: bool = False
    """Whether a join was found."""
    known: dict[tuple[Value, int, bool], Two | None] = field(
        default_factory=dict[tuple[Value, int, bool], "Two | None"]
    )

    def of(self, value: Value, axis: int, *, is_pair: bool = False) -> Two | None:
        """The halves of a value; None where they would be taken apart.

        ``is_pair``: the axis is that of the two numbers of a pair, and goes.
        """
        key = (value, axis, is_pair)
        if key not in self.known:
            self.known[key] = self._of(value, axis, is_pair)
        return self.known[key]

    def taken_apart(self, value: Value, axis: int) -> Two:
        """The halves of a value as it is."""
        shape = value.tile.shape
        half = _half(shape[axis])
        assert half is not None
        pairs = (*shape[:axis], half, PAIR, *shape[axis + 1 :])
        view = self._add(Reshape(x=value, results=_typed(value, pairs), loc=value.loc))
        return self._both(value, axis, False, lambda i: Select(x=view, axis=axis + 1, position=i))

    def _of(self, value: Value, axis: int, is_pair: bool) -> Two | None:
        op = self.defined_by(value)
        if isinstance(op, Join) and is_pair and axis == value.tile.rank - 1:
            self.has_pairs = True
            return op.lhs, op.rhs
        if isinstance(op, Full):
            return self._both(value, axis, is_pair, lambda _: op)
        if isinstance(op, (Cast, Elementwise, Mask)):
            return self._of_lanes(op, axis, is_pair)
        if isinstance(op, Permute):
            return self._of_permuted(op, axis, is_pair)
        if isinstance(op, (Broadcast, ExpandDims)):
            return self._of_repeated(op, axis, is_pair)
        return self._of_merged(op, axis) if isinstance(op, Reshape) and not is_pair else None

    def _of_merged(self, op: Reshape, axis: int) -> Two | None:
        """Where an axis is made of several, of which the pairs are the last."""
        before, after = op.x.tile.shape, op.result.tile.shape
        place = len(before) - (len(after) - axis)
        is_last = place > axis and before[place] == PAIR
        is_same = before[:axis] == after[:axis] and before[place + 1 :] == after[axis + 1 :]
        if not is_last or not is_same or prod(before[axis:place], start=ONE) != _half(after[axis]):
            return None
        halves = self.of(op.x, place, is_pair=True)
        if halves is None or place == axis + 1:
            return halves
        return self._both(op.result, axis, False, lambda i: replace(op, x=halves[i]))

    def _of_lanes(self, op: Cast | Elementwise | Mask, axis: int, is_pair: bool) -> Two | None:
        """The same function of the halves of its operands."""
        parts = [self.of(x, axis, is_pair=is_pair) for x in op.operand_values()]
        found = [part for part in parts if part is not None]
        if len(found) < len(parts):
            return None
        if isinstance(op, Mask) and is_pair:
            op = replace(op, axes=tuple(a - (a > axis) for a in op.axes if a != axis))
        halves = [dict(zip(op.operand_values(), both)) for both in zip(*found)]
        return self._both(
            op.result, axis, is_pair, lambda i: op.with_operands(lambda x: halves[i].get(x, x))
        )

    def _of_permuted(self, op: Permute, axis: int, is_pair: bool) -> Two | None:
        source = op.order[axis]
        halves = self.of(op.x, source, is_pair=is_pair)
        if halves is None:
            return None
        kept = [a for a in op.order if a != source or not is_pair]
        order = tuple(a - (is_pair and a > source) for a in kept)
        if order == tuple(range(len(order))):
            return halves
        return self._both(op.result, axis, is_pair, lambda i: replace(op, x=halves[i], order=order))

    def _of_repeated(self, op: Broadcast | ExpandDims, axis: int, is_pair: bool) -> Two | None:
        """Where the axis comes from repeating, both halves are the same."""
        if isinstance(op, Broadcast) and op.x.tile.shape[axis].is_one:
            source = op.x
            if is_pair:
                shape = (*source.tile.shape[:axis], *source.tile.shape[axis + 1 :])
                view = Reshape(x=source, results=_typed(source, shape), loc=op.loc)
                source = self._add(view)
            return self._both(op.result, axis, is_pair, lambda _: replace(op, x=source))
        before = axis
        if isinstance(op, ExpandDims):
            before -= sum(a < axis for a in op.axes)
            op = replace(op, axes=tuple(a - (is_pair and a > axis) for a in op.axes))
        halves = self.of(op.x, before, is_pair=is_pair)
        if halves is None:
            return None
        return self._both(op.result, axis, is_pair, lambda i: replace(op, x=halves[i]))

    def _both(
        self, value: Value, axis: int, is_pair: bool, make: Callable[[int], Operation]
    ) -> Two:
        """Two ops of one kind, whose results are halves of a value."""
        shape = value.tile.shape
        half = () if is_pair else (_half(shape[axis]) or shape[axis],)
        small = (*shape[:axis], *half, *shape[axis + 1 :])
        first, second = (
            self._add(replace(make(i), results=_typed(value, small), loc=value.loc))
            for i in range(2)
        )
        return first, second

    def _add(self, op: Operation) -> Value:
        self.ops.append(op)
        return op.result


def _typed(value: Value, shape: Shape) -> tuple[Value]:
    return (value.like(value.tile.with_shape(shape)),)
