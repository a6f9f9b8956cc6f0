"""Products that go to scratch memory, tile by tile, and the rows that are loaded from it."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from typing_extensions import override

from tilesmith.analysis.row_products import RowProduct
from tilesmith.ir.function import Block, Function, Parameter
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Yield
from tilesmith.ir.ops.indexing import Arange, TileIndex
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.types import Dim, Type, Value
from tilesmith.passes.row_split import CopiedOps, RowSplit, made_at_launch


class ThroughMemory(RowSplit):
    """Products go to scratch memory; classes below say where the second step stands."""

    covers_all_rows: ClassVar[bool] = False
    """Whether the second step's rows range over all; else as far as the panel's."""

    def __init__(self, function: Function, site: RowProduct) -> None:
        super().__init__(function, site, (*site.before, site.loop), site.columns)
        self._product, self.row_block = site, self.fresh("rows")
        shape = (site.num_rows, site.num_columns)
        self.scratch = self.memory("row_scratch", site.acc.tile.dtype, shape)

    @override
    def _emit(self, write: TileWriter, zero: Value, width: Value) -> None:
        """A grid over tiles of rows and columns: the loop over one tile, its result stored."""
        site = self._product
        row, column = site.row_begin.like(), self.new_column()
        write.open_region()
        copy = self.copy_columns(write, row, column)
        for op in copy.write((*site.before, site.loop)):
            write.insert(op)
        place = write.place(
            write.tile_index(row, site.row_block), write.tile_index(column, self.column_block)
        )
        write.effect(Store, tensor=self.scratch, value=copy.values[site.acc], indices=place)
        self._finish(write, row)
        write.effect(Yield)
        body = write.close_region((row, column))
        begins, ends = (*site.grid.begins, zero), (*site.grid.ends, width)
        blocks = (site.row_block, self.column_block)
        write.insert(replace(site.grid, begins=begins, ends=ends, blocks=blocks, body=body))

    def _finish(self, write: TileWriter, row: Value) -> None:
        """What a program does after it has stored a tile."""

    def _rows(self, write: TileWriter) -> Region:
        """The accumulator loaded, and what came after the loop; of the first row."""
        site = self._product
        row = Value(self.row_index, f"{self.row_block}_begin", site.row_begin.loc)
        write.open_region()
        line = self.column_index.with_shape((site.acc.tile.shape[1],))
        place = write.place(write.tile_index(row, self.row_block), write.create(Arange, line))
        whole = self._in_rows(site.acc)
        acc = write.create(Load, whole, tensor=self.scratch, indices=place)
        acc.name = site.acc.name

        def adapt(op: Operation) -> Operation:
            is_index = isinstance(op, TileIndex) and op.block == site.row_block
            return replace(op, block=self.row_block) if is_index else op

        copy = CopiedOps({site.row_begin: row, site.acc: acc}, self._in_rows, adapt)
        for op in copy.write(site.after):
            write.insert(op)
        write.effect(Yield)
        return write.close_region((row,))

    def _in_rows(self, value: Value) -> Type:
        new = {self.site.row_block: Dim.of(self.row_block)}
        return value.tile.with_shape(tuple(dim.substitute(new) for dim in value.tile.shape))

    @override
    def _new_blocks(self, slot: int) -> tuple[Block, ...]:
        columns = Block(self.column_block, slot=slot, extent=self.site.num_columns)
        extent = self.site.num_rows if self.covers_all_rows else None
        return (columns, Block(self.row_block, slot=slot + 1, extent=extent))

    @override
    def _made(self, device: str) -> tuple[Parameter, ...]:
        return (made_at_launch(self.scratch, "empty", device),)
