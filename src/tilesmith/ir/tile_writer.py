"""Arithmetic on tiles in few words, for passes that write ops."""

from __future__ import annotations

from tilesmith.dtypes import BOOL, DType
from tilesmith.ir.function import Builder
from tilesmith.ir.ops.elementwise import SCALAR_FUNCTIONS, Cast, Elementwise, ResultKind
from tilesmith.ir.ops.indexing import BlockSize, Full, TileIndex
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Reshape
from tilesmith.ir.types import ONE, Dim, Shape, TileType, Value


class TileWriter(Builder):
    """Appends ops and gives their results."""

    def full(self, kind: TileType, value: float) -> Value:
        """One constant in every lane."""
        return self.create(Full, kind, value=value)

    def tile_index(self, begin: Value, block: str) -> Value:
        """The numbers in a tile of a block."""
        line = begin.tile.with_shape((Dim.of(block),))
        return self.create(TileIndex, line, begin=begin, block=block)

    def size_of(self, kind: TileType, block: str) -> Value:
        """How many elements a block has."""
        return self.create(BlockSize, kind, block=block)

    def apply(self, fn: str, *args: Value) -> Value:
        """A function of tiles of one shape."""
        is_test = SCALAR_FUNCTIONS[fn].result is ResultKind.BOOL
        kind = args[-1].tile.with_dtype(BOOL) if is_test else args[-1].tile
        return self.create(Elementwise, kind, args=args, fn=fn)

    def cast(self, x: Value, dtype: DType) -> Value:
        """The same numbers in another type; themselves if they have it."""
        if x.tile.dtype == dtype:
            return x
        return self.create(Cast, x.tile.with_dtype(dtype), x=x)

    def reduce(self, x: Value, axis: int, kind: str) -> Value:
        """One axis less."""
        shape = (*x.tile.shape[:axis], *x.tile.shape[axis + 1 :])
        return self.create(Reduce, x.tile.with_shape(shape), x=x, axis=axis, kind=kind)

    def spread(self, x: Value, axis: int, shape: Shape) -> Value:
        """A scalar, or a line that gets another axis there, over all of a shape."""
        axes = tuple(range(len(shape))) if not x.tile.rank else (axis,)
        dims = [ONE if place in axes else dim for place, dim in enumerate(shape)]
        wide = x.tile.with_shape(tuple(dims))
        expanded = self.create(ExpandDims, wide, x=x, axes=axes)
        return self.create(Broadcast, x.tile.with_shape(shape), x=expanded)

    def place(self, rows: Value, columns: Value) -> tuple[Value, Value]:
        """Indices of a tile of a matrix, from two lines of numbers."""
        column = rows.tile.with_shape((*rows.tile.shape, ONE))
        line = columns.tile.with_shape((ONE, *columns.tile.shape))
        return (
            self.create(ExpandDims, column, x=rows, axes=(1,)),
            self.create(ExpandDims, line, x=columns, axes=(0,)),
        )

    def line(self, x: Value, shape: Shape) -> Value:
        """The same lanes without axes of length 1."""
        if x.tile.shape == shape:
            return x
        return self.create(Reshape, x.tile.with_shape(shape), x=x)
