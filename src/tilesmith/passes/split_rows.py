"""Runs a product whose rows are reduced in two steps: tiles of columns, then whole rows.

A function after the standard passes goes in; what comes out computes the same through a scratch
tensor: all programs one step and then the other, with a barrier between them; or each program both
on a panel of rows; or each a tile of a panel, and who is last there reduces the panel. Nothing
comes out where that is not certain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import Enum

from typing_extensions import override

from tilesmith.analysis.row_products import RowProduct, find_row_product
from tilesmith.dtypes import BOOL, I32, DType
from tilesmith.interpreter.torch_dtypes import to_torch
from tilesmith.ir.builder import Builder
from tilesmith.ir.function import Block, Function, Parameter
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import GridBarrier, If, Loop, Yield
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Arange, BlockSize, Full, TileIndex
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.ops.shape import ExpandDims
from tilesmith.ir.traversal import walk
from tilesmith.ir.types import ONE, Dim, TensorType, TileType, Type, scalar
from tilesmith.ir.values import Value
from tilesmith.passes.copied_ops import CopiedOps
from tilesmith.passes.hoist_loop_invariants import hoist_loop_invariants
from tilesmith.passes.mask_partial_tiles import mask_partial_tiles
from tilesmith.passes.merge_common_subexpressions import merge_common_subexpressions
from tilesmith.passes.number_slots import number_slots
from tilesmith.passes.order_memory import order_memory


class Form(Enum):
    """Who reduces the rows of a product, and when."""

    PHASES = "phases"
    """All programs, when all have multiplied."""
    PANELS = "panels"
    """The program that multiplied them."""
    LAST = "last"
    """Of the programs that multiplied a panel's tiles, the last."""


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

    By panels, after::

        grid([%zero], [%M]) {blocks=["m"]} (%b: i32[]) {
          loop([%zero], [%N], [], []) {blocks=["columns"]} (%c: i32[]) { store(%row_scratch ... }
          loop([%b], [%end], [], []) {blocks=["rows"]} (%r: i32[]) { load(%row_scratch ... }
        }

    By the last, after::

        grid([%zero, %zero], [%M, %N]) {blocks=["m", "columns"]} (%b: i32[], %c: i32[]) {
          ... store(%row_scratch ...
          %before = atomic(%row_counts, %one, none, [%b]) {kind="add", order="acq_rel"} : i32[]
          %is_last = elementwise(%before, %tiles) {fn="eq"} : bool[]
          if(%is_last) { loop([%b], [%end], [], []) {blocks=["rows"]} (%r: i32[]) { ... } }
        }

    Blocks that were there keep their slots; those of columns and rows come after them.
    """
    site = find_row_product(function)
    if site is None:
        return None
    split = _SPLITS[form](function, site).run()
    # The accumulator is loaded now, and what its invalid lanes hold has changed with that.
    masked = merge_common_subexpressions(mask_partial_tiles(split))
    return number_slots(order_memory(hoist_loop_invariants(masked)))


class _Split:
    """Writes the two steps of one function; classes below say where the second one stands."""

    def __init__(self, function: Function, site: RowProduct) -> None:
        self._function = function
        self._site = site
        self._columns = site.columns
        symbols = (*function.blocks, *function.sizes)
        taken = {item.name for item in symbols} | {p.value.name for p in function.parameters}
        self._taken = taken
        self._column_block = _fresh("columns", taken)
        self._row_block = _fresh("rows", taken)
        shape = (site.num_rows, site.num_columns)
        is_wide = shape[0] * shape[1] > I32.highest
        memory = TensorType(site.acc.tile.dtype, shape, (shape[1], 1), alias=-1, wide=is_wide)
        self._scratch = Value(memory, _fresh("row_scratch", taken), site.loop.loc)
        self._row_index = site.row_begin.tile
        self._column_index = self._find_column_index()

    def run(self) -> Function:
        loc = self._site.loop.loc
        builder = Builder(lambda: loc)
        for op in self._function.body.ops[:-1]:
            builder.insert(op)
        zero = builder.create(Full, self._column_index, value=0)
        width = builder.create(Full, self._column_index, value=self._site.num_columns)
        self._emit(builder, zero, width)
        return replace(
            self._function,
            parameters=self._parameters(),
            blocks=self._blocks(),
            body=builder.close_region(self._function.body.args),
        )

    def _emit(self, builder: Builder, zero: Value, width: Value) -> None:
        """Both steps; columns go from zero to width."""
        raise NotImplementedError

    def _emit_products(self, builder: Builder, zero: Value, width: Value) -> None:
        """A grid of tiles of rows and columns."""
        site = self._site
        row = site.row_begin.like()
        region = self._products(builder, row)
        builder.insert(
            replace(
                site.grid,
                begins=(*site.grid.begins, zero),
                ends=(*site.grid.ends, width),
                blocks=(site.row_block, self._column_block),
                body=replace(region, args=(row, *region.args)),
            )
        )

    def _emit_panel_rows(self, builder: Builder, row: Value) -> None:
        """The second step for the rows of a tile that begins at one."""
        site, kind = self._site, self._row_index
        size = builder.create(BlockSize, kind, block=site.row_block)
        end = builder.create(Elementwise, kind, args=(row, size), fn="add")
        last = builder.create(Elementwise, kind, args=(end, site.grid.ends[0]), fn="minimum")
        self._loop(builder, self._row_block, (row, last), self._rows(builder))

    def _finish(self, builder: Builder, row: Value) -> None:
        """What a program does after it has stored a tile."""

    def _loop(
        self, builder: Builder, block: str, bounds: tuple[Value, Value], body: Region
    ) -> None:
        begin, end = bounds
        loop = Loop(
            begins=(begin,),
            ends=(end,),
            steps=(),
            init=(),
            blocks=(block,),
            body=body,
            loc=self._site.loop.loc,
        )
        builder.insert(loop)

    def _products(self, builder: Builder, row: Value) -> Region:
        """The loop over one tile of rows and columns, its result stored; of the first column."""
        site = self._site
        column = Value(self._column_index, f"{self._column_block}_begin", site.loop.loc)
        builder.open_region()
        begins = {
            op.result.tile.dtype: self._as(builder, column, op.result.tile.dtype)
            for op in self._column_indices()
        }

        def adapt(op: Operation) -> Operation:
            if not isinstance(op, Arange) or op.result not in self._columns:
                return op
            begin = begins[op.result.tile.dtype]
            return TileIndex(begin=begin, block=self._column_block, results=op.results, loc=op.loc)

        copy = CopiedOps({site.row_begin: row}, self._in_columns, adapt)
        for op in copy.write((*site.before, site.loop)):
            builder.insert(op)
        place = self._place(
            builder,
            self._tile_index(builder, row, site.row_block),
            self._tile_index(builder, column, self._column_block),
        )
        builder.effect(Store, tensor=self._scratch, value=copy.values[site.acc], indices=place)
        self._finish(builder, row)
        builder.effect(Yield)
        return builder.close_region((column,))

    def _rows(self, builder: Builder) -> Region:
        """The accumulator loaded, and what came after the loop; of the first row."""
        site = self._site
        row = Value(self._row_index, f"{self._row_block}_begin", site.row_begin.loc)
        builder.open_region()
        line = self._column_index.with_shape((site.acc.tile.shape[1],))
        place = self._place(
            builder,
            self._tile_index(builder, row, self._row_block),
            builder.create(Arange, line),
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
        if isinstance(op, TileIndex) and op.block == self._site.row_block:
            return replace(op, block=self._row_block)
        return op

    def _find_column_index(self) -> TileType:
        """Slices may be indexed by other integers than tiles are."""
        used = [op.result.tile.dtype for op in self._column_indices()]
        return scalar(max(used, key=lambda dtype: dtype.bits, default=self._row_index.dtype))

    def _column_indices(self) -> Iterator[Arange]:
        for op in walk(Region((), (*self._site.before, self._site.loop))):
            if isinstance(op, Arange) and op.result in self._columns:
                yield op

    def _in_columns(self, value: Value) -> Type:
        if value not in self._columns:
            return value.type
        shape = list(value.tile.shape)
        shape[self._columns[value]] = Dim.of(self._column_block)
        return value.tile.with_shape(tuple(shape))

    def _in_rows(self, value: Value) -> Type:
        new = {self._site.row_block: Dim.of(self._row_block)}
        return value.tile.with_shape(tuple(dim.substitute(new) for dim in value.tile.shape))

    def _as(self, builder: Builder, begin: Value, dtype: DType) -> Value:
        target = scalar(dtype)
        return begin if begin.type == target else builder.create(Cast, target, x=begin)

    def _tile_index(self, builder: Builder, begin: Value, block: str) -> Value:
        line = begin.tile.with_shape((Dim.of(block),))
        return builder.create(TileIndex, line, begin=begin, block=block)

    def _place(self, builder: Builder, rows: Value, columns: Value) -> tuple[Value, Value]:
        """Indices of a tile of the scratch tensor."""
        column = rows.tile.with_shape((*rows.tile.shape, ONE))
        line = columns.tile.with_shape((ONE, *columns.tile.shape))
        return (
            builder.create(ExpandDims, column, x=rows, axes=(1,)),
            builder.create(ExpandDims, line, x=columns, axes=(0,)),
        )

    def _blocks(self) -> tuple[Block, ...]:
        old = self._function.blocks
        slot = max((block.slot for block in old if block.slot is not None), default=-1) + 1
        columns = Block(self._column_block, slot=slot, extent=self._site.num_columns)
        rows = Block(self._row_block, slot=slot + 1, extent=self._row_extent)
        return (*old, columns, rows)

    def _parameters(self) -> tuple[Parameter, ...]:
        old = self._function.parameters
        tensors = [i for i, p in enumerate(old) if isinstance(p.value.type, TensorType)]
        dtype, shape = to_torch(self._scratch.tensor.dtype), self._scratch.tensor.shape
        device = f"{old[tensors[0]].source}.device"
        made = Parameter(self._scratch, f"torch.empty({shape}, dtype={dtype}, device={device})")
        end = tensors[-1] + 1
        return (*old[:end], made, *self._more_parameters(device), *old[end:])

    def _more_parameters(self, device: str) -> tuple[Parameter, ...]:
        """Besides scratch memory."""
        return ()

    @property
    def _row_extent(self) -> int | None:
        """How far the second step's rows range; in a panel, as far as the panel's."""
        return None


class _InPhases(_Split):
    """All programs multiply, then all reduce."""

    @override
    def _emit(self, builder: Builder, zero: Value, width: Value) -> None:
        self._emit_products(builder, zero, width)
        builder.effect(GridBarrier)
        grid = self._site.grid
        builder.insert(replace(grid, blocks=(self._row_block,), body=self._rows(builder)))

    @property
    @override
    def _row_extent(self) -> int | None:
        return self._site.num_rows


class _InPanels(_Split):
    """A grid over panels of rows: a loop over their columns, and one over their rows."""

    @override
    def _emit(self, builder: Builder, zero: Value, width: Value) -> None:
        row = self._site.row_begin.like()
        builder.open_region()
        products = self._products(builder, row)
        self._loop(builder, self._column_block, (zero, width), products)
        self._emit_panel_rows(builder, row)
        builder.effect(Yield)
        builder.insert(replace(self._site.grid, body=builder.close_region((row,))))


class _ByLast(_Split):
    """A grid over tiles; programs of a panel count themselves, and the last one reduces it."""

    def __init__(self, function: Function, site: RowProduct) -> None:
        super().__init__(function, site)
        memory = TensorType(I32, (site.num_rows,), (1,), alias=-1)
        self._counts = Value(memory, _fresh("row_counts", self._taken), site.loop.loc)

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
        end = builder.create(Full, count, value=self._site.num_columns - 1)
        size = builder.create(BlockSize, count, block=self._column_block)
        others = builder.create(Elementwise, count, args=(end, size), fn="floordiv")
        is_last = builder.create(Elementwise, scalar(BOOL), args=(before, others), fn="eq")
        builder.open_region()
        self._emit_panel_rows(builder, row)
        builder.effect(Yield)
        then = builder.close_region()
        builder.open_region()
        builder.effect(Yield)
        builder.effect(If, condition=is_last, then=then, otherwise=builder.close_region())

    @override
    def _more_parameters(self, device: str) -> tuple[Parameter, ...]:
        shape = self._counts.tensor.shape
        source = f"torch.zeros({shape}, dtype=torch.int32, device={device})"
        return (Parameter(self._counts, source),)


_SPLITS = {Form.PHASES: _InPhases, Form.PANELS: _InPanels, Form.LAST: _ByLast}


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name
