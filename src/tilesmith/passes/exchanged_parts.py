"""Keeps a product's tiles in registers while their rows are reduced by several programs together.

Each program multiplies one tile and reduces it. It leaves its parts of the rows' sums in memory,
waits for the programs of the same rows to do so, and puts all parts together; then it goes on with
its tile. The product itself never goes to memory. ``parts`` are lines of one number for each row of
a panel; ``all_parts`` have one line for each tile of the panel, and more lanes where a smaller tile
would need them, which hold nothing.
"""

from __future__ import annotations

from dataclasses import replace

from typing_extensions import override

from tilesmith.analysis.row_exchange import DerivedReduction, SumForm
from tilesmith.analysis.row_products import RowProduct, RowSite
from tilesmith.analysis.shared_rows.stages import RowExchange, plan_exchange_stages
from tilesmith.dtypes import I32, DType
from tilesmith.ir.function import Block, Function, Parameter
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import MOST_IN_GROUP, GroupBarrier, Yield
from tilesmith.ir.ops.indexing import Arange
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.ir.ops.reduction import Reduce, ReduceKind
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.types import Dim, Shape, TileType, Value
from tilesmith.passes.row_split import CopiedOps, RowSplit, made_at_launch

LEAST_PARTS = 4
LEAST_TILE, LEAST_TILE_OF_WORDS = 128, 64
"""Columns; room is made for as many parts as tiles of this width have.

Words are seldom multiplied by matrix units, and without these narrow tiles cost little.
"""
MOST_COLUMNS = 8192


def exchange_parts(function: Function, site: RowProduct) -> Function | None:
    """The same computation with tiles that stay in registers; None where that is not certain.

    After::

        grid([%zero, %zero], [%N, %M]) {blocks=["columns", "m"]} (%c: i32[], %b: i32[]) {
          %acc = loop([%zero], [%K], [], [%init]) {blocks=["k"]} : f32[m, columns] ...
          %part = reduce(%acc) {axis=1, kind="sum"} : f32[m]
          store(%row_sum_parts, %part, none, [%number, %i])
          group_barrier(%row_counts, %b, %num_parts)
          %parts = load(%row_sum_parts, %are_parts, [%numbers, %i1]) : f32[16, m]
          %s = reduce(%parts) {axis=0, kind="sum"} : f32[m]
          ...
        }

    Programs of a row are neighbours in the order of the grid, which its schedule must keep.
    """
    plan = plan_exchange_stages(site)
    if plan is None or site.num_columns > MOST_COLUMNS:
        return None
    is_wide = site.dot.lhs.tile.dtype.itemsize > 2
    least = LEAST_TILE_OF_WORDS if is_wide else LEAST_TILE
    return Exchange(function, site, plan, room_for_parts(site, least, MOST_IN_GROUP)).run()


