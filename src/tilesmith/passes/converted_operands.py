"""Computes an operand of a product once, in a launch of its own, before the product.

A function after the standard passes goes in. What comes out multiplies by a scratch matrix; its
``before`` is the function that fills that matrix. Nothing comes out where that is not certain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import TypeVar

from tilesmith.analysis.converted_operands import ConvertedOperand, find_converted_operand
from tilesmith.analysis.row_products import needed_by
from tilesmith.dtypes import I32
from tilesmith.ir.function import Block, Function, Parameter
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Grid, Yield
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import Arange, BlockSize, Full, TileIndex
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.traversal import definitions, values_used_by
from tilesmith.ir.types import Dim, TensorType, TileType, Type, Value
from tilesmith.passes.row_split import CopiedOps, made_at_launch

Item = TypeVar("Item")


def convert_ahead(function: Function) -> Function | None:
    """The product of a matrix that is converted before; None where that is not certain.

    Before::

        grid([%zero, %zero], [%M, %N]) {blocks=["m", "n"]} (%i: i32[], %j: i32[]) {
          %acc = loop([%zero], [%K], [], [%init]) {blocks=["k"]} (%b: i32[], %sum: f32[m, n]) {
            %w = load(%weights, none, [%b1, %j1]) : i8[k, n]
            %y = cast(%w) : bf16[k, n]
            %new = dot(%x, %y, %sum) : f32[m, n] ...

    After, behind ``grid([%zero, %zero], [%K, %N])`` that stores what the cast gives::

            %y = load(%converted, none, [%b1, %j1]) : bf16[k, n]
            %new = dot(%x, %y, %sum) : f32[m, n] ...

    A loop whose steps give several elements along the sum each goes over the elements instead.
    """
    site = find_converted_operand(function)
    return None if site is None else _Ahead(function, site).run()


def _has_known_sizes(parameter: Parameter) -> bool:
    kind = parameter.value.type
    sizes = (*kind.shape, *kind.strides) if isinstance(kind, TensorType) else ()
    return all(isinstance(size, int) for size in sizes)


class _Ahead:
    """Writes both functions of one site."""

    def __init__(self, function: Function, site: ConvertedOperand) -> None:
        self._function, self._site = function, site
        symbols = (*function.blocks, *function.sizes)
        self._taken = {item.name for item in symbols}
        self._taken |= {parameter.value.name for parameter in function.parameters}
        self._is_along = _runs_along_steps(site)
        shape = self._in_order(site.num_steps * site.scale, site.num_free)
        kind = TensorType(
            site.value.tile.dtype,
            shape,
            (shape[1], 1),
            alias=-1,
            wide=prod(shape) > I32.highest,
        )
        self._scratch = Value(kind, self._fresh("converted"), site.dot.loc)

    def run(self) -> Function | None:
        """The product, with what comes before it; None where its loop cannot be written."""
        site, write = self._site, TileWriter(lambda: self._site.dot.loc)
        before = self._write_before()
        if any(not _has_known_sizes(parameter) for parameter in before.parameters):
            return None  # what says its strides is no parameter of the earlier launch
        for op in site.grid.body.ops:
            if op is not site.loop:
                write.insert(op)
            elif not self._write_loop(write):
                return None
        grid = replace(site.grid, body=write.close_region(site.grid.body.args))
        old, extent = self._function.parameters, site.num_steps * site.scale
        tensors = [i for i, p in enumerate(old) if isinstance(p.value.type, TensorType)]
        made = made_at_launch(self._scratch, "empty", f"{old[tensors[0]].source}.device")
        end = tensors[-1] + 1
        blocks = [
            replace(b, extent=extent) if b.name == site.step_block else b
            for b in self._function.blocks
        ]
        body = Region(self._function.body.args, (*self._function.body.ops[:-1], grid))
        return replace(
            self._function,
            parameters=(*old[:end], made, *old[end:]),
            blocks=tuple(blocks),
            body=body,
            before=before,
        )

    def _fresh(self, name: str) -> str:
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name

    def _in_order(self, steps: Item, free: Item) -> tuple[Item, Item]:
        """Axes of the matrix in memory: that along which loads run is the last."""
        return (free, steps) if self._is_along else (steps, free)

    @property
    def _is_turned(self) -> bool:
        """Whether the operand has its axes in another order than the matrix in memory."""
        return self._is_along != self._site.is_left

    def _write_loop(self, write: TileWriter) -> bool:
        """The loop over what was converted; whether there is one."""
        site, loop = self._site, self._site.loop
        stands_for = site.operand.like()
        side = {"lhs": stands_for} if site.is_left else {"rhs": stands_for}
        dot = replace(site.dot, **side)
        ops = [dot if op is site.dot else op for op in loop.body.ops]
        kept = needed_by(tuple(ops), [op for op in ops if isinstance(op, Yield)])
        steps = _Steps(site, kept) if site.scale > 1 else None
        if steps is not None and not steps.is_possible:
            return False
        end = loop.ends[0]
        if steps is not None:
            end = write.full(end.tile, site.num_steps * site.scale)
        write.open_region()
        copy = CopiedOps({}, lambda value: value.type, lambda op: op)
        for op in kept if steps is None else steps.ops:
            if isinstance(op, Dot):
                copy.values[stands_for] = self._load(write, site.step_begin)
            for copied in copy.write([op]):
                write.insert(copied)
        body = write.close_region(loop.body.args)
        write.insert(replace(loop, ends=(end,), body=body))
        return True

    def _load(self, write: TileWriter, begin: Value) -> Value:
        site = self._site
        lines = (
            write.tile_index(begin, site.step_block),
            write.tile_index(site.free_begin, site.free_block),
        )
        place = write.place(*self._in_order(*lines))
        dims = self._in_order(Dim.of(site.step_block), Dim.of(site.free_block))
        kind = TileType(site.value.tile.dtype, dims)
        return self._turned(write, write.create(Load, kind, tensor=self._scratch, indices=place))

    def _turned(self, write: TileWriter, tile: Value) -> Value:
        if not self._is_turned:
            return tile
        kind = tile.tile.with_shape(tile.tile.shape[::-1])
        return write.create(Permute, kind, x=tile, order=(1, 0))

    def _write_before(self) -> Function:
        """The function that computes the matrix."""
        site, write = self._site, TileWriter(lambda: self._site.dot.loc)
        renamed = {site.step_block: self._fresh("steps"), site.free_block: self._fresh("lines")}
        for op in self._function.body.ops[:-1]:
            write.insert(op)
        index = site.step_begin.tile
        zero = write.full(index, 0)
        ends = write.full(index, site.num_steps), write.full(index, site.num_free)
        begins = Value(index, "steps_begin", site.dot.loc), site.free_begin.like()
        self._write_tile(write, begins, renamed)
        body = write.close_region(self._in_order(*begins))
        blocks = self._in_order(renamed[site.step_block], renamed[site.free_block])
        grid = Grid(
            begins=(zero, zero),
            ends=self._in_order(*ends),
            blocks=blocks,
            body=body,
            loc=site.dot.loc,
        )
        write.insert(grid)
        region = write.close_region(self._function.body.args)
        extents = dict(zip(renamed.values(), (site.num_steps, site.num_free)))
        used = {*values_used_by(region.ops), *values_used_by(body.ops)}
        parameters = [p for p in self._function.parameters if p.value in used]
        return Function(
            name=f"{self._function.name}_operand",
            parameters=(*parameters, Parameter(self._scratch, self._scratch.name)),
            blocks=tuple(
                Block(name, slot=slot, extent=extents[name]) for slot, name in enumerate(blocks)
            ),
            sizes=(),
            body=region,
            is_first=True,
        )

    def _write_tile(
        self, write: TileWriter, begins: tuple[Value, Value], renamed: dict[str, str]
    ) -> None:
        """Computes one tile of the matrix and stores it, in a region that is left open."""
        site = self._site
        dims = {old: Dim.of(new) for old, new in renamed.items()}

        def retype(value: Value) -> Type:
            shape = tuple(dim.substitute(dims) for dim in value.tile.shape)
            return value.tile.with_shape(shape)

        def adapt(op: Operation) -> Operation:
            return replace(op, block=renamed[op.block]) if isinstance(op, TileIndex) else op

        write.open_region()
        copy = CopiedOps(dict(zip((site.step_begin, site.free_begin), begins)), retype, adapt)
        for op in copy.write(site.ops):
            write.insert(op)
        blocks = renamed[site.step_block], renamed[site.free_block]
        lines = self._positions(write, begins[0], blocks[0]), write.tile_index(begins[1], blocks[1])
        tile = copy.values[site.value]
        tile = self._turned(write, tile) if self._is_turned else tile
        place = write.place(*self._in_order(*lines))
        write.effect(Store, tensor=self._scratch, value=tile, indices=place)
        write.effect(Yield)

    def _positions(self, write: TileWriter, begin: Value, block: str) -> Value:
        """Where along the sum the elements of a tile are."""
        scale = self._site.scale
        if scale == 1:
            return write.tile_index(begin, block)
        line = begin.tile.with_shape((Dim.of(block) * Dim.of(scale),))
        first = write.apply("mul", begin, write.full(begin.tile, scale))
        return write.apply("add", write.create(Arange, line), write.spread(first, 0, line.shape))


class _Steps:
    """The ops of a loop that goes over elements along the sum, not over groups of them."""

    def __init__(self, site: ConvertedOperand, ops: Sequence[Operation]) -> None:
        self._site = site
        self._inside = definitions(site.grid.body)
        wide, self._dim = Dim.of(site.step_block) * Dim.of(site.scale), Dim.of(site.step_block)
        self._wide = wide
        firsts = {op.result for op in ops if self._is_first(op)}
        self.is_possible = all(self._may_go(op) for op in ops)
        copy = CopiedOps(dict.fromkeys(firsts, site.step_begin), self._retype, lambda op: op)
        self.ops: list[Operation] = []
        for op in ops:
            if self._is_first(op):
                continue
            (copied,) = copy.write([op])
            if self._is_position(op, firsts):
                begin, block = site.step_begin, site.step_block
                copied = TileIndex(begin=begin, block=block, results=copied.results, loc=op.loc)
            self.ops.append(copied)

    def _retype(self, value: Value) -> Type:
        if not isinstance(value.type, TileType):
            return value.type
        shape = tuple(self._dim if dim == self._wide else dim for dim in value.tile.shape)
        return value.tile.with_shape(shape)

    def _may_go(self, op: Operation) -> bool:
        """Whether an op is about whole steps only, and begins where they do."""
        block, own = self._site.step_block, self._site.step_begin
        tiles = [v.tile for v in op.results if isinstance(v.type, TileType)]
        dims = [dim for tile in tiles for dim in tile.shape if block in dim.symbols]
        is_sized = isinstance(op, BlockSize) and op.block == block
        is_begin = own not in op.operand_values() or self._is_first(op)
        return is_begin and not is_sized and all(dim == self._wide for dim in dims)

    def _is_first(self, op: Operation) -> bool:
        """Whether it is where the elements of a turn begin."""
        if not isinstance(op, Elementwise) or op.fn != "mul":
            return False
        others = [self._inside.get(arg) for arg in op.args if arg is not self._site.step_begin]
        return (
            len(others) == 1
            and isinstance(others[0], Full)
            and (others[0].value == self._site.scale)
        )

    def _is_position(self, op: Operation, firsts: set[Value]) -> bool:
        """Whether it numbers the elements of a turn."""
        if not isinstance(op, Elementwise) or op.result.tile.shape != (self._wide,):
            return False
        sources = [self._inside.get(arg) for arg in op.args]
        if op.fn != "add" or not any(isinstance(source, Arange) for source in sources):
            return False
        views = [source for source in sources if not isinstance(source, Arange)]
        view = views[0] if len(views) == 1 else None
        while isinstance(view, (Broadcast, ExpandDims)):
            if view.x in firsts:
                return True
            view = self._inside.get(view.x)
        return False


def _runs_along_steps(site: ConvertedOperand) -> bool:
    """Whether neighbours in memory are neighbours along the sum, in what has most elements."""
    loads = [op for op in site.ops if isinstance(op, Load)]
    largest = max(loads, key=lambda op: op.result.tile.rank)
    strides = largest.tensor.tensor.strides
    lines = [index for index, stride in zip(largest.indices, strides) if stride == 1]
    symbols = {symbol for line in lines for dim in line.tile.shape for symbol in dim.symbols}
    return site.step_block in symbols and site.free_block not in symbols
