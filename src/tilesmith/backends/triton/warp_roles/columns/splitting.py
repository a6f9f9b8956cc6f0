"""Columns of a tile in parts: 320 as 256 and 64, each with an accumulator of its own.

Tensors of Gluon have sides of powers of two, but tiles of a product need not: more shapes then fill
whole waves of programs, or load less for each result. A function and its schedule go in. What has
columns is there once for each part afterwards, what has none stays. Programs and loops are as
before: a part begins inside of the tile, and ends where the tile's axis does.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import replace

from tilesmith.backends.triton.warp_roles.emitter import Part, Parts
from tilesmith.backends.triton.warp_roles.layouts import WARPS_PER_GROUP
from tilesmith.backends.triton.warp_roles.plan import RolePlan
from tilesmith.ir.function import Block, Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Grid, If, Loop, Yield
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Full, Mask, TileIndex
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.ir.ops.shape import Broadcast, ExpandDims
from tilesmith.ir.traversal import shape_symbols, walk
from tilesmith.ir.types import Dim, TileType, Value
from tilesmith.schedule.schedule import Schedule

_BY_COLUMN = (Elementwise, Cast, Mask, Full, TileIndex, Load, Store, Broadcast, ExpandDims, Loop)
"""Ops of which a column's result needs no other column; products are looked at one by one."""
MOST_IN_PART = {1: 256, 2: 256, 3: 128}
"""Columns of a matrix instruction, by number of groups: three have too few registers for more."""


def part_sizes(columns: int, groups: int = 2) -> tuple[int, ...]:
    """Powers of two that add up to the columns, the largest first."""
    most = MOST_IN_PART[groups]
    sizes = [most] * (columns // most)
    rest = columns % most
    return (*sizes, *(1 << bit for bit in reversed(range(rest.bit_length())) if rest >> bit & 1))


def find_columns(plan: RolePlan) -> str | None:
    """The block of the columns of all products, where all that a tile does with it is by column."""
    blocks = {product.dot.rhs.tile.shape[-1].symbol for product in plan.products}
    (block, *others) = blocks
    if others or block is None or block not in plan.grid.blocks:
        return None
    ops = [op for op in walk(plan.grid.body) if block in shape_symbols(op)]
    begins = plan.grid.body.args
    is_split = all(_is_by_column(op, block, begins) for op in ops if not isinstance(op, Yield))
    return block if is_split else None


def _is_by_column(op: Operation, block: str, begins: Container[Value]) -> bool:
    dim = Dim.of(block)
    tiles = [v.tile for v in (*op.operand_values(), *op.results) if isinstance(v.type, TileType)]
    dims = [side for tile in tiles for side in tile.shape if block in side.symbols]
    if any(side != dim for side in dims):
        return False
    if isinstance(op, TileIndex) and op.begin not in begins:
        return False
    if isinstance(op, Dot):
        return dim not in op.lhs.tile.shape and dim == op.rhs.tile.shape[-1]
    return isinstance(op, _BY_COLUMN)


def split_columns(
    function: Function, schedule: Schedule, block: str | None
) -> tuple[Function, Schedule, Parts]:
    """The function with parts of a block in place of its columns; itself for a power of two."""
    if block is None:
        return function, schedule, {}
    sizes = part_sizes(schedule.symbols[block], schedule.num_warps // WARPS_PER_GROUP)
    if len(sizes) == 1:
        return function, schedule, {}
    splitter = _Splitter(function, block, sizes)
    body = splitter.split(function.body)
    blocks = (*function.blocks, *(Block(part.block, part.size) for part in splitter.parts))
    named = {part.block: part.size for part in splitter.parts}
    return (
        replace(function, body=body, blocks=blocks),
        replace(schedule, symbols={**schedule.symbols, **named}),
        {block: splitter.parts},
    )


class _Splitter:
    def __init__(self, function: Function, block: str, sizes: Iterable[int]) -> None:
        self._block = block
        self._dim = Dim.of(block)
        taken = {item.name for item in function.blocks}
        (self._grid,) = (op for op in function.body.ops if isinstance(op, Grid))
        self._begin = self._grid.body.args[self._grid.blocks.index(block)]
        self.parts = tuple(self._make_parts(taken, sizes))
        self._values: dict[Value, tuple[Value, ...]] = {}
        """What stands for a value with columns: one for each part."""

    def _make_parts(self, taken: set[str], sizes: Iterable[int]) -> Iterator[Part]:
        offset = 0
        for number, size in enumerate(sizes):
            name = f"{self._block}_{number}"
            while name in taken:
                name += "_"
            begin = self._begin if not offset else Value(self._begin.type, f"{name}_begin")
            yield Part(name, size, offset, begin)
            offset += size

    def split(self, region: Region) -> Region:
        """A region in which parts stand for columns."""
        args = tuple(new for arg in region.args for new in self._parts_of(arg))
        ops = [new for op in region.ops for new in self._split_op(op)]
        begins = self._begins() if region is self._grid.body else ()
        return Region(args, (*begins, *ops))

    def _begins(self) -> Iterator[Operation]:
        """The first column of each part but the first."""
        loc = self._grid.loc
        for part in self.parts[1:]:
            offset = Value(TileType(self._begin.tile.dtype, ()), "")
            yield Full(value=part.offset, results=(offset,), loc=loc)
            yield Elementwise(fn="add", args=(self._begin, offset), results=(part.begin,), loc=loc)

    def _split_op(self, op: Operation) -> list[Operation]:
        if isinstance(op, Grid):
            return [replace(op, body=self.split(op.body))]
        if isinstance(op, Loop):
            return [self._split_loop(op)]
        if isinstance(op, If):
            then, otherwise = map(self.split, op.regions())
            return [replace(op, then=then, otherwise=otherwise)]
        if isinstance(op, Yield):
            return [replace(op, values=self._flat(op.values))]
        if self._block not in shape_symbols(op):
            return [op]
        return [self._of_part(op, number) for number in range(len(self.parts))]

    def _split_loop(self, op: Loop) -> Loop:
        init = self._flat(op.init)
        body = self.split(op.body)
        results = tuple(new for value in op.results for new in self._parts_of(value))
        return replace(op, init=init, body=body, results=results)

    def _of_part(self, op: Operation, number: int) -> Operation:
        part = self.parts[number]
        results = tuple(self._parts_of(value)[number] for value in op.results)
        made = replace(op.with_operands(lambda v: self._find(v, number)), results=results)
        if isinstance(made, TileIndex):
            return replace(made, begin=part.begin, block=part.block)
        return made

    def _find(self, value: Value, number: int) -> Value:
        found = self._values.get(value)
        return value if found is None else found[number]

    def _flat(self, values: Iterable[Value]) -> tuple[Value, ...]:
        return tuple(new for value in values for new in self._values.get(value, (value,)))

    def _parts_of(self, value: Value) -> tuple[Value, ...]:
        """What is defined in place of a value."""
        if not isinstance(value.type, TileType) or self._dim not in value.type.shape:
            return (value,)
        if value not in self._values:
            shapes = [self._shape(value.type, part) for part in self.parts]
            self._values[value] = tuple(value.like(shape) for shape in shapes)
        return self._values[value]

    def _shape(self, kind: TileType, part: Part) -> TileType:
        dims = (Dim.of(part.block) if dim == self._dim else dim for dim in kind.shape)
        return kind.with_shape(tuple(dims))
