"""Appends ops to nested regions under construction and gives them locations."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tilesmith.diagnostics.location import UNKNOWN, SourceLocation
from tilesmith.dtypes import BOOL, DType
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.elementwise import SCALAR_FUNCTIONS, Cast, Elementwise, ResultKind
from tilesmith.ir.ops.indexing import BlockSize, Full
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Reshape
from tilesmith.ir.types import ONE, Shape, TileType, Type
from tilesmith.ir.values import Value

Op = TypeVar("Op", bound=Operation)


class Builder:
    """A stack of open regions. ``locate`` tells where the user's code is right now."""

    def __init__(self, locate: Callable[[], SourceLocation] = lambda: UNKNOWN) -> None:
        self.locate = locate
        self._stack: list[list[Operation]] = [[]]

    @property
    def depth(self) -> int:
        """Number of open regions, the outermost included."""
        return len(self._stack)

    def insert(self, op: Op) -> Op:
        """Append a finished op."""
        self._stack[-1].append(op)
        return op

    def create(self, cls: type[Op], result_type: Type, **fields: object) -> Value:
        """Append an op with one result of ``result_type`` and return that result."""
        loc = self.locate()
        value = Value(result_type, "", loc)
        self.insert(cls(results=(value,), loc=loc, **fields))  # type: ignore[arg-type]
        return value

    def effect(self, cls: type[Op], **fields: object) -> Op:
        """Append an op without results."""
        return self.insert(cls(loc=self.locate(), **fields))  # type: ignore[arg-type]

    def definition_of(self, value: Value) -> Operation | None:
        """The op of a region still open that gives a value, if there is one."""
        ops = (op for region in self._stack for op in region)
        return next((op for op in ops if any(result is value for result in op.results)), None)

    def open_region(self) -> None:
        """Start collecting ops of a nested region."""
        self._stack.append([])

    def close_region(self, args: tuple[Value, ...] = ()) -> Region:
        """Stop collecting and hand over the region."""
        return Region(args, tuple(self._stack.pop()))


class TileWriter:
    """Arithmetic on tiles in few words: appends ops to a builder and gives their results."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder

    def full(self, kind: TileType, value: float) -> Value:
        """One constant in every lane."""
        return self.builder.create(Full, kind, value=value)

    def size_of(self, kind: TileType, block: str) -> Value:
        """How many elements a block has."""
        return self.builder.create(BlockSize, kind, block=block)

    def apply(self, fn: str, *args: Value) -> Value:
        """A function of tiles of one shape."""
        is_test = SCALAR_FUNCTIONS[fn].result is ResultKind.BOOL
        kind = args[-1].tile.with_dtype(BOOL) if is_test else args[-1].tile
        return self.builder.create(Elementwise, kind, args=args, fn=fn)

    def cast(self, x: Value, dtype: DType) -> Value:
        """The same numbers in another type; themselves if they have it."""
        if x.tile.dtype == dtype:
            return x
        return self.builder.create(Cast, x.tile.with_dtype(dtype), x=x)

    def reduce(self, x: Value, axis: int, kind: str) -> Value:
        """One axis less."""
        shape = (*x.tile.shape[:axis], *x.tile.shape[axis + 1 :])
        return self.builder.create(Reduce, x.tile.with_shape(shape), x=x, axis=axis, kind=kind)

    def spread(self, x: Value, axis: int, shape: Shape) -> Value:
        """A scalar, or a line that gets another axis there, over all of a shape."""
        axes = tuple(range(len(shape))) if not x.tile.rank else (axis,)
        dims = [ONE if place in axes else dim for place, dim in enumerate(shape)]
        wide = x.tile.with_shape(tuple(dims))
        expanded = self.builder.create(ExpandDims, wide, x=x, axes=axes)
        return self.builder.create(Broadcast, x.tile.with_shape(shape), x=expanded)

    def place(self, rows: Value, columns: Value) -> tuple[Value, Value]:
        """Indices of a tile of a matrix, from two lines of numbers."""
        column = rows.tile.with_shape((*rows.tile.shape, ONE))
        line = columns.tile.with_shape((ONE, *columns.tile.shape))
        return (
            self.builder.create(ExpandDims, column, x=rows, axes=(1,)),
            self.builder.create(ExpandDims, line, x=columns, axes=(0,)),
        )

    def line(self, x: Value, shape: Shape) -> Value:
        """The same lanes without axes of length 1."""
        if x.tile.shape == shape:
            return x
        return self.builder.create(Reshape, x.tile.with_shape(shape), x=x)
