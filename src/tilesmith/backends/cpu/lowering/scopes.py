"""Which record of the loop IR stands for each value, tensor and stored tile."""

from __future__ import annotations

from functools import cache

from tilesmith.analysis.partial_tiles import find_partial_axes
from tilesmith.backends.cpu.dots.shapes import compute_dtype
from tilesmith.backends.cpu.loop_ir.elements import Label, Tensor, Tile, Variable
from tilesmith.backends.cpu.planning.steps import Program
from tilesmith.backends.cpu.planning.virtual_tiles import (
    VirtualTiles,
    find_stored,
    multiplies_tiles,
)
from tilesmith.dtypes import DType
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Loop, While
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Mask
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.ops.rearrangement import Select
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape
from tilesmith.ir.traversal import definitions, walk_function
from tilesmith.ir.types import Dim, Value
from tilesmith.schedule.schedule import Schedule


class KernelScope:
    """The scalars and tensors of one kernel, and what the user calls its values."""

    def __init__(self, function: Function, schedule: Schedule) -> None:
        self.schedule = schedule
        self.block_sizes = {block.name: schedule.symbols[block.name] for block in function.blocks}
        self.partial_axes = find_partial_axes(function, schedule.symbols)
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

    def _is_product(self, value: Value) -> bool:
        """Whether a product writes the tile's buffer, directly or as a carried tile."""
        program = self.program
        sharing = [value, *(v for v in program.aliases if program.buffer_of(v) is value)]
        return any(isinstance(self.tiles.definitions.get(v), Dot) for v in sharing)

    def _held_as(self, value: Value, is_product: bool) -> DType:
        """What a tile's elements are held as.

        Results and operands of products are held as registers hold them, so that they need no
        conversion; operands of tile registers and all other tiles are held as tensors hold them.
        """
        dots = [op for op in self.tiles.definitions.values() if isinstance(op, Dot)]
        stored = ((op, find_stored(x, self.tiles)) for op in dots for x in (op.lhs, op.rhs))
        users, target = [op for op, found in stored if found is value], self.schedule.target
        is_widened = is_product or any(not multiplies_tiles(op, target) for op in users)
        return compute_dtype(value.tile.dtype) if is_widened else value.tile.dtype


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
