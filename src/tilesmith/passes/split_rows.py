"""Runs a product whose rows are reduced in two steps: tiles of columns, then whole rows.

A function after the standard passes goes in. What comes out computes the same: through a scratch
tensor, all programs one step and then the other, with a barrier between them, or each program a
tile of a panel of rows, and who is last there reduces the panel; or with tiles that stay where they
are, and parts of sums exchanged. Nothing comes out where that is not certain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum

from typing_extensions import override

from tilesmith.analysis.row_products import RowProduct, find_row_product
from tilesmith.dtypes import BOOL, I32
from tilesmith.ir.function import Block, Builder, Function, Parameter
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import GridBarrier, If, Loop, Yield
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import Arange, BlockSize, Full, TileIndex
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.types import Dim, Type, Value, scalar
from tilesmith.passes.exchanged_parts import exchange_parts
from tilesmith.passes.row_split import CopiedOps, RowSplit, made_at_launch


class Form(Enum):
    """Who reduces the rows of a product, and when; the values are those of ``structure``."""

    PHASES = "two_phases"
    """All programs, when all have multiplied."""
    LAST = "last_reduces"
    """Of the programs that multiplied a panel's tiles, the last."""
    EXCHANGE = "exchange"
    """Each program its own tile; those of a panel wait for each other's parts of sums."""


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
    site = find_row_product(function)
    if site is None:
        return None
    return _SPLITS[form](function, site)


class _ThroughMemory(RowSplit):
    """Products go to scratch memory; classes below say where the second step stands."""

    def __init__(self, function: Function, site: RowProduct) -> None:
        super().__init__(function, site, (*site.before, site.loop), site.columns)
        self.row_block = self.fresh("rows")
        shape = (site.num_rows, site.num_columns)
        self._scratch = self.memory("row_scratch", site.acc.tile.dtype, shape)

    def _emit_products(self, builder: Builder, zero: Value, width: Value) -> None:
        """A grid of tiles of rows and columns."""
        site = self.site
        row = site.row_begin.like()
        region = self._products(builder, row)
        builder.insert(
            replace(
                site.grid,
                begins=(*site.grid.begins, zero),
                ends=(*site.grid.ends, width),
                blocks=(site.row_block, self.column_block),
                body=replace(region, args=(row, *region.args)),
            )
        )

    def _finish(self, builder: Builder, row: Value) -> None:
        """What a program does after it has stored a tile."""

    def _products(self, builder: Builder, row: Value) -> Region:
        """The loop over one tile of rows and columns, its result stored; of the first column."""
        site = self.site
        column = self.new_column()
        builder.open_region()
        copy = self.copy_columns(builder, row, column)
        for op in copy.write((*site.before, site.loop)):
            builder.insert(op)
        place = TileWriter(builder).place(
            self.tile_index(builder, row, site.row_block),
            self.tile_index(builder, column, self.column_block),
        )
        builder.effect(Store, tensor=self._scratch, value=copy.values[site.acc], indices=place)
        self._finish(builder, row)
        builder.effect(Yield)
        return builder.close_region((column,))

    def _rows(self, builder: Builder) -> Region:
        """The accumulator loaded, and what came after the loop; of the first row."""
        site = self.site
        row = Value(self.row_index, f"{self.row_block}_begin", site.row_begin.loc)
        builder.open_region()
        line = self.column_index.with_shape((site.acc.tile.shape[1],))
        place = TileWriter(builder).place(
            self.tile_index(builder, row, self.row_block), builder.create(Arange, line)
        )
        whole = self._in_rows(site.acc)
        acc = builder.create(Load, whole, tensor=self._scratch, indices=place)
        acc.name = site.acc.name
        copy = CopiedOps({site.row_begin: row, site.acc: acc}, self._in_rows, self._adapt_rows)
        for op in copy.write(site.after):
            builder.insert(op)
        builder.effect(Yield)
        return builder.close_region((row,))

    def _adapt_rows(self, op: Operation) -> Operation:
        if isinstance(op, TileIndex) and op.block == self.site.row_block:
            return replace(op, block=self.row_block)
        return op

    def _in_rows(self, value: Value) -> Type:
        new = {self.site.row_block: Dim.of(self.row_block)}
        return value.tile.with_shape(tuple(dim.substitute(new) for dim in value.tile.shape))

    @override
    def _new_blocks(self, slot: int) -> tuple[Block, ...]:
        columns = Block(self.column_block, slot=slot, extent=self.site.num_columns)
        return (columns, Block(self.row_block, slot=slot + 1, extent=self._row_extent))

    @override
    def _made(self, device: str) -> tuple[Parameter, ...]:
        return (made_at_launch(self._scratch, "empty", device),)

    @property
    def _row_extent(self) -> int | None:
        """How far the second step's rows range; in a panel, as far as the panel's."""
        return None


