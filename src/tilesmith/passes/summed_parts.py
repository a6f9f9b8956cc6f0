"""Splits the sum of a product over several programs, where a grid has few tiles.

Each program multiplies a part of the sum and leaves its tile in memory. Who is last at a tile adds
the parts, in the order of their numbers, and does what is left: results are the same bits in every
call, and nobody waits for anybody.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tilesmith.analysis.summed_products import (
    LEAST_SIDE,
    SummedProduct,
    find_summed_product,
)
from tilesmith.dtypes import F32, I32, DType
from tilesmith.ir.function import Block, Function
from tilesmith.ir.operation import Region
from tilesmith.ir.ops.control_flow import Grid, If, Loop, Yield
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.types import TensorType, Value, scalar
from tilesmith.passes.row_split import CopiedOps, made_at_launch

MOST_PARTS, MOST_OF_SEVERAL = 32, 16
"""That one program adds up, and that memory is taken for: of a loop alone, of one of several."""


def sum_in_parts(function: Function) -> Function | None:
    """The same with parts of the sum in programs of their own; None where that is not certain.

    Before::

        grid([%zero, %zero], [%M, %N]) {blocks=["m", "n"]} (%i: i32[], %j: i32[]) {
          %acc = loop([%zero], [%K], [], [%nothing]) {blocks=["k"]} : f32[m, n] ...
          store(%out, %acc, none, [%i1, %j1])
        }

    After::

        grid([%zero, %zero, %zero], [%K, %M, %N]) {blocks=["parts", "m", "n"]} (%b, %i, %j) {
          %part = loop([%b], [%end], [], [%nothing]) {blocks=["k"]} : f32[m, n] ...
          store(%sum_parts, %part, none, [%number, %i1, %j1])
          %before = atomic(%sum_counts, %one, none, [%tile]) {kind="add", order="acq_rel"} : i32[]
          if(%is_last) {
            %acc = loop([%zero], [%count], [], [%nothing]) {blocks=[""]} : f32[m, n] ...
            store(%out, %acc, none, [%i1, %j1])
          }
        }
    """
    site = find_summed_product(function)
    return None if site is None else _InParts(function, site).run()


class _InParts:
    """Writes one function whose sums are split."""

    def __init__(self, function: Function, site: SummedProduct) -> None:
        self._function, self._site = function, site
        taken = {item.name for item in (*function.blocks, *function.sizes)}
        self._taken = taken | {parameter.value.name for parameter in function.parameters}
        self._block = self._fresh("parts")
        is_alone = sum(isinstance(op, Grid) for op in function.body.ops) == 1
        self._most = min(MOST_PARTS if is_alone else MOST_OF_SEVERAL, site.length)
        rows, columns = site.sides
        fixed = {block.name: block.fixed for block in function.blocks}
        # Blocks that the source fixes may be smaller than any that a config may choose.
        least = [fixed[name] or LEAST_SIDE for name in site.grid.blocks]
        tiles = [n if n < LEAST_SIDE else -(-n // size) for n, size in zip(site.sides, least)]
        self._parts = self._memory("sum_parts", F32, (self._most, rows, columns))
        self._counts = self._memory("sum_counts", I32, (prod(tiles),))

    def run(self) -> Function:
        write = TileWriter(lambda: self._site.loop.loc)
        ops = [op for op in self._function.body.ops if op is not self._site.grid]
        for op in (op for op in ops if not isinstance(op, Grid)):
            write.insert(op)
        # First of all: while the last program of a tile adds, others are busy with other loops.
        write.insert(self._grid(write))
        for op in (op for op in ops if isinstance(op, Grid)):
            write.insert(op)
        old = self._function.parameters
        tensors = [i for i, p in enumerate(old) if isinstance(p.value.type, TensorType)]
        device, end = f"{old[tensors[0]].source}.device", tensors[-1] + 1
        made = [(self._parts, "empty"), (self._counts, "zeros")]
        added = [made_at_launch(value, maker, device) for value, maker in made]
        return replace(
            self._function,
            parameters=(*old[:end], *added, *old[end:]),
            blocks=self._blocks(),
            body=write.close_region(self._function.body.args),
        )

    def _grid(self, write: TileWriter) -> Grid:
        site, index = self._site, self._site.loop.body.args[0].tile
        zero, length = write.full(index, 0), write.full(index, site.length)
        part = Value(index, f"{self._block}_begin", site.loop.loc)
        body = self._body(write, part, length)
        begins, ends = (zero, *site.grid.begins), (length, *site.grid.ends)
        blocks = (self._block, *site.grid.blocks)
        return replace(site.grid, begins=begins, ends=ends, blocks=blocks, body=body)

    def _blocks(self) -> tuple[Block, ...]:
        old, site = self._function.blocks, self._site
        least = dict(zip(site.grid.blocks, (min(LEAST_SIDE, n) for n in site.sides)))
        least = {name: size for name, size in least.items() if size == LEAST_SIDE}
        kept = [replace(b, low=max(b.low, least.get(b.name, 1))) for b in old]
        slot = max((b.slot for b in old if b.slot is not None), default=-1) + 1
        tile = next(b.fixed or 1 for b in old if b.name == site.loop.blocks[0])
        # Tiles whose size the source names begin where they do without parts.
        low = max(-(-site.length // self._most), tile)
        return (*kept, Block(self._block, slot=slot, extent=site.length, low=low))

    def _fresh(self, name: str) -> str:
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name

    def _memory(self, name: str, dtype: DType, shape: tuple[int, ...]) -> Value:
        strides = tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))
        kind = TensorType(dtype, shape, strides, alias=-1, wide=prod(shape) > I32.highest)
        return Value(kind, self._fresh(name), self._site.loop.loc)

    def _body(self, write: TileWriter, part: Value, length: Value) -> Region:
        site, loop = self._site, self._site.loop
        write.open_region()
        for op in site.before:
            write.insert(op)
        size = write.size_of(part.tile, self._block)
        end = write.apply("minimum", write.apply("add", part, size), length)
        sums = loop.results[0].like()
        write.insert(replace(loop, begins=(part,), ends=(end,), results=(sums,)))
        number = write.apply("floordiv", part, size)
        place = self._place(write)
        write.effect(Store, tensor=self._parts, value=sums, indices=(number, *place))
        last = write.apply("floordiv", write.full(part.tile, site.length - 1), size)
        self._if_last(write, last)
        write.effect(Yield)
        return write.close_region((part, *site.grid.body.args))

    def _place(self, write: TileWriter) -> tuple[Value, Value]:
        args, blocks = self._site.grid.body.args, self._site.grid.blocks
        rows, columns = (write.tile_index(arg, block) for arg, block in zip(args, blocks))
        return write.place(rows, columns)

    def _tile_number(self, write: TileWriter) -> Value:
        """Which tile of the result a program works on."""
        (row, column), (rows, columns) = self._site.grid.body.args, self._site.grid.blocks
        end = write.full(column.tile, self._site.sides[1] - 1)
        across = write.size_of(column.tile, columns)
        count = write.apply("add", write.apply("floordiv", end, across), write.full(end.tile, 1))
        down = write.apply("floordiv", row, write.size_of(row.tile, rows))
        down = write.cast(down, column.tile.dtype)
        return write.apply(
            "add", write.apply("mul", down, count), write.apply("floordiv", column, across)
        )

    def _if_last(self, write: TileWriter, last: Value) -> None:
        """What the last of a tile's programs does: the sum of all parts, and what follows."""
        count = scalar(I32)
        update = {"kind": "add", "order": "acq_rel", "value": write.full(count, 1)}
        tile = self._tile_number(write)
        before = write.create(Atomic, count, tensor=self._counts, indices=(tile,), **update)
        before.name = "before"
        is_last = write.apply("eq", before, write.cast(last, I32))
        write.open_region()
        total = self._add_up(write, last)
        copy = CopiedOps({self._site.loop.results[0]: total}, lambda v: v.type, lambda op: op)
        for op in copy.write(self._site.after):
            write.insert(op)
        write.effect(Yield)
        then = write.close_region()
        write.open_region()
        write.effect(Yield)
        write.effect(If, condition=is_last, then=then, otherwise=write.close_region())

    def _add_up(self, write: TileWriter, last: Value) -> Value:
        kind = self._site.loop.results[0].tile
        begin, end = write.full(last.tile, 0), write.apply("add", last, write.full(last.tile, 1))
        start, number = write.full(kind, 0.0), Value(last.tile, "part", self._site.loop.loc)
        total = Value(kind, "total", self._site.loop.loc)
        write.open_region()
        loaded = write.create(Load, kind, tensor=self._parts, indices=(number, *self._place(write)))
        write.effect(Yield, values=(write.apply("add", total, loaded),))
        body = write.close_region((number, total))
        result = total.like()
        write.insert(
            Loop(
                begins=(begin,),
                ends=(end,),
                steps=(write.full(last.tile, 1),),
                init=(start,),
                blocks=("",),
                body=body,
                results=(result,),
                loc=self._site.loop.loc,
            )
        )
        return result
