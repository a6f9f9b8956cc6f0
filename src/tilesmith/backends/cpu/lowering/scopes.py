"""What lowering looks up: the record of each value, tensor and stored tile, and what is done ahead.

Ahead of a program operands are packed once for all of them where several would pack the same, and
rows are fetched: a nest that reads one for the second time finds it in the cache, so memory would
be idle while the row of the program that comes next can come.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from math import prod

from tilesmith.analysis.affine import find_partial_axes
from tilesmith.analysis.effects import AliasGroup, alias_group, groups_written_in
from tilesmith.backends.cpu.dots.joined_steps import multiplies_tiles, reads_halves, steps_at_once
from tilesmith.backends.cpu.dots.plans import BYTES, PAIRS, Packing, reads_in_place
from tilesmith.backends.cpu.dots.shapes import RegisterBlock, View, register_block
from tilesmith.backends.cpu.llvm.registers import INDEX, POINTER, LType, Register, index
from tilesmith.backends.cpu.loop_ir.elements import Label, Tensor, Tile, Variable
from tilesmith.backends.cpu.loop_ir.whole_tiles import (
    LEAST_PROGRAMS,
    MOST_BYTES,
    PackedOperand,
    PackedTensor,
)
from tilesmith.backends.cpu.lowering.known_extents import KnownExtents
from tilesmith.backends.cpu.planning import coordinates
from tilesmith.backends.cpu.planning.steps import Program
from tilesmith.backends.cpu.planning.virtual_tiles import (
    LoadedMatrix,
    VirtualTiles,
    find_matrix,
    find_stored,
)
from tilesmith.dtypes import DType
from tilesmith.ir.axis_roles import Numbered
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Grid, Loop, While
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Arange, Mask, TileIndex
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.ops.rearrangement import Select
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape
from tilesmith.ir.traversal import definitions, walk, walk_function
from tilesmith.ir.types import Dim, Extent, Value
from tilesmith.schedule.schedule import Schedule


class KernelScope:
    """The scalars and tensors of one kernel, and what the user calls its values."""

    def __init__(self, function: Function, schedule: Schedule) -> None:
        self.schedule = schedule
        self.block_sizes = {block.name: schedule.symbols[block.name] for block in function.blocks}
        self.partial_axes = find_partial_axes(function, schedule.symbols)
        self.extents = KnownExtents.of(function, schedule)
        self._definitions = definitions(function.body)
        self._hints = _borrowed_hints(function)
        self.users: dict[Value, list[Operation]] = {}
        for op in walk_function(function):
            for value in op.operand_values():
                self.users.setdefault(value, []).append(op)
        # One record for each value: identity is the record.
        self.label = cache(self._label)
        self.variable = cache(self._variable)
        self.tensor = cache(self._tensor)

    def _label(self, value: Value) -> Label:
        op = made_by = self._definitions.get(value)
        seen = value
        while not seen.name and seen not in self._hints and isinstance(op, VIEWS):
            seen, op = op.x, self._definitions.get(op.x)
        hint = seen.name or self._hints.get(seen, "")
        loc = value.loc if made_by is None else made_by.loc
        return Label(hint, hint or self._invented(value), loc)

    def _invented(self, value: Value) -> str:
        op = self._definitions.get(value)
        if isinstance(op, Reduce):
            return _REDUCTIONS[op.kind]
        if isinstance(op, Load):
            return f"{op.tensor.name}_value"
        if isinstance(op, Cast):
            return self.label(op.x).stem
        if isinstance(op, Elementwise):
            return f"{op.fn}_value" if len(op.args) == 1 else "t"
        return "carried" if op is None else _RESULTS.get(op.name, "t")

    def _variable(self, value: Value) -> Variable:
        return Variable(self.label(value), value.tile.dtype)

    def _tensor(self, value: Value) -> Tensor:
        return Tensor(self.label(value), value.tensor)


class GridScope:
    """The values of one grid, or of what is outside all grids."""

    def __init__(self, kernel: KernelScope, tiles: VirtualTiles, program: Program) -> None:
        self.kernel = kernel
        self.tiles = tiles
        self.program = program
        self.schedule = kernel.schedule
        self.users = kernel.users
        self.label = kernel.label
        self.variable = kernel.variable
        self.tensor = kernel.tensor
        self._buffer = cache(self._describe_buffer)

    def tile(self, value: Value) -> Tile:
        """The memory that a stored tile lies in."""
        return self._buffer(self.program.buffer_of(value))

    def _describe_buffer(self, value: Value) -> Tile:
        tile, is_product = value.tile, self._is_product(value)
        held_as = self._held_as(value, is_product)
        return Tile(self.label(value), tile.dtype, tile.shape, held_as, is_product)

    def find_bound(self, dim: Dim) -> int | None:
        """How long a dimension is at most; None where that depends on a runtime size."""
        blocks = self.kernel.block_sizes
        is_known = all(isinstance(factor, int) or factor in blocks for factor in dim.factors)
        return self.schedule.physical(dim) if is_known else None

    def find_most(self, dim: Dim) -> int | None:
        """The same where the length of the axis counts too."""
        return None if self.find_bound(dim) is None else self.kernel.extents.most(dim)

    def _is_product(self, value: Value) -> bool:
        """Whether a product writes the tile's buffer, directly or as a carried tile."""
        program = self.program
        sharing = [value, *(v for v in program.aliases if program.buffer_of(v) is value)]
        return any(isinstance(self.tiles.definitions.get(v), Dot) for v in sharing)

    def _held_as(self, value: Value, is_product: bool) -> DType:
        """What a tile's elements are held as.

        Results and operands of products are held as registers hold them, so that they need no
        conversion; operands read as bf16 and all other tiles are held as tensors hold them.
        """
        dots = [op for op in self.tiles.definitions.values() if isinstance(op, Dot)]
        stored = ((op, find_stored(x, self.tiles)) for op in dots for x in (op.lhs, op.rhs))
        users, target = [op for op, found in stored if found is value], self.schedule.target
        is_widened = is_product or any(not reads_halves(op, target) for op in users)
        return value.tile.dtype.computed if is_widened else value.tile.dtype


