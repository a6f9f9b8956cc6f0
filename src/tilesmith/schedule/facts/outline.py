"""The loops and memory accesses of a function in program order, as a schedule sees them.

``FunctionOutline`` is read-only and made once per function; all that builds slots, facts or
resource estimates asks it rather than walking the IR again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Grid, GridBarrier, GroupBarrier, If, Loop
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import BlockSize, Full
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.types import Dim, TensorType, TileType, Value

AnyLoop = Grid | Loop
Access = Load | Store | Atomic
Op = TypeVar("Op", bound=Operation)


@dataclass(frozen=True)
class Site:
    """An op and the loops around it, outermost first."""

    op: Operation
    loops: tuple[AnyLoop, ...]

    @property
    def innermost(self) -> Loop | None:
        """The sequential loop that holds the op, if any."""
        last = self.loops[-1] if self.loops else None
        return last if isinstance(last, Loop) else None


@dataclass(frozen=True)
class LoopAxis:
    """One axis of a loop. ``extent`` is the number of elements it ranges over, where known."""

    loop: AnyLoop
    position: int
    block: str
    """The block it steps by; "" for an axis of plain indices."""
    extent: int | None

    @property
    def index(self) -> Value:
        """The region argument that holds the first index of the axis's tile."""
        return self.loop.body.args[self.position]


def _walk(region: Region, loops: tuple[AnyLoop, ...]) -> Iterator[Site]:
    for op in region.ops:
        yield Site(op, loops)
        inner = (*loops, op) if isinstance(op, (Grid, Loop)) else loops
        for nested in op.regions():
            yield from _walk(nested, inner)


def known_product(counts: Iterable[int | None]) -> int | None:
    """The product of numbers, None where one of them is not known."""
    total = 1
    for count in counts:
        if count is None:
            return None
        total *= count
    return total


def _slot(op: Access) -> int:
    return op.slot


