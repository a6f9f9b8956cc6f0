"""Runs a product whose rows are reduced in two steps: tiles of columns, then whole rows.

A function after the standard passes goes in. What comes out computes the same: through a scratch
tensor, all programs one step and then the other, with a barrier between them, or each program a
tile of a panel of rows, and who is last there reduces the panel; or with tiles that stay where they
are, and parts of sums exchanged. Nothing comes out where that is not certain.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import ClassVar

from typing_extensions import override

from tilesmith.analysis.row_products import RowProduct, find_row_product
from tilesmith.dtypes import I32
from tilesmith.ir.function import Block, Function, Parameter
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import GridBarrier, Loop, Yield
from tilesmith.ir.ops.indexing import Arange, TileIndex
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.types import Dim, Type, Value
from tilesmith.passes.exchanged_parts import exchange_parts
from tilesmith.passes.row_split import CopiedOps, RowSplit, made_at_launch
from tilesmith.passes.shared_rows.last_program import if_last
from tilesmith.passes.shared_rows.parts import exchange_loaded, reduce_by_last


class Form(Enum):
    """Who reduces the rows of a product, and when; the values are those of ``structure``."""

    PHASES = "two_phases"
    """All programs, when all have multiplied."""
    LAST = "last_reduces"
    """Of the programs that multiplied a panel's tiles, the last."""
    EXCHANGE = "exchange"
    """Each program its own tile; those of a panel wait for each other's parts of sums."""
    PARTS = "row_parts"
    """Of the programs that reduced parts of a panel's rows, the last."""


def split_rows(function: Function, form: Form = Form.PHASES) -> Function | None:
    """The same computation in two steps; None where that is not certain.

    Before::

        grid([%zero], [%M]) {blocks=["m"]} (%b: i32[]) {
          %acc = loop([%zero], [%K], [], [%init]) {blocks=["k"]} : f32[m, 2048] ...
          %s = reduce(%acc) {axis=1, kind="sum"} : f32[m]
          store(%out, %s, none, [%i])
        }

    After::

        grid([%zero, %zero], [%M, %N]) {blocks=["m", "columns"]} (%b: i32[], %c: i32[]) {
          %part = loop([%zero], [%K], [], [%init]) {blocks=["k"]} : f32[m, columns] ...
          store(%row_scratch, %part, none, [%i1, %j1])
        }
        grid_barrier()
        grid([%zero], [%M]) {blocks=["rows"]} (%r: i32[]) {
          %acc = load(%row_scratch, none, [%i1, %j1]) : f32[rows, 2048]
          %s = reduce(%acc) {axis=1, kind="sum"} : f32[rows]
          store(%out, %s, none, [%i])
        }

    By the last, after::

        grid([%zero, %zero], [%M, %N]) {blocks=["m", "columns"]} (%b: i32[], %c: i32[]) {
          ... store(%row_scratch ...
          %before = atomic(%row_counts, %one, none, [%b]) {kind="add", order="acq_rel"} : i32[]
          %is_last = elementwise(%before, %tiles) {fn="eq"} : bool[]
          if(%is_last) { loop([%b], [%end], [], []) {blocks=["rows"]} (%r: i32[]) { ... } }
        }

    For the exchange see ``exchanged_parts.py``. Blocks that were there keep their slots; those of
    columns and rows come after them. Masks, slots and the order of accesses are those of before.
    """
    if form is Form.PARTS:
        return reduce_by_last(function)
    site = find_row_product(function)
    if site is None:
        return exchange_loaded(function) if form is Form.EXCHANGE else None
    if form is Form.EXCHANGE:
        return exchange_parts(function, site)
    return (_InPhases if form is Form.PHASES else _ByLast)(function, site).run()


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


class _InPhases(ThroughMemory):
    """All programs multiply, then all reduce."""

    covers_all_rows = True

    @override
    def _emit(self, write: TileWriter, zero: Value, width: Value) -> None:
        super()._emit(write, zero, width)
        write.effect(GridBarrier)
        body = self._rows(write)
        write.insert(replace(self.site.grid, blocks=(self.row_block,), body=body))


class _ByLast(ThroughMemory):
    """A grid over tiles; programs of a panel count themselves, and the last one reduces it."""

    def __init__(self, function: Function, site: RowProduct) -> None:
        super().__init__(function, site)
        self._counts = self.memory("row_counts", I32, (site.num_rows,))

    @override
    def _finish(self, write: TileWriter, row: Value) -> None:
        if_last(self, write, self._counts, row, lambda: self._emit_panel_rows(write, row))

    def _emit_panel_rows(self, write: TileWriter, row: Value) -> None:
        """The second step for the rows of a tile that begins at one."""
        site = self._product
        end = write.apply("add", row, write.size_of(self.row_index, site.row_block))
        last = write.apply("minimum", end, site.grid.ends[0])
        body, blocks = self._rows(write), (self.row_block,)
        ranges = {"begins": (row,), "ends": (last,), "steps": (), "blocks": blocks}
        write.effect(Loop, **ranges, init=(), body=body)

    @override
    def _made(self, device: str) -> tuple[Parameter, ...]:
        return (*super()._made(device), made_at_launch(self._counts, "zeros", device))