VIEWS = (Mask, ExpandDims, Broadcast, Reshape, Permute, Select)
"""Ops that compute nothing: their elements are those of the operand."""
_REDUCTIONS = {
    "sum": "total", "prod": "product", "max": "largest", "min": "smallest",
    "argmax": "position", "argmin": "position", "any": "some", "all": "every",
}  # fmt: skip
_RESULTS = {
    "dot": "product", "scan": "running", "atomic": "previous", "sort": "in_order",
    "reduce_with": "combined", "scan_with": "running",
}  # fmt: skip


def _borrowed_hints(function: Function) -> dict[Value, str]:
    """Names for nameless values: of their views, and of what they become in a loop."""
    found: dict[Value, str] = {}
    for op in walk_function(function):
        if isinstance(op, VIEWS) and op.result.name:
            found.setdefault(op.x, op.result.name)
        elif isinstance(op, (Loop, While)):
            carried = op.carried if isinstance(op, Loop) else op.body.args
            pairs = zip(carried, op.body.yielded)
            found.update((new, f"new_{a.name}") for a, new in pairs if a.name and not new.name)
    return found


_NEAR_BYTES = 512
"""Rows so close are better read where they are, though nobody would have to pack them."""


def find_packed_operands(scope: GridScope, grid: Grid) -> dict[Dot, PackedOperand]:
    """The right operands of a grid's products that are packed before its programs run.

    Such an operand is a matrix that the grid does not write, walked from its beginning to its end,
    and some axis of the grid leaves it unchanged.
    """
    written = groups_written_in(grid.body)
    return {} if written is None else _Finder(scope, grid).find(written)