class FunctionOutline:
    """Loops, accesses and definitions of one function."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.sites = tuple(_walk(function.body, ()))
        self.definitions = {value: site.op for site in self.sites for value in site.op.results}
        self._roots: dict[Value, frozenset[Value]] = {}

    def ops(self, cls: type[Op]) -> tuple[Op, ...]:
        """All ops of a class, in program order."""
        return tuple(site.op for site in self.sites if isinstance(site.op, cls))

    @property
    def has_barrier(self) -> bool:
        """Whether programs wait for each other between two grids."""
        return bool(self.ops(GridBarrier))

    @cached_property
    def group_barriers(self) -> tuple[GroupBarrier, ...]:
        """Where programs of one grid wait for each other."""
        return self.ops(GroupBarrier)

    @cached_property
    def grids(self) -> tuple[Grid, ...]:
        """The top-level loops."""
        return self.ops(Grid)

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        """The sequential loops."""
        return self.ops(Loop)

    @cached_property
    def all_loops(self) -> tuple[AnyLoop, ...]:
        """Grids and sequential loops, in program order."""
        return tuple(site.op for site in self.sites if isinstance(site.op, (Grid, Loop)))

    @cached_property
    def accesses(self) -> tuple[Load | Store, ...]:
        """Loads and stores, one for each slot (copies share their original's), by slot."""
        ops = [site.op for site in self.sites if isinstance(site.op, (Load, Store))]
        return tuple(sorted({op.slot: op for op in reversed(ops)}.values(), key=_slot))

    @cached_property
    def atomics(self) -> tuple[Atomic, ...]:
        """Atomics, one for each slot."""
        ops = reversed(self.ops(Atomic))
        return tuple(sorted({op.slot: op for op in ops}.values(), key=_slot))

    def loops_around(self, op: Operation) -> tuple[AnyLoop, ...]:
        """The loops around an op, outermost first."""
        return next(site.loops for site in self.sites if site.op is op)

    @cached_property
    def tile_values(self) -> tuple[Value, ...]:
        """Results and region arguments that are tiles of rank 1 or more."""
        regions = [region for site in self.sites for region in site.op.regions()]
        values = [value for site in self.sites for value in site.op.results]
        values += [arg for region in regions for arg in region.args]
        return tuple(v for v in values if isinstance(v.type, TileType) and v.type.rank)

    @cached_property
    def axes(self) -> dict[int, tuple[LoopAxis, ...]]:
        """The axes of every loop, by the identity of the loop op."""
        return {
            id(loop): tuple(
                LoopAxis(loop, i, block, self._axis_extent(loop, i))
                for i, block in enumerate(loop.blocks)
            )
            for loop in self.all_loops
        }

    def axes_of(self, loop: AnyLoop) -> tuple[LoopAxis, ...]:
        """The axes of one loop."""
        return self.axes[id(loop)]

    def _axis_extent(self, loop: AnyLoop, position: int) -> int | None:
        begin = self.find_constant(loop.begins[position])
        end = self.find_constant(loop.ends[position])
        if begin is not None and end is not None:
            return max(0, end - begin)
        bound = self.find_length_bound(loop, position)
        if isinstance(bound, int):
            return bound
        block = loop.blocks[position]
        if block and self.function.is_block(block):
            return self.function.block(block).extent
        name = loop.ends[position].name
        return next((size.hint for size in self.function.sizes if size.name == name), None)

    def find_constant(self, value: Value) -> int | None:
        """The value of a scalar integer constant, or None."""
        op = self.definitions.get(value)
        if isinstance(op, Cast):
            return self.find_constant(op.x)
        if isinstance(op, BlockSize):
            return self.function.block(op.block).fixed
        return int(op.value) if isinstance(op, Full) else None

    def find_length_bound(self, loop: AnyLoop, position: int) -> int | str | None:
        """The most elements the axis can range over: a constant, or the block of an outer tile.

        Recognises ``[b, min(b + s, e))``, the range of an outer tile that begins at ``b``.
        """
        bound = self._length_from(loop.begins[position], loop.ends[position])
        # A loop over one tile of its own block (tiles in reverse) says nothing about the block.
        return None if bound == loop.blocks[position] else bound

    def _length_from(self, begin: Value, end: Value) -> int | str | None:
        op = self.definitions.get(end)
        if isinstance(op, Cast):
            return self._length_from(begin, op.x)
        if not isinstance(op, Elementwise):
            is_zero = self.find_constant(begin) == 0
            return op.block if isinstance(op, BlockSize) and is_zero else None
        if op.fn == "minimum":
            found = [self._length_from(begin, arg) for arg in op.args]
            return next((length for length in found if length is not None), None)
        if op.fn == "add" and begin in op.args:
            other = next((arg for arg in op.args if arg is not begin), begin)
            constant, size = self.find_constant(other), self.definitions.get(other)
            return size.block if constant is None and isinstance(size, BlockSize) else constant
        return None

    @cached_property
    def outer_bounds(self) -> dict[str, int | str]:
        """What limits a block: the outer block (or the constant) whose tile its loop walks."""
        found: dict[str, int | str] = {}
        for loop in self.loops:
            for position, block in enumerate(loop.blocks):
                bound = self.find_length_bound(loop, position)
                if block and bound is not None:
                    found.setdefault(block, bound)
        return found

    @cached_property
    def grid_blocks(self) -> tuple[str, ...]:
        """Blocks that a top-level loop steps by."""
        return tuple(dict.fromkeys(block for grid in self.grids for block in grid.blocks if block))

    @cached_property
    def block_slots(self) -> tuple[str, ...]:
        """For each entry of ``block_sizes`` the name of (the first of) its blocks."""
        blocks = reversed(self.function.blocks)
        by_slot = {block.slot: block.name for block in blocks if block.slot is not None}
        return tuple(by_slot[slot] for slot in sorted(by_slot))

    def extent(self, dim: Dim) -> int | None:
        """How many elements the axis spans in all: over all tiles of its loop, where known."""
        return known_product(
            factor if isinstance(factor, int) else self._symbol_extent(factor)
            for factor in dim.factors
        )

    def _symbol_extent(self, symbol: str) -> int | None:
        if not self.function.is_block(symbol):
            return self.function.hint(symbol)
        axes = [axis for axes in self.axes.values() for axis in axes if axis.block == symbol]
        extents = [axis.extent for axis in axes if axis.extent is not None]
        return max(extents, default=self.function.block(symbol).extent)

    def roots(self, value: Value) -> frozenset[Value]:
        """Region arguments and parameters that the value is computed from."""
        op = self.definitions.get(value)
        if op is None:
            return frozenset((value,))
        if value not in self._roots:
            found = (self.roots(operand) for operand in op.operand_values())
            self._roots[value] = frozenset[Value]().union(*found)
        return self._roots[value]

    def is_data_dependent(self, value: Value) -> bool:
        """Whether the value is computed from something loaded (tensors are only ever read)."""
        return any(isinstance(root.type, TensorType) for root in self.roots(value))


class GridOutline(FunctionOutline):
    """What a function without its other top-level loops would have.

    Definitions stay those of the whole function: bounds are computed before all loops.
    """

    def __init__(self, whole: FunctionOutline, grid: Grid) -> None:
        super().__init__(whole.function)
        self.sites = tuple(site for site in self.sites if _is_of_grid(site, grid))

    @cached_property
    def block_slots(self) -> tuple[str, ...]:
        """Those of the blocks that occur in the loop."""
        used = {block for loop in self.all_loops for block in loop.blocks}
        shapes = [value.tile.shape for value in self.tile_values]
        used.update(symbol for shape in shapes for dim in shape for symbol in dim.symbols)
        return tuple(name for name in super().block_slots if name in used)


def _is_of_grid(site: Site, grid: Grid) -> bool:
    if site.loops:
        return site.loops[0] is grid
    return site.op is grid or not isinstance(site.op, (Grid, GridBarrier))


def counted_loops(outline: FunctionOutline) -> dict[int, str]:
    """Loops in such branches, by identity, with the block whose tiles are counted."""
    found: dict[int, str] = {}
    for branch in outline.ops(If):
        block = counted_block(outline, branch.condition)
        if block:
            found.update((id(op), block) for op in branch.then.ops if isinstance(op, Loop))
    return found


def counted_block(outline: FunctionOutline, condition: Value) -> str:
    """Of ``atomic_add(counts, 1) == last // block``."""
    test = outline.definitions.get(condition)
    if not isinstance(test, Elementwise) or test.fn != "eq":
        return ""
    sides = [outline.definitions.get(arg) for arg in test.args]
    counts = [op for op in sides if isinstance(op, Atomic) and op.kind == "add"]
    ends = [op for op in sides if isinstance(op, Elementwise) and op.fn == "floordiv"]
    if not counts or not ends:
        return ""
    size = outline.definitions.get(ends[0].args[1])
    return size.block if isinstance(size, BlockSize) else ""
