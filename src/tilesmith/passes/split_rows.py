"""Runs a product whose rows are reduced in two steps: tiles of columns, then whole rows.

A function after the standard passes goes in. What comes out computes the same: through a scratch
tensor, all programs one step and then the other, with a barrier between them, or each program a
tile of a panel of rows, and who is last there reduces the panel; or with tiles that stay where they
are, and parts of sums exchanged. Nothing comes out where that is not certain.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from typing_extensions import override

from tilesmith.analysis.row_products import RowProduct, find_row_product
from tilesmith.dtypes import I32
from tilesmith.ir.function import Function, Parameter
from tilesmith.ir.ops.control_flow import GridBarrier, Loop
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.types import Value
from tilesmith.passes.exchanged_parts import exchange_parts
from tilesmith.passes.row_launches import ThroughMemory
from tilesmith.passes.row_split import made_at_launch
from tilesmith.passes.shared_rows import exchange_loaded, if_last, reduce_by_last


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