class _Finder:
    def __init__(self, scope: GridScope, grid: Grid) -> None:
        self._scope = scope
        self._grid = grid
        self._tiles = scope.tiles
        self._schedule = scope.schedule
        self._bound = scope.find_bound
        self._ranges: dict[Value, tuple[Value, Value, str]] = {}
        """Where the tiles of a loop begin and end, and their block."""
        for op in (grid, *walk(grid.body)):
            if isinstance(op, (Grid, Loop)):
                self._ranges.update(zip(op.body.args, zip(op.begins, op.ends, op.blocks)))

    def find(self, written: frozenset[AliasGroup]) -> dict[Dot, PackedOperand]:
        found: dict[Dot, PackedOperand] = {}
        for dot in _dots(self._grid.body):
            is_stored = find_stored(dot.rhs, self._tiles) is not None
            # Tile registers want another packing.
            uses_tiles = multiplies_tiles(dot, self._schedule.target)
            if dot.result.tile.rank != 2 or is_stored or uses_tiles:
                continue
            matrix = find_matrix(dot.rhs, self._tiles)
            if matrix is None or alias_group(matrix.load.tensor) in written:
                continue
            operand = self._operand(dot, matrix)
            if operand is not None:
                found[dot] = operand
        return found

    def _operand(self, dot: Dot, matrix: LoadedMatrix) -> PackedOperand | None:
        load = matrix.load
        # One step along k moves one index of the matrix, one step along n the other one.
        if matrix.steps not in (((1, 0), (0, 1)), ((0, 1), (1, 0))):
            return None
        axes = (0, 1) if matrix.steps[0] == (1, 0) else (1, 0)
        places = coordinates.access_places(load, matrix.coords)
        origins = [self._origin(places[axis]) for axis in axes]
        begins = [origin.begin if isinstance(origin, TileIndex) else None for origin in origins]
        block = self._block(dot)
        dtypes = matrix.dtype, dot.result.tile.dtype.computed
        group = self._steps_at_once(dot, matrix)
        sizes = block.columns, block.columns, block.lanes
        packing = Packing(*dtypes, *sizes, group, is_shifted=group == BYTES)
        limits = [load.tensor.tensor.shape[axis] for axis in axes]
        if not all(map(self._is_whole, origins, limits, (group, packing.width))):
            return None
        shared = tuple(axis for axis, arg in enumerate(self._grid.body.args) if arg not in begins)
        depth = self._depth_to_find(origins[0], limits[0]) if group == PAIRS else None
        is_certain = self._pays(dot, load.tensor, packing, (axes, shared))
        if is_certain is False:
            return None
        tensor, variable = self._scope.tensor(load.tensor), self._scope.variable
        source = PackedTensor(tensor, axes, packing, shared, bool(is_certain), depth)
        k, n = (None if begin is None else variable(begin) for begin in begins)
        return PackedOperand(source, (k, n))

    def _steps_at_once(self, dot: Dot, matrix: LoadedMatrix) -> int:
        """Those of a packed element; operands may lie in memory as narrower or wider numbers."""
        lies_as = self._lies_as(dot.lhs), matrix.dtype
        is_same = lies_as == (dot.lhs.tile.dtype, dot.rhs.tile.dtype)
        return steps_at_once(dot, self._schedule.target) if is_same else 1

    def _lies_as(self, value: Value) -> DType:
        stored, matrix = find_stored(value, self._tiles), find_matrix(value, self._tiles)
        if stored is None and matrix is not None:
            return matrix.dtype
        return self._scope.tile(value if stored is None else stored).held_as

    def _depth_to_find(self, origin: Operation | None, limit: Extent) -> Variable | None:
        """A size of run time that k ends at, if that may be before the tensor does.

        The last of an odd number of steps has a neighbour then: a zero times that may be NaN.
        """
        moved = self._ranges.get(origin.begin) if isinstance(origin, TileIndex) else None
        if moved is None or not isinstance(limit, str) or moved[1].name == limit:
            return None
        return self._scope.variable(moved[1])

    def _block(self, dot: Dot) -> RegisterBlock:
        rows, columns = map(self._scope.find_most, dot.result.tile.shape)
        dtype = dot.result.tile.dtype.computed
        return register_block(self._schedule.target.vector_lanes, dtype, (rows, columns))

    def _pays(
        self,
        dot: Dot,
        tensor: Value,
        packing: Packing,
        axes: tuple[tuple[int, int], tuple[int, ...]],
    ) -> bool | None:
        """Whether enough programs share a copy that is not too large; None: known at run time."""
        own, shared = axes
        counts = [self._count(axis) for axis in shared]
        sizes = [size for size in tensor.tensor.shape if isinstance(size, int)]
        if prod(sizes) * packing.dtype.itemsize > MOST_BYTES:
            return False
        rows = self._scope.find_most(dot.result.tile.shape[0])
        block = self._block(dot)
        strides = (tensor.tensor.strides[axis] for axis in own)
        runtime = LType(INDEX)
        k, n = (index(by) if isinstance(by, int) else Register(f"%{by}", runtime) for by in strides)
        view = View(Register("null", LType(POINTER)), (k, n), packing.source)
        product = rows, packing.dtype
        if reads_in_place(view, product, block, _NEAR_BYTES):
            return False
        if None in counts or len(sizes) < tensor.tensor.rank:
            return False if reads_in_place(view, product, block) else None
        return prod(count or 0 for count in counts) >= LEAST_PROGRAMS

    def _origin(self, place: coordinates.Place) -> Operation | None:
        """The tile's or tensor's positions that an index is a view of."""
        op = self._tiles.definitions.get(place[0])
        while (
            op is not None
            and coordinates.is_virtual(type(op))
            and not isinstance(op.form, Numbered)
        ):
            places = coordinates.operands_at(op, place[1])
            if len(places) != 1 or isinstance(op, Load):
                return None
            place = places[0]
            op = self._tiles.definitions.get(place[0])
        return op

    def _is_whole(self, origin: Operation | None, limit: Extent, multiple: int) -> bool:
        """Whether tiles go over a whole dimension and begin at multiples of a number."""
        if isinstance(origin, Arange):
            (dim,) = origin.result.tile.shape
            return limit in (dim.symbol, self._bound(dim))
        moved = self._ranges.get(origin.begin) if isinstance(origin, TileIndex) else None
        if moved is None:
            return False
        begin, end, block = moved
        if not block or self._tiles.constant_number(begin) != 0:
            return False
        # A size of run time may go by another name: of the other operand's dimension.
        is_named = self._tiles.definitions.get(end) is None and isinstance(limit, str)
        is_covered = is_named or self._tiles.constant_number(end) == limit
        size = self._schedule.symbols[block]
        is_one = isinstance(limit, int) and limit <= size
        return is_covered and (is_one or size % multiple == 0)

    def _count(self, axis: int) -> int | None:
        grid, constant = self._grid, self._tiles.constant_number
        begin, end = constant(grid.begins[axis]), constant(grid.ends[axis])
        block = grid.blocks[axis]
        if begin is None or end is None:
            return None
        return max(0, -(-int(end - begin) // (self._schedule.symbols[block] if block else 1)))


def _dots(region: Region) -> Iterator[Dot]:
    """All products. A program may skip those in branches; two that do not pay for packing."""
    yield from (op for op in walk(region) if isinstance(op, Dot))
