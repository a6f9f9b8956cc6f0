"""Runs a product whose rows are reduced in two launches, without programs that wait.

A function after the standard passes goes in. What comes out reduces rows of a scratch matrix; its
``before`` is the product that fills the matrix, tile by tile. The end of a launch costs less than
programs that meet while the matrix stays in the shared cache. Nothing comes out where that is not
certain.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from typing_extensions import override

from tilesmith.analysis.row_products import RowProduct, find_row_product
from tilesmith.ir.function import Block, Function, Parameter
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Yield
from tilesmith.ir.ops.indexing import Arange, BlockSize, TileIndex
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.traversal import bound_blocks, values_used_by, walk
from tilesmith.ir.types import Dim, TensorType, Type, Value
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


def reduce_in_own_launch(function: Function) -> Function | None:
    """The rows of a product that was computed before; None where that is not certain.

    Before::

        grid([%zero], [%M]) {blocks=["m"]} (%b: i32[]) {
          %acc = loop([%zero], [%K], [], [%init]) {blocks=["k"]} : f32[m, 2048] ...
          %s = reduce(%acc) {axis=1, kind="sum"} : f32[m]
          store(%out, %s, none, [%i])
        }

    After, behind ``grid([%zero, %zero], [%M, %N])`` that stores tiles of the product::

        grid([%zero], [%M]) {blocks=["m"]} (%b: i32[]) {
          %acc = load(%row_scratch, none, [%i1, %j1]) : f32[m, 2048]
          %s = reduce(%acc) {axis=1, kind="sum"} : f32[m]
          store(%out, %s, none, [%i])
        }

    Blocks keep their slots; those of the product are the earlier launch's own.
    """
    site = find_row_product(function)
    if site is None or not _may_part(function, site):
        return None
    return _Launches(function, site).run()


def _may_part(function: Function, site: RowProduct) -> bool:
    """Whether the product does not ask for the rows of a program, and sizes are known."""
    ops = walk(Region((), (*site.before, site.loop)))
    kinds = [p.value.type for p in function.parameters]
    sizes = [s for t in kinds if isinstance(t, TensorType) for s in (*t.shape, *t.strides)]
    is_static = not function.sizes and all(isinstance(size, int) for size in sizes)
    return is_static and not any(isinstance(op, BlockSize) for op in ops)


class _Launches(ThroughMemory):
    """Writes both functions of one site."""

    def __init__(self, function: Function, site: RowProduct) -> None:
        super().__init__(function, site)
        self.row_block = site.row_block

    @override
    def run(self) -> Function:
        write = TileWriter(lambda: self.site.loc)
        for op in self._function.body.ops[:-1]:
            write.insert(op)
        write.insert(replace(self.site.grid, body=self._rows(write)))
        body = write.close_region(self._function.body.args)
        parameters, before = self._parameters(), self._product_of(super().run())
        return replace(self._function, parameters=parameters, body=body, before=before)

    def _product_of(self, function: Function) -> Function:
        """The grid that stores tiles of the product, as a function of its own."""
        used = set(values_used_by(function.body.ops))
        stepped = {block for op in walk(function.body) for block in bound_blocks(op)}
        blocks = [block for block in function.blocks if block.name in stepped]
        free = [block.name for block in blocks if block.slot is not None]
        return Function(
            name=f"{function.name}_product",
            parameters=tuple(
                Parameter(p.value, p.value.name) if p.value is self.scratch else p
                for p in function.parameters
                if p.value in used
            ),
            blocks=tuple(
                replace(b, slot=free.index(b.name)) if b.name in free else b for b in blocks
            ),
            sizes=(),
            body=function.body,
            is_first=True,
        )

    @override
    def _new_blocks(self, slot: int) -> tuple[Block, ...]:
        return (Block(self.column_block, slot=slot, extent=self.site.num_columns),)