def room_for_parts(site: RowSite, least_tile: int, most: int) -> int:
    """The most tiles of a row, a power of two."""
    tiles = -(-site.num_columns // least_tile)
    return min(max(LEAST_PARTS, 1 << (tiles - 1).bit_length()), most)


class Exchange(RowSplit):
    """A grid over tiles, those of a row side by side; ``lanes`` is the room for their parts."""

    def __init__(self, function: Function, site: RowSite, plan: RowExchange, lanes: int) -> None:
        ops = (*plan.before, *(op for stage in plan.stages for op in stage))
        super().__init__(function, site, ops, plan.columns)
        self.plan = plan
        self.lanes = lanes
        kinds = {op: op.kind for stage in plan.exchanged for op in stage}
        kinds |= {op: derived.rule.value for op, derived in plan.derived.items()}
        shape = (self.lanes, site.num_rows)
        self.parts_of = {
            op: self.memory(f"row_{kind}_parts", op.result.tile.dtype, shape)
            for op, kind in kinds.items()
        }
        # One for each row that a panel may begin with, and one to number programs.
        self.counts = self.memory("row_counts", I32, (site.num_rows + 1,))

    @override
    def _emit(self, write: TileWriter, zero: Value, width: Value) -> None:
        grid = self.site.grid
        column, row = self.new_column(), self.site.row_begin.like()
        write.open_region()
        self._write_program(write, column, row)
        write.effect(Yield)
        body = write.close_region((column, row))
        begins, ends = (zero, *grid.begins), (width, *grid.ends)
        blocks = (self.column_block, self.site.row_block)
        write.insert(replace(grid, begins=begins, ends=ends, blocks=blocks, body=body))

    def _write_program(self, write: TileWriter, column: Value, row: Value) -> None:
        TileProgram(self, write, column, row).write()

    @override
    def _new_blocks(self, slot: int) -> tuple[Block, ...]:
        length = self.site.num_columns
        low = -(-length // self.lanes)  # with smaller tiles there is no room for all parts of a row
        return (Block(self.column_block, slot=slot, extent=length, low=low),)

    @override
    def _made(self, device: str) -> tuple[Parameter, ...]:
        parts = (made_at_launch(memory, "empty", device) for memory in self.parts_of.values())
        return (*parts, made_at_launch(self.counts, "zeros", device))


class TileProgram:
    """Writes the body of the grid: what one program does with its tile."""

    def __init__(self, form: Exchange, write: TileWriter, column: Value, row: Value) -> None:
        self._form = form
        self._plan = form.plan
        self._column = column
        self._row = row
        self._copy: CopiedOps = form.copy_columns(write, row, column)
        self._write = write
        self._all_parts: dict[Reduce, Value] = {}

    def write(self) -> None:
        """All stages, with an exchange between two."""
        self._insert(self._plan.before)
        parts = self._panel_parts()
        for number, stage in enumerate(self._plan.stages):
            for op in stage:
                self._write_op(op, parts)
            if number < len(self._plan.exchanged):
                self._exchange_sums(number, parts)

    def _panel_parts(self) -> PanelParts:
        rows = self._write.tile_index(self._row, self._form.site.row_block)
        return PanelParts(self._write, self._form, self._column, rows)

    def _insert(self, ops: tuple[Operation, ...]) -> None:
        for op in self._copy.write(ops):
            self._write.insert(op)

    def _write_op(self, op: Operation, parts: PanelParts) -> None:
        derived = self._plan.derived.get(op) if isinstance(op, Reduce) else None
        if derived is not None:
            anchor = self._copy.values[derived.anchor]
            mine, bases = self._all_parts[derived.op], self._all_parts[derived.base]
            total = parts.together_around(derived, mine, bases, anchor)
            self._copy.values[derived.op.result] = total
        elif isinstance(op, Store) and op.value not in self._plan.columns:
            self._write.insert(self._stored_once(op))
        else:
            self._insert((op,))

    def _stored_once(self, op: Store) -> Operation:
        """What all programs of a row know is stored by the first of them."""
        (store,) = self._copy.write((op,))
        assert isinstance(store, Store)
        zero = self._write.full(self._column.tile, 0)
        is_first = self._write.apply("eq", self._column, zero)
        shape = store.value.tile.shape
        mask = self._write.spread(is_first, 0, shape) if shape else is_first
        if store.mask is not None:
            mask = self._write.apply("and", mask, store.mask)
        return replace(store, mask=mask)

    def _exchange_sums(self, number: int, parts: PanelParts) -> None:
        """Exchange the parts of one stage's reductions; their results are then of whole rows."""
        self._leave_parts(number, parts)
        self._wait(number, parts.num_parts)
        self._collect_parts(number, parts)

    def _derived(self, number: int) -> list[DerivedReduction]:
        direct = self._plan.exchanged[number]
        return [item for item in self._plan.derived.values() if item.base in direct]

    def _leave_parts(self, number: int, parts: PanelParts) -> None:
        values, memory = self._copy.values, self._form.parts_of
        for op in self._plan.exchanged[number]:
            parts.leave(memory[op], values[op.result])
        for item in self._derived(number):
            part = parts.of_tile(item, values[item.x], values[item.base.result])
            parts.leave(memory[item.op], part)

    def _collect_parts(self, number: int, parts: PanelParts) -> None:
        direct = self._plan.exchanged[number]
        for op in (*direct, *(item.op for item in self._derived(number))):
            self._all_parts[op] = parts.collect(self._form.parts_of[op])
        for op in direct:
            self._copy.values[op.result] = parts.together(op.kind, self._all_parts[op])

    def _wait(self, number: int, num_parts: Value) -> None:
        write, counts, arrivals = self._write, self._form.counts, num_parts
        if number:
            arrivals = write.apply("mul", num_parts, write.full(num_parts.tile, number + 1))
        self._write.effect(GroupBarrier, counts=counts, place=self._row, arrivals=arrivals)


class PanelParts:
    """Writes what becomes of the parts in the program of one tile, by its rows and first column."""

    def __init__(self, write: TileWriter, form: RowSplit, column: Value, rows: Value) -> None:
        self._write = write
        self._column = column
        self._rows = rows
        self._length = form.site.num_columns
        self._line: Shape = (Dim.of(form.lanes),)
        self._shape = (*self._line, *rows.tile.shape)
        """Of all parts."""
        kind = column.tile
        self._size = write.size_of(kind, form.column_block)
        self._number = write.apply("floordiv", column, self._size)
        self._number.name = "part"
        last = write.apply("floordiv", write.full(kind, self._length - 1), self._size)
        self.num_parts = write.apply("add", last, write.full(kind, 1))
        self.num_parts.name = "num_parts"

    def of_tile(self, derived: DerivedReduction, x: Value, base: Value) -> Value:
        """The tile's part of a derived sum, around the tile's own anchor."""
        write, axis = self._write, derived.op.axis
        is_squares = derived.rule is SumForm.SQUARES
        if is_squares:
            end = write.full(self._column.tile, self._length)
            columns = write.apply("minimum", write.apply("sub", end, self._column), self._size)
            count = write.cast(columns, base.tile.dtype)
            anchor = write.apply("div", base, write.spread(count, 0, base.tile.shape))
        else:
            # An anchor must be a number; a part of nothing but -inf has no power to shift.
            zero = write.full(base.tile, 0.0)
            anchor = write.apply("where", write.apply("isinf", base), zero, base)
        off = write.apply("sub", x, write.spread(anchor, axis, x.tile.shape))
        terms = write.apply("mul", off, off) if is_squares else write.apply(derived.fn, off)
        return write.reduce(terms, axis, "sum")

    def leave(self, memory: Value, part: Value) -> None:
        """Store a part where the other programs look for it."""
        indices = (self._number, self._rows)
        self._write.effect(Store, tensor=memory, value=part, indices=indices)

    def collect(self, memory: Value) -> Value:
        """All programs' parts; lanes of none hold 0."""
        indices = self._write.place(self._numbers(), self._rows)
        kind, mask = TileType(memory.tensor.dtype, self._shape), self._are_parts()
        return self._write.create(Load, kind, tensor=memory, mask=mask, indices=indices)

    def together(self, kind: str, all_parts: Value) -> Value:
        """The reduction of whole rows."""
        identity = ReduceKind(kind).identity(all_parts.tile.dtype)
        return self._write.reduce(self._held(all_parts, identity), 0, kind)

    def together_around(
        self, derived: DerivedReduction, all_parts: Value, bases: Value, anchor: Value
    ) -> Value:
        """The derived sum of whole rows; of ``bases`` all parts, of the anchor that of the row."""
        write = self._write
        anchors = write.spread(write.line(anchor, self._rows.tile.shape), 0, self._shape)
        if derived.rule is SumForm.SQUARES:
            counts, shares = self._counts(bases.tile.dtype)
            off = write.apply("sub", write.apply("mul", bases, shares), anchors)
            moved = write.apply("mul", counts, write.apply("mul", off, off))
            sums = write.apply("add", all_parts, moved)
        else:
            shift = write.apply(derived.fn, write.apply("sub", bases, anchors))
            sums = write.apply("mul", all_parts, shift)
        return write.reduce(self._held(sums, 0.0), 0, "sum")

    def _numbers(self) -> Value:
        return self._write.create(Arange, self._number.tile.with_shape(self._line))

    def _are_parts(self) -> Value:
        write, numbers = self._write, self._numbers()
        are_parts = write.apply("lt", numbers, write.spread(self.num_parts, 0, self._line))
        are_parts.name = "are_parts"
        return write.spread(are_parts, 1, self._shape)

    def _held(self, values: Value, otherwise: float) -> Value:
        """The values of parts, and in other lanes what leaves a reduction as it is."""
        write = self._write
        return write.apply("where", self._are_parts(), values, write.full(values.tile, otherwise))

    def _counts(self, dtype: DType) -> tuple[Value, Value]:
        """How many columns each tile of the panel has, and 1 divided by that.

        At least 1, for lanes of none too. One division for a tile, and none for each of its rows.
        """
        write, numbers = self._write, self._numbers()
        size = write.spread(self._size, 0, self._line)
        end = write.full(numbers.tile, self._length)
        rest = write.apply("sub", end, write.apply("mul", numbers, size))
        some = write.apply("maximum", write.apply("minimum", rest, size), write.full(end.tile, 1))
        count = write.cast(some, dtype)
        share = write.apply("div", write.full(count.tile, 1.0), count)
        return write.spread(count, 1, self._shape), write.spread(share, 1, self._shape)