class _InPhases(_ThroughMemory):
    """All programs multiply, then all reduce."""

    @override
    def _emit(self, builder: Builder, zero: Value, width: Value) -> None:
        self._emit_products(builder, zero, width)
        builder.effect(GridBarrier)
        grid = self.site.grid
        builder.insert(replace(grid, blocks=(self.row_block,), body=self._rows(builder)))

    @property
    @override
    def _row_extent(self) -> int | None:
        return self.site.num_rows


class _ByLast(_ThroughMemory):
    """A grid over tiles; programs of a panel count themselves, and the last one reduces it."""

    def __init__(self, function: Function, site: RowProduct) -> None:
        super().__init__(function, site)
        self._counts = self.memory("row_counts", I32, (site.num_rows,))

    @override
    def _emit(self, builder: Builder, zero: Value, width: Value) -> None:
        self._emit_products(builder, zero, width)

    @override
    def _finish(self, builder: Builder, row: Value) -> None:
        count = scalar(I32)
        one = builder.create(Full, count, value=1)
        before = builder.create(
            Atomic,
            count,
            tensor=self._counts,
            value=one,
            indices=(row,),
            kind="add",
            order="acq_rel",
        )
        before.name = "before"
        end = builder.create(Full, count, value=self.site.num_columns - 1)
        size = builder.create(BlockSize, count, block=self.column_block)
        others = builder.create(Elementwise, count, args=(end, size), fn="floordiv")
        is_last = builder.create(Elementwise, scalar(BOOL), args=(before, others), fn="eq")
        builder.open_region()
        self._emit_panel_rows(builder, row)
        builder.effect(Yield)
        then = builder.close_region()
        builder.open_region()
        builder.effect(Yield)
        builder.effect(If, condition=is_last, then=then, otherwise=builder.close_region())

    def _emit_panel_rows(self, builder: Builder, row: Value) -> None:
        """The second step for the rows of a tile that begins at one."""
        site, kind = self.site, self.row_index
        size = builder.create(BlockSize, kind, block=site.row_block)
        end = builder.create(Elementwise, kind, args=(row, size), fn="add")
        last = builder.create(Elementwise, kind, args=(end, site.grid.ends[0]), fn="minimum")
        body = self._rows(builder)
        builder.insert(
            Loop(
                begins=(row,),
                ends=(last,),
                steps=(),
                init=(),
                blocks=(self.row_block,),
                body=body,
                loc=site.loop.loc,
            )
        )

    @override
    def _made(self, device: str) -> tuple[Parameter, ...]:
        return (*super()._made(device), made_at_launch(self._counts, "zeros", device))


def _in_phases(function: Function, site: RowProduct) -> Function:
    return _InPhases(function, site).run()


def _by_last(function: Function, site: RowProduct) -> Function:
    return _ByLast(function, site).run()


_SPLITS: Mapping[Form, Callable[[Function, RowProduct], Function | None]] = {
    Form.PHASES: _in_phases,
    Form.LAST: _by_last,
    Form.EXCHANGE: exchange_parts,
}
