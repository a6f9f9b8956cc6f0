"""What all forms of kernels with split rows share: tiles of columns, made parameters, counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from tilesmith.analysis.row_products import RowSite
from tilesmith.dtypes import I32, DType
from tilesmith.interpreter.torch_dtypes import to_torch
from tilesmith.ir.function import Block, Function, Parameter
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.indexing import Arange, TileIndex
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.traversal import walk
from tilesmith.ir.types import Dim, TensorType, Type, Value, scalar


@dataclass
class CopiedOps:
    """Ops written again over other tiles. ``values`` maps old values to new ones."""

    values: dict[Value, Value]
    retype: Callable[[Value], Type]
    adapt: Callable[[Operation], Operation]

    def write(self, ops: Iterable[Operation]) -> tuple[Operation, ...]:
        """The same ops of new values, each adapted and its results retyped."""
        return tuple(map(self._write, ops))

    def _write(self, op: Operation) -> Operation:
        copy = self.adapt(op).with_operands(lambda value: self.values.get(value, value))
        inner = [Region(tuple(map(self._define, r.args)), self.write(r.ops)) for r in op.regions()]
        copy = copy.with_regions(tuple(inner))
        return replace(copy, results=tuple(map(self._define, op.results)))

    def _define(self, value: Value) -> Value:
        self.values[value] = value.like(self.retype(value))
        return self.values[value]


class RowSplit:
    """Writes one function with tiles of columns; classes of each form say what is done with them.

    ``ops`` are those that are written over tiles of columns, ``columns`` their values that have
    that axis.
    """

    def __init__(
        self,
        function: Function,
        site: RowSite,
        ops: Sequence[Operation],
        columns: Mapping[Value, int],
    ) -> None:
        self.site = site
        self._function = function
        self._columns = columns
        symbols = (*function.blocks, *function.sizes)
        taken = {item.name for item in symbols} | {p.value.name for p in function.parameters}
        self._taken = taken
        self.lanes = 0  # room for parts of each row, where there are any
        self.column_block = self.fresh("columns")
        self.row_index = site.row_begin.tile
        inside = walk(Region((), tuple(ops)))
        indices = (op for op in inside if isinstance(op, Arange) and op.result in columns)
        self._index_dtypes = list(dict.fromkeys(op.result.tile.dtype for op in indices))
        """Slices may be indexed by other integers than tiles are."""
        widest = max(self._index_dtypes, key=lambda d: d.bits, default=self.row_index.dtype)
        self.column_index = scalar(widest)

    def run(self) -> Function:
        """The function in this form."""
        loc = self.site.loc
        write = TileWriter(lambda: loc)
        for op in self._function.body.ops[:-1]:
            write.insert(op)
        zero = write.full(self.column_index, 0)
        self._emit(write, zero, write.full(self.column_index, self.site.num_columns))
        old = self._function.blocks
        slot = max((block.slot for block in old if block.slot is not None), default=-1) + 1
        return replace(
            self._function,
            parameters=self._parameters(),
            blocks=(*old, *self._new_blocks(slot)),
            body=write.close_region(self._function.body.args),
        )

    def _emit(self, write: TileWriter, zero: Value, width: Value) -> None:
        """All grids; columns go from zero to width."""
        raise NotImplementedError

    def _new_blocks(self, slot: int) -> tuple[Block, ...]:
        """Blocks after those that were there, from this slot on."""
        raise NotImplementedError

    def _made(self, device: str) -> tuple[Parameter, ...]:
        """Tensors that a launch makes on that device."""
        raise NotImplementedError

    def fresh(self, name: str) -> str:
        """A name like this one that nothing else has."""
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name

    def memory(self, name: str, dtype: DType, shape: tuple[int, ...]) -> Value:
        """A tensor of its own, dense."""
        strides = tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))
        kind = TensorType(dtype, shape, strides, alias=-1, wide=prod(shape) > I32.highest)
        return Value(kind, self.fresh(name), self.site.loc)

    def copy_columns(self, write: TileWriter, row: Value, column: Value) -> CopiedOps:
        """A writer of ops over the tile that begins at a row and a column."""
        block = self.column_block
        begins = {dtype: write.cast(column, dtype) for dtype in self._index_dtypes}

        def adapt(op: Operation) -> Operation:
            if not isinstance(op, Arange) or op.result not in self._columns:
                return op
            begin = begins[op.result.tile.dtype]
            return TileIndex(begin=begin, block=block, results=op.results, loc=op.loc)

        def in_columns(value: Value) -> Type:
            if value not in self._columns:
                return value.type
            shape = list(value.tile.shape)
            shape[self._columns[value]] = Dim.of(block)
            return value.tile.with_shape(tuple(shape))

        return CopiedOps({self.site.row_begin: row}, in_columns, adapt)

    def new_column(self) -> Value:
        """The first column of a tile."""
        return Value(self.column_index, f"{self.column_block}_begin", self.site.loc)

    def _parameters(self) -> tuple[Parameter, ...]:
        old = self._function.parameters
        tensors = [i for i, p in enumerate(old) if isinstance(p.value.type, TensorType)]
        made = self._made(f"{old[tensors[0]].source}.device")
        end = tensors[-1] + 1
        return (*old[:end], *made, *old[end:])


def made_at_launch(value: Value, maker: str, device: str) -> Parameter:
    """A tensor as ``torch.empty`` or ``torch.zeros`` makes it."""
    dtype, shape = to_torch(value.tensor.dtype), value.tensor.shape
    return Parameter(value, f"torch.{maker}({shape}, dtype={dtype}, device={device})")
