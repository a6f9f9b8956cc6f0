"""Splits rows that are loaded over several programs, where a grid has few of them.

Each program reduces a part of its rows and leaves what it has in memory. By the last, one program
of each panel puts the parts together; in an exchange all of them do and go on with their tiles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from typing_extensions import override

from tilesmith.analysis.shared_rows.sites import (
    LastSteps,
    WalkedRows,
    WholeRows,
    find_last_steps,
    find_walked_rows,
    find_whole_rows,
)
from tilesmith.dtypes import I32
from tilesmith.ir.function import Block, Function, Parameter
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import MOST_IN_GROUP, If, Yield
from tilesmith.ir.ops.memory import Atomic, Store
from tilesmith.ir.ops.reduction import ReduceKind
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.types import Value, scalar
from tilesmith.passes.exchanged_parts import Exchange, PanelParts, TileProgram, room_for_parts
from tilesmith.passes.row_split import CopiedOps, RowSplit, made_at_launch


def if_last(
    form: RowSplit, write: TileWriter, counts: Value, row: Value, emit: Callable[[], None]
) -> None:
    """What the last of the programs does that come here with tiles of the same rows."""
    count = scalar(I32)
    update = {"kind": "add", "order": "acq_rel", "value": write.full(count, 1)}
    before = write.create(Atomic, count, tensor=counts, indices=(row,), **update)
    before.name = "before"
    end = write.full(count, form.site.num_columns - 1)
    others = write.apply("floordiv", end, write.size_of(count, form.column_block))
    is_last = write.apply("eq", before, others)
    write.open_region()
    emit()
    write.effect(Yield)
    then = write.close_region()
    write.open_region()
    write.effect(Yield)
    write.effect(If, condition=is_last, then=then, otherwise=write.close_region())


LEAST_PART = 1024
"""Columns; room is made for as many parts as rows have in pieces of this width."""
MOST_PARTS = 256
"""That one program puts together."""
MOST_KEPT = 32768 * MOST_IN_GROUP
"""Columns of rows that stay in the registers of a group."""


def reduce_by_last(function: Function) -> Function | None:
    """The same with parts that the last program of some rows puts together; None if not certain.

    Before::

        grid([%zero], [%M]) {blocks=["m"]} (%b: i32[]) {
          %x = load(%rows, none, [%i1, %j1]) : f32[m, 128256]
          %s = reduce(%x) {axis=1, kind="sum"} : f32[m]
          store(%out, %s, none, [%i])
        }

    After::

        grid([%zero, %zero], [%N, %M]) {blocks=["columns", "m"]} (%c: i32[], %b: i32[]) {
          %x = load(%rows, none, [%i1, %j1]) : f32[m, columns]
          %part = reduce(%x) {axis=1, kind="sum"} : f32[m]
          store(%row_sum_parts, %part, none, [%number, %i])
          %before = atomic(%row_counts, %one, none, [%b]) {kind="add", order="acq_rel"} : i32[]
          %is_last = elementwise(%before, %others) {fn="eq"} : bool[]
          if(%is_last) {
            %parts = load(%row_sum_parts, %are_parts, [%numbers, %i1]) : f32[128, m]
            %s = reduce(%parts) {axis=0, kind="sum"} : f32[m]
            store(%out, %s, none, [%i])
          }
        }

    A loop over columns walks a part of them, from nothing on.
    """
    rows = find_whole_rows(function)
    if rows is not None:
        steps = find_last_steps(rows.plan)
        return None if steps is None else _WholeByLast(function, rows, steps).run()
    walked = find_walked_rows(function)
    return None if walked is None else _WalkedByLast(function, walked).run()


def exchange_loaded(function: Function) -> Function | None:
    """The same with tiles that stay in registers, as ``exchange_parts`` has them of products."""
    rows = find_whole_rows(function)
    if rows is None or rows.num_columns > MOST_KEPT:
        return None
    return Exchange(
        function, rows, rows.plan, room_for_parts(rows, LEAST_PART, MOST_IN_GROUP)
    ).run()


class _WholeByLast(Exchange):
    """Tiles of rows, reduced where they are; the last program of a panel goes on."""

    def __init__(self, function: Function, rows: WholeRows, steps: LastSteps) -> None:
        super().__init__(function, rows, rows.plan, room_for_parts(rows, LEAST_PART, MOST_PARTS))
        self.steps = steps

    @override
    def _write_program(self, write: TileWriter, column: Value, row: Value) -> None:
        _LastProgram(self, write, column, row).write()


class _LastProgram(TileProgram):
    """Writes both steps of one program; the second only runs in the last one."""

    def __init__(self, form: _WholeByLast, write: TileWriter, column: Value, row: Value) -> None:
        super().__init__(form, write, column, row)
        self._steps = form.steps

    @override
    def write(self) -> None:
        self._insert(self._steps.first)
        parts = self._panel_parts()
        self._leave_parts(0, parts)
        form, row = self._form, self._row
        if_last(form, self._write, form.counts, row, lambda: self._finish(parts))

    def _finish(self, parts: PanelParts) -> None:
        self._collect_parts(0, parts)
        for op in self._steps.last:
            self._write_op(op, parts)

    @override
    def _stored_once(self, op: Store) -> Operation:
        (store,) = self._copy.write((op,))
        return store


class _WalkedByLast(RowSplit):
    """Parts of rows, each walked by one program; the last of a panel goes on."""

    def __init__(self, function: Function, rows: WalkedRows) -> None:
        super().__init__(function, rows, (), {})
        self.rows = rows
        self.column_index = rows.loop.begins[0].tile
        self.lanes = room_for_parts(rows, LEAST_PART, MOST_PARTS)
        shape = (self.lanes, rows.num_rows)
        self._memory = tuple(
            self.memory(f"row_{item.kind}_parts", value.tile.dtype, shape)
            for item, value in zip(rows.accumulated, rows.loop.results)
        )
        self._counts = self.memory("row_counts", I32, (rows.num_rows,))

    @override
    def _emit(self, write: TileWriter, zero: Value, width: Value) -> None:
        rows, column = self.rows, self.new_column()
        write.open_region()
        for op in rows.first:
            write.insert(op)
        end = write.apply("add", column, write.size_of(self.column_index, self.column_block))
        sums = self._walk(write, column, write.apply("minimum", end, width))
        parts = PanelParts(write, self, column, write.tile_index(rows.row_begin, rows.row_block))
        for memory, value in zip(self._memory, sums):
            parts.leave(memory, value)
        if_last(self, write, self._counts, rows.row_begin, lambda: self._finish(write, parts))
        write.effect(Yield)
        body = write.close_region((column, rows.row_begin))
        grid, blocks = rows.grid, (self.column_block, rows.row_block)
        begins, ends = (zero, *grid.begins), (width, *grid.ends)
        write.insert(replace(grid, begins=begins, ends=ends, blocks=blocks, body=body))

    def _walk(self, write: TileWriter, begin: Value, end: Value) -> list[Value]:
        """The loop over a part, from nothing on, and the numbers of each row that it makes.

        Lanes are accumulated, and meet once after it.
        """
        loop, items = self.rows.loop, self.rows.accumulated
        tiles = [item.inner.x if item.inner else v for item, v in zip(items, loop.results)]
        identities = [
            ReduceKind(item.kind).identity(tile.tile.dtype) for item, tile in zip(items, tiles)
        ]
        init = [write.full(tile.tile, x) for tile, x in zip(tiles, identities)]
        args = [v.like(tile.type) for v, tile in zip(loop.carried, tiles)]
        write.open_region()
        dropped = {op for item in items for op in (item.inner, item.update)}
        for op in loop.body.ops[:-1]:
            if op not in dropped:
                write.insert(op)
        changed = dict(zip(loop.carried, args))
        changed |= {i.inner.result: i.inner.x for i in items if i.inner is not None}
        updates = [[changed.get(arg, arg) for arg in item.update.args] for item in items]
        values = [write.apply(item.update.fn, *args) for item, args in zip(items, updates)]
        write.effect(Yield, values=tuple(values))
        body = write.close_region((*loop.body.args[: loop.rank], *args))
        results = tuple(v.like(tile.type) for v, tile in zip(loop.results, tiles))
        changes = {"init": tuple(init), "body": body, "results": results}
        write.insert(replace(loop, begins=(begin,), ends=(end,), **changes))
        return [
            value if reduction is None else write.reduce(value, reduction.axis, item.kind)
            for item, value in zip(items, results)
            for reduction in (item.inner or item.outer,)
        ]

    def _finish(self, write: TileWriter, parts: PanelParts) -> None:
        loop, whole = self.rows.loop, dict[Value, Value]()
        for i, item in enumerate(self.rows.accumulated):
            total = parts.together(item.kind, parts.collect(self._memory[i]))
            if item.outer is None:
                whole[loop.results[i]] = write.apply(item.update.fn, loop.init[i], total)
            else:
                whole[item.outer.result] = total
        copy = CopiedOps(whole, lambda value: value.type, lambda op: op)
        for op in copy.write(self.rows.last):
            write.insert(op)

    @override
    def _new_blocks(self, slot: int) -> tuple[Block, ...]:
        length = self.rows.num_columns
        return (Block(self.column_block, slot=slot, extent=length, low=-(-length // self.lanes)),)

    @override
    def _made(self, device: str) -> tuple[Parameter, ...]:
        parts = (made_at_launch(memory, "empty", device) for memory in self._memory)
        return (*parts, made_at_launch(self._counts, "zeros", device))
