"""Makes grids over several tile axes into grids over one axis that runs through all elements."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from math import prod

from tilesmith.analysis.restructuring import BlockUse, block_use_of, find_flattenable, find_run
from tilesmith.dtypes import I32, I64, DType
from tilesmith.ir.axis_roles import Accessed
from tilesmith.ir.function import Block, Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Grid
from tilesmith.ir.ops.indexing import Full, TileIndex
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Reshape
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.traversal import definitions, walk
from tilesmith.ir.types import ONE, Dim, Shape, TensorType, TileType, Value, scalar


def flatten_tiles(
    function: Function, slots: Collection[int]
) -> tuple[Function, Mapping[str, tuple[str, ...]]]:
    """Flatten the grids of those slots where that is possible.

    Before::

        grid([%zero, %zero], [%M, %N]) {blocks=["m", "n"], slot=0} (%b: i32[], %c: i32[]) {
          %i = tile_index(%b) {block="m"} : i32[m]
          %j = tile_index(%c) {block="n"} : i32[n]
          ...
          %v = load(%x, none, [%i1, %j1]) : f32[m, n]
        }

    After::

        %total = elementwise(%M, %N) {fn="mul"} : i32[]
        grid([%zero], [%total]) {blocks=["m_n"], slot=0} (%b: i32[]) {
          %k = tile_index(%b) {block="m_n"} : i32[m_n]
          %i = elementwise(%k, %width) {fn="floordiv"} : i32[m_n]
          %j = elementwise(%k, %width) {fn="mod"} : i32[m_n]
          %v = load(%x, none, [%i, %j]) : f32[m_n]
        }

    The second result maps each new block to the old ones; its size is the product of theirs.
    """
    chosen = set(slots) & set(find_flattenable(function))
    joined: dict[str, tuple[str, ...]] = {}
    new_ops: list[Operation] = []
    blocks = list(function.blocks)
    for op in function.body.ops:
        if not isinstance(op, Grid) or op.slot not in chosen:
            new_ops.append(op)
            continue
        block = _joint_block(function, op.blocks, {item.name for item in blocks})
        blocks.append(block)
        joined[block.name] = op.blocks
        new_ops.extend(_Flattening(function, op, block.name).run())
    if not joined:
        return function, joined
    body = Region(function.body.args, tuple(new_ops))
    return replace(function, body=body, blocks=tuple(blocks)), joined


def _joint_block(function: Function, names: tuple[str, ...], taken: set[str]) -> Block:
    name = "_".join([names[0], *(part.removeprefix("tile_") for part in names[1:])])
    while name in taken:
        name += "_flat"
    old = [function.block(part) for part in names]

    def joint(parts: list[int | None]) -> int | None:
        known = [part for part in parts if part is not None]
        return prod(known) if len(known) == len(parts) else None

    return Block(name, fixed=joint([b.fixed for b in old]), extent=joint([b.extent for b in old]))


class _Flattening:
    """Rewrites one grid. ``_values`` maps joint tiles and coordinates to their flat forms."""

    def __init__(self, function: Function, grid: Grid, block: str) -> None:
        self._grid = grid
        self._blocks = grid.blocks
        self._block = block
        self._flat = Dim.of(block)
        self._defined_by = definitions(function.body)
        self._values: dict[Value, Value] = {}
        self._write = TileWriter()
        self._coordinates: list[Value] = []

    def run(self) -> tuple[Operation, ...]:
        """The ops that take the grid's place, it included."""
        grid, dtype = self._grid, self._index_dtype()
        total, *widths = reversed(list(self._emit_widths(dtype)))
        zero = self._write.create(Full, scalar(dtype), value=0)
        begin = Value(scalar(dtype), self._block)
        self._write.open_region()
        self._emit_coordinates(begin, widths)
        for op in grid.body.ops:
            self._visit(op)
        body, blocks = self._write.close_region((begin,)), (self._block,)
        self._write.insert(replace(grid, begins=(zero,), ends=(total,), blocks=blocks, body=body))
        return self._write.close_region().ops

    def _index_dtype(self) -> DType:
        """64 bits where the number of elements may need them."""
        tensors = [
            value.type
            for op in walk(self._grid.body)
            for value in op.operand_values()
            if isinstance(value.type, TensorType)
        ]
        ends = [self._defined_by.get(end) for end in self._grid.ends]
        sizes = [int(op.value) for op in ends if isinstance(op, Full)]
        is_known = len(sizes) == len(ends)
        is_large = prod(sizes) > I32.highest if is_known else any(t.wide for t in tensors)
        return I64 if is_large or any(e.tile.dtype == I64 for e in self._grid.ends) else I32

    def _emit_widths(self, dtype: DType) -> Iterator[Value]:
        """The number of elements in the last axis, in the last two, and so on: of all at last."""
        last, *others = reversed(self._grid.ends)
        yield (width := self._write.cast(last, dtype))
        for end in others:
            extent = self._write.cast(end, dtype)
            yield (width := self._write.apply("mul", extent, width))

    def _emit_coordinates(self, begin: Value, widths: list[Value]) -> None:
        write, line = self._write, TileType(begin.tile.dtype, (self._flat,))
        rest = write.tile_index(begin, self._block)
        for width in widths:
            parts = (rest, write.spread(width, 0, line.shape))
            self._coordinates.append(write.apply("floordiv", *parts))
            rest = write.apply("mod", *parts)
        self._coordinates.append(rest)

    def _use(self, value: Value) -> BlockUse:
        is_tile = isinstance(value.type, TileType)
        return block_use_of(value.tile.shape, self._blocks) if is_tile else BlockUse.PLAIN

    def _new_axis(self, shape: Shape, axis: int) -> int:
        run = find_run(shape, self._blocks)
        if run is None or axis <= run:
            return axis
        return max(run, axis - len(self._blocks) + 1)

    def _define(self, value: Value) -> Value:
        """The flat form of a value about to be defined."""
        if self._use(value) is BlockUse.PLAIN:
            return value
        # A joint shape has the run of blocks as one axis; a coordinate becomes a line.
        shape, new = value.tile.shape, (self._flat,)
        run = find_run(shape, self._blocks)
        if run is not None:
            new = (*shape[:run], self._flat, *shape[run + len(self._blocks) :])
        self._values[value] = value.like(value.tile.with_shape(new))
        return self._values[value]

    def _visit_region(self, region: Region) -> Region:
        args = tuple(map(self._define, region.args))
        self._write.open_region()
        for op in region.ops:
            self._visit(op)
        return self._write.close_region(args)

    def _visit(self, op: Operation) -> None:
        if isinstance(op, TileIndex) and op.block in self._blocks:
            found = self._coordinates[self._blocks.index(op.block)]
            self._values[op.result] = self._write.cast(found, op.result.tile.dtype)
        elif isinstance(op, ExpandDims) and self._use(op.result) is BlockUse.COORDINATE:
            self._values[op.result] = self._values[op.x]
        elif isinstance(op, Broadcast) and self._use(op.result) is not BlockUse.PLAIN:
            self._visit_broadcast(op)
        elif isinstance(op, (Load, Store, Atomic)):
            self._visit_access(op)
        else:
            self._copy(op)

    def _copy(self, op: Operation) -> None:
        copy = op.with_operands(lambda value: self._values.get(value, value))
        form = op.form
        if form.attribute and self._use(tile := form.numbered(op)) is not BlockUse.PLAIN:
            axes = {self._new_axis(tile.tile.shape, axis) for axis in form.numbers(op)}
            copy = copy.with_axis_numbers(tuple(sorted(axes)))
        copy = copy.with_regions(tuple(map(self._visit_region, op.regions())))
        self._write.insert(replace(copy, results=tuple(map(self._define, op.results))))

    def _visit_broadcast(self, op: Broadcast) -> None:
        if self._use(op.result) is BlockUse.JOINT:
            x = self._lift(op.x, op.result.tile.shape)
        elif op.x in self._values:
            x = self._values[op.x]
        else:
            # Broadcast to a line along one block: all axes of the operand are 1.
            x = self._reshaped(op.x, (ONE,))
        result = self._define(op.result)
        self._write.insert(replace(op, x=x, results=(result,)))

    def _visit_access(self, op: Load | Store | Atomic) -> None:
        accessed = Accessed.tile(op)
        if self._use(accessed) is not BlockUse.JOINT:
            self._copy(op)
            return
        shape = accessed.tile.shape
        indices = tuple(self._lift(index, shape) for index in op.indices)
        mask = None if op.mask is None else self._lift(op.mask, shape)
        copy = op.with_operands(lambda value: self._values.get(value, value))
        results = tuple(map(self._define, op.results))
        self._write.insert(replace(copy, indices=indices, mask=mask, results=results))

    def _lift(self, value: Value, shape: Shape) -> Value:
        """The flat form of a value that broadcasts to the joint ``shape``, aligned to its axes."""
        run = find_run(shape, self._blocks)
        assert run is not None
        use = self._use(value)
        if use is BlockUse.JOINT:
            return self._values[value]
        rank = len(shape) - len(self._blocks) + 1
        if use is BlockUse.COORDINATE:
            line = self._values[value]
            new_shape = tuple(self._flat if axis == run else ONE for axis in range(rank))
            axes = tuple(axis for axis in range(rank) if axis != run)
            target = line.tile.with_shape(new_shape)
            return self._write.create(ExpandDims, target, x=line, axes=axes) if axes else line
        # A plain value has ones where the blocks are, or does not reach them.
        full = (ONE,) * (len(shape) - value.tile.rank) + value.tile.shape
        return self._reshaped(value, (*full[:run], ONE, *full[run + len(self._blocks) :]))

    def _reshaped(self, value: Value, shape: Shape) -> Value:
        if value.tile.rank == 0 or value.tile.shape == shape:
            return value
        return self._write.create(Reshape, value.tile.with_shape(shape), x=value)
