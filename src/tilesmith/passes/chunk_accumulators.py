"""How each kind of reduction is carried over the chunks of a row: start, accumulate, finish.

Accumulators keep one lane per lane of a chunk, and are reduced once after the loop. Invalid
lanes of a chunk leave them unchanged.
"""

from __future__ import annotations

from tilesmith.analysis.masked_lanes import Lanes
from tilesmith.analysis.scalar_arithmetic import convert
from tilesmith.dtypes import BOOL, F32, I32, DType
from tilesmith.ir.builder import Builder
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Arange, Full, Mask
from tilesmith.ir.ops.reduction import Reduce, ReduceKind
from tilesmith.ir.ops.shape import Broadcast, ExpandDims
from tilesmith.ir.types import Dim, Shape, TileType
from tilesmith.ir.values import Value

_COMBINE = {
    ReduceKind.SUM: "add",
    ReduceKind.PROD: "mul",
    ReduceKind.MAX: "maximum",
    ReduceKind.MIN: "minimum",
    ReduceKind.ANY: "or",
    ReduceKind.ALL: "and",
}


class ChunkAccumulator:
    """The accumulators of one reduction. ``shape`` is the operand's with the chunk for the axis."""

    def __init__(self, op: Reduce, shape: Shape, lanes: Lanes) -> None:
        self.op = op
        self.shape = shape
        self._dtype = _accumulator_dtype(op)
        self._identity = op.reduction.identity(self._dtype)
        held = lanes.axes[op.axis]
        self._is_neutral = held is not None and self._identity == convert(
            held, op.x.tile.dtype, self._dtype
        )

    def start(self, builder: Builder) -> list[Value]:
        """The initial values: identities, and for arg forms the positions of the first chunk."""
        values = [self._full(builder, self._identity, self._dtype)]
        if self.op.reduction.is_arg:
            line = TileType(self.op.result.tile.dtype, (self.shape[self.op.axis],))
            values.append(self.along_axis(builder, builder.create(Arange, line)))
        return values

    def accumulate(
        self, builder: Builder, carried: list[Value], x: Value, position: Value
    ) -> list[Value]:
        """The next values, from those carried, a chunk of the operand and its positions."""
        chunk = self._prepare(builder, x)
        if not self.op.reduction.is_arg:
            fn = _COMBINE[self.op.reduction]
            return [self._apply(builder, fn, carried[0], chunk)]
        best, where = carried
        place = self.along_axis(builder, _convert(builder, position, where.tile.dtype))
        is_better = self._is_better(builder, chunk, best)
        return [
            self._apply(builder, "where", is_better, chunk, best),
            self._apply(builder, "where", is_better, place, where),
        ]

    def finish(self, builder: Builder, values: list[Value]) -> None:
        """Reduce the accumulators to the result of the op, which keeps its value."""
        if self.op.reduction.is_arg:
            values = [self._first_best(builder, *values)]
        kind = "min" if self.op.reduction.is_arg else self.op.kind
        dtype = values[0].tile.dtype
        target = self.op.result
        if dtype == target.tile.dtype:
            self._reduce_into(builder, values[0], kind, target)
            return
        partial = Value(target.tile.with_dtype(dtype), target.name, target.loc)
        self._reduce_into(builder, values[0], kind, partial)
        builder.insert(Cast(x=partial, results=(target,), loc=self.op.loc))

    def along_axis(self, builder: Builder, line: Value) -> Value:
        """A tile along the reduced axis, repeated over the others."""
        axes = tuple(axis for axis in range(len(self.shape)) if axis != self.op.axis)
        ones = tuple(
            dim if axis == self.op.axis else Dim(()) for axis, dim in enumerate(self.shape)
        )
        dtype = line.tile.dtype
        if axes:
            line = builder.create(ExpandDims, TileType(dtype, ones), x=line, axes=axes)
        if ones != self.shape:
            line = builder.create(Broadcast, TileType(dtype, self.shape), x=line)
        return line

    def _full(self, builder: Builder, value: float, dtype: DType) -> Value:
        return builder.create(Full, TileType(dtype, self.shape), value=value)

    def _apply(self, builder: Builder, fn: str, *args: Value) -> Value:
        return builder.create(Elementwise, args[-1].tile, fn=fn, args=args)

    def _test(self, builder: Builder, fn: str, *args: Value) -> Value:
        return builder.create(Elementwise, args[-1].tile.with_dtype(BOOL), fn=fn, args=args)

    def _prepare(self, builder: Builder, x: Value) -> Value:
        """A chunk in the accumulator's type, neutral in invalid lanes."""
        if self._dtype.is_bool and not x.tile.dtype.is_bool:
            zero = self._full(builder, 0.0 if x.tile.dtype.is_float else 0, x.tile.dtype)
            x = self._test(builder, "ne", x, zero)
        x = _convert(builder, x, self._dtype)
        if self._is_neutral:
            return x
        return builder.create(Mask, x.tile, x=x, fill=self._identity, axes=(self.op.axis,))

    def _is_better(self, builder: Builder, new: Value, best: Value) -> Value:
        """Strictly better, so that the first of equals stays; NaN is better than any number."""
        fn = "gt" if self.op.reduction is ReduceKind.ARGMAX else "lt"
        is_better = self._test(builder, fn, new, best)
        if not self._dtype.is_float:
            return is_better
        is_old_number = self._apply(builder, "not", self._test(builder, "isnan", best))
        is_new_nan = self._test(builder, "isnan", new)
        is_first_nan = self._apply(builder, "and", is_new_nan, is_old_number)
        return self._apply(builder, "or", is_better, is_first_nan)

    def _first_best(self, builder: Builder, best: Value, where: Value) -> Value:
        """The positions of lanes that hold the row's best value; elsewhere more than any."""
        kind = "max" if self.op.reduction is ReduceKind.ARGMAX else "min"
        row = Value(self.op.result.tile.with_dtype(self._dtype))
        self._reduce_into(builder, best, kind, row)
        column = (*self.shape[: self.op.axis], Dim(()), *self.shape[self.op.axis + 1 :])
        row_type = TileType(self._dtype, column)
        spread = builder.create(ExpandDims, row_type, x=row, axes=(self.op.axis,))
        spread = builder.create(Broadcast, best.tile, x=spread)
        is_best = self._test(builder, "eq", best, spread)
        if self._dtype.is_float:
            is_best = self._apply(builder, "or", is_best, self._test(builder, "isnan", best))
        last = self._full(builder, where.tile.dtype.highest, where.tile.dtype)
        return self._apply(builder, "where", is_best, where, last)

    def _reduce_into(self, builder: Builder, x: Value, kind: str, target: Value) -> None:
        builder.insert(
            Reduce(x=x, axis=self.op.axis, kind=kind, results=(target,), loc=self.op.loc)
        )


def _accumulator_dtype(op: Reduce) -> DType:
    kind, dtype = op.reduction, op.x.tile.dtype
    if kind in (ReduceKind.ANY, ReduceKind.ALL):
        return BOOL
    if kind in (ReduceKind.SUM, ReduceKind.PROD):
        dtype = op.result.tile.dtype
        return F32 if dtype.is_low_precision_float else dtype
    # Comparisons of bools are those of numbers.
    return I32 if dtype.is_bool else dtype


def _convert(builder: Builder, x: Value, dtype: DType) -> Value:
    return x if x.tile.dtype == dtype else builder.create(Cast, x.tile.with_dtype(dtype), x=x)
