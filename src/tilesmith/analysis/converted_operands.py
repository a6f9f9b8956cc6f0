"""Finds an operand of a product that a loop computes from what it loads, again in every program.

Only what is certain is found: each element of the operand is a function of loaded numbers at places
that do not depend on the sizes of tiles, so that tiles of other sizes give the same matrix.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from tilesmith.analysis.effects import alias_group, groups_written_in, is_elsewhere, is_pure
from tilesmith.analysis.row_products import needed_by
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Grid, Loop
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Arange, Full, Mask, TileIndex
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.ops.rearrangement import Join
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape
from tilesmith.ir.traversal import definitions, values_used_by, walk
from tilesmith.ir.types import Dim, TileType, Value

_LANE_WISE = (Full, TileIndex, Arange, Mask, Elementwise, Cast)
_VIEWS = (ExpandDims, Broadcast, Permute, Reshape, Join)
_RANDOM = "mulhi"
"""What random numbers are made with: which lane draws which number may hang on the tiling."""


@dataclass(frozen=True, eq=False)
class ConvertedOperand:
    """A matrix that a loop computes tile by tile, and where it stands."""

    grid: Grid
    loop: Loop
    dot: Dot
    is_left: bool
    value: Value
    """The operand, before lanes past the end are cleared."""
    ops: tuple[Operation, ...]
    """What it is computed by, of the grid and of the loop, in order."""
    free_axis: int
    """Which axis of the grid its rows or columns are."""
    num_free: int
    num_steps: int
    """How far the loop goes."""
    scale: int
    """Elements along the sum for each step of the loop: 2 where a byte has two numbers."""

    @property
    def free_begin(self) -> Value:
        """The first row or column of a program's tile."""
        return self.grid.body.args[self.free_axis]

    @property
    def free_block(self) -> str:
        """The block of its rows or columns."""
        return self.grid.blocks[self.free_axis]

    @property
    def step_begin(self) -> Value:
        """Where a turn of the loop begins."""
        return self.loop.body.args[0]

    @property
    def step_block(self) -> str:
        """The block of the loop."""
        return self.loop.blocks[0]

    @property
    def operand(self) -> Value:
        """What the product reads."""
        return self.dot.lhs if self.is_left else self.dot.rhs


def find_converted_operand(function: Function) -> ConvertedOperand | None:
    """The operand that is computed, where a function is one product and nothing else."""
    grid = next(reversed(function.body.ops), None)
    if not isinstance(grid, Grid) or not all(map(is_pure, function.body.ops[:-1])):
        return None
    loops = [op for op in grid.body.ops if isinstance(op, Loop)]
    dots = [op for op in walk(grid.body) if isinstance(op, Dot)]
    if len(loops) != 1 or len(dots) != 1 or any(op.regions() for op in loops[0].body.ops):
        return None
    (loop,), (dot,) = loops, dots
    if len(loop.blocks) != 1 or not loop.blocks[0] or dot not in loop.body.ops:
        return None
    found = [site for side in (False, True) if (site := _find(function, grid, loop, dot, side))]
    return found[0] if len(found) == 1 else None


def _find(
    function: Function, grid: Grid, loop: Loop, dot: Dot, is_left: bool
) -> ConvertedOperand | None:
    inside, value = definitions(loop.body), dot.lhs if is_left else dot.rhs
    op = inside.get(value)
    if isinstance(op, Mask):
        value = op.x
    if value.tile.rank != 2 or _is_loaded(value, inside) or value.tile.dtype.itemsize > 2:
        return None
    steps, free = value.tile.shape[:: -1 if is_left else 1]
    axes = [i for i, block in enumerate(grid.blocks) if block and free == Dim.of(block)]
    scale = _scale(steps, loop.blocks[0])
    position = grid.body.ops.index(loop)
    roots = [op for op in loop.body.ops if value in op.results]
    ops = needed_by((*grid.body.ops[:position], *loop.body.ops), roots)
    constants = definitions(function.body)
    if not axes or not scale or not roots:
        return None
    ends = [_extent(constants, x.begins[i], x.ends[i]) for x, i in ((grid, axes[0]), (loop, 0))]
    site = ConvertedOperand(
        grid, loop, dot, is_left, value, ops, axes[0], ends[0] or 0, ends[1] or 0, scale
    )
    return site if all(ends) and not loop.steps and _is_same_in_all_tiles(site) else None


def _is_loaded(value: Value, inside: dict[Value, Operation]) -> bool:
    """Whether it is no more than a load, seen from other axes."""
    op = inside.get(value)
    while isinstance(op, (Permute, Mask)):
        op = inside.get(op.x)
    return op is None or isinstance(op, Load)


def _scale(dim: Dim, block: str) -> int:
    """How many elements a dimension has for each of a block, in that order; 0 if it is another."""
    first, *others = dim.factors or ("",)
    counts = [factor for factor in others if isinstance(factor, int)]
    return prod(counts) if first == block and len(counts) == len(others) else 0


def _extent(constants: dict[Value, Operation], begin: Value, end: Value) -> int | None:
    """Where a range that begins with 0 ends, if that is a constant."""
    first, last = constants.get(begin), constants.get(end)
    is_known = isinstance(first, Full) and isinstance(last, Full) and first.value == 0
    return int(last.value) if is_known and isinstance(last, Full) else None


def _is_same_in_all_tiles(site: ConvertedOperand) -> bool:
    written = groups_written_in(site.grid.body)
    if written is None or not all(_is_followed(op) for op in site.ops):
        return False
    loads = [op for op in site.ops if isinstance(op, Load)]
    if not loads or any(alias_group(op.tensor) in written for op in loads):
        return False
    blocks = {site.free_block, site.step_block}
    own = {site.free_begin, site.step_begin}
    others = {*site.grid.body.args, *site.loop.body.args} - own
    used = set(values_used_by(site.ops))
    if not used.isdisjoint(others) or not _symbols(site.ops) <= blocks:
        return False
    # Where a tile begins may only say where its elements are.
    direct = [op for op in site.ops if not own.isdisjoint(op.operand_values())]
    return all(isinstance(op, TileIndex) for op in direct)


def _symbols(ops: tuple[Operation, ...]) -> set[str]:
    return set(_symbols_of(ops))


def _symbols_of(ops: tuple[Operation, ...]) -> Iterator[str]:
    for op in ops:
        for value in op.results:
            if isinstance(value.type, TileType):
                yield from (symbol for dim in value.tile.shape for symbol in dim.symbols)


def _is_followed(op: Operation) -> bool:
    """Whether an element comes out of an op the same in whatever tile it stands."""
    if isinstance(op, Arange):
        return not any(dim.symbols for dim in op.result.tile.shape)
    if isinstance(op, Reshape):
        return _factors(op.x) == _factors(op.result)
    if isinstance(op, Elementwise):
        return op.fn != _RANDOM
    return isinstance(op, (*_LANE_WISE, *_VIEWS)) or (isinstance(op, Load) and not is_elsewhere(op))


def _factors(value: Value) -> tuple[int | str, ...]:
    """What the dimensions of a tile are made of, in order: equal ones number elements alike."""
    return tuple(factor for dim in value.tile.shape for factor in dim.factors)
