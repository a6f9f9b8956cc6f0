"""Which record of the loop IR stands for each value, tensor and stored tile."""

from __future__ import annotations

from collections.abc import Mapping

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
from tilesmith.ir.types import Value
from tilesmith.targets import Target


class KernelScope:
    """The scalars and tensors of one kernel, and what the user calls its values."""

    def __init__(self, function: Function, block_sizes: Mapping[str, int]) -> None:
        self.block_sizes = block_sizes
        self._definitions = definitions(function.body)
        self._hints = _borrowed_hints(function)
        self._labels: dict[Value, Label] = {}
        self._variables: dict[Value, Variable] = {}
        self._tensors: dict[Value, Tensor] = {}
        self.users: dict[Value, list[Operation]] = {}
        for op in walk_function(function):
            for value in op.operand_values():
                self.users.setdefault(value, []).append(op)

    def label(self, value: Value) -> Label:
        """What the user calls a value."""
        found = self._labels.get(value)
        if found is None:
            op = made_by = self._definitions.get(value)
            seen = value
            while not seen.name and seen not in self._hints and isinstance(op, VIEWS):
                seen, op = op.x, self._definitions.get(op.x)
            hint = seen.name or self._hints.get(seen, "")
            loc = value.loc if made_by is None else made_by.loc
            found = self._labels[value] = Label(hint, hint or self._invented(value), loc)
        return found

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

    def variable(self, value: Value) -> Variable:
        """The variable of a scalar."""
        if value not in self._variables:
            self._variables[value] = Variable(self.label(value), value.tile.dtype)
        return self._variables[value]

    def tensor(self, value: Value) -> Tensor:
        """The record of a tensor parameter."""
        if value not in self._tensors:
            self._tensors[value] = Tensor(self.label(value), value.tensor)
        return self._tensors[value]


class GridScope:
    """The values of one grid, or of what is outside all grids."""

    def __init__(
        self, kernel: KernelScope, tiles: VirtualTiles, program: Program, target: Target
    ) -> None:
        self.kernel = kernel
        self.tiles = tiles
        self.program = program
        self._target = target
        self._stored: dict[Value, Tile] = {}
        self.users = kernel.users
        self.label = kernel.label
        self.variable = kernel.variable
        self.tensor = kernel.tensor

    def tile(self, value: Value) -> Tile:
        """The memory that a stored tile lies in."""
        value = self.program.buffer_of(value)
        found = self._stored.get(value)
        if found is None:
            tile, is_product = value.tile, self._is_product(value)
            held_as = self._held_as(value, is_product)
            found = Tile(self.label(value), tile.dtype, tile.shape, held_as, is_product)
            self._stored[value] = found
        return found

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
        users = [op for op, found in stored if found is value]
        is_widened = is_product or any(not multiplies_tiles(op, self._target) for op in users)
        return compute_dtype(value.tile.dtype) if is_widened else value.tile.dtype

    def has_memory(self, value: Value) -> bool:
        """Whether a result has scratch memory; nobody looks at one that has none."""
        return self.program.buffer_of(value) in self.program.buffers


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
