"""What CPU heuristics answer, for elementwise kernels and reductions, and sizes of other blocks.

Elementwise kernels get long runs of memory, several for each core. Reductions get one long row for
each program, or many short ones: tiles are never held whole, so rows stay in one piece up to any
length; what is read twice comes from the second cache. Loops over tiles that the user wrote get
tiles of half the first cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from tilesmith.backends.cpu.op_costs import elements_worth
from tilesmith.backends.cpu.schedule.transposed import fit_lines
from tilesmith.ir.types import Dim, Shape
from tilesmith.schedule.facts.products import ReductionFact
from tilesmith.schedule.rules import TargetedKernel
from tilesmith.schedule.space.sizes import MIDDLING_TILE, power_of_2_floor

PROGRAMS_PER_CORE = 4
"""Enough that a thread which starts late or is interrupted holds up no other."""
FEW_PROGRAMS_PER_CORE = 16
"""So few products are taken one by one: a core that is held up leaves the rest to others. Measured
on two cores: 2 to 3 % at 512^3 and 1024^3 (8 and 16 programs)."""

SERIAL_ELEMENTS = 1 << 15
"""Waking other threads takes longer than working through this many elements."""


@dataclass(frozen=True)
class CpuSeed:
    """Block sizes by name; blocks not named get tiles of a middling size."""

    blocks: Mapping[str, int]
    chunks: Mapping[Dim, int] = field(default_factory=dict[Dim, int])
    """Chunk sizes of rolled reductions; others are resident."""

    def values(self, kernel: TargetedKernel) -> dict[str, Any]:
        """The keys of a Config."""
        sizes = complete_blocks(kernel, self.blocks)
        values: dict[str, Any] = {
            "block_sizes": [sizes[name] for name in kernel.entries.blocks],
            "reduction_loops": [self.chunks.get(dim) for dim in kernel.entries.rolled],
        }
        few = FEW_PROGRAMS_PER_CORE * kernel.target.num_sms
        if kernel.facts.matmuls and count_programs(kernel, sizes) < few:
            values["cpu_schedule"] = "dynamic"
        return values


def is_guess(kernel: TargetedKernel, block: str) -> bool:
    """Whether the extent of a block's axis is only that of the first call."""
    outline = kernel.outline
    return any(
        outline.find_constant(axis.loop.ends[axis.position]) is None
        and outline.find_length_bound(axis.loop, axis.position) is None
        for loop in outline.all_loops
        for axis in outline.axes_of(loop)
        if axis.block == block
    )


def longest(kernel: TargetedKernel, block: str) -> int:
    """The longest useful block: all of its axis, or more where later calls may be larger."""
    whole = kernel.whole(block)
    useful = max(whole, MIDDLING_TILE) if is_guess(kernel, block) else whole
    return min(useful, kernel.maximum(block))


def programs_share(kernel: TargetedKernel, extent: int) -> int:
    """The largest power of two that leaves every core its programs along such an axis."""
    return power_of_2_floor(extent / (PROGRAMS_PER_CORE * kernel.target.num_sms))


def count_programs(kernel: TargetedKernel, sizes: Mapping[str, int]) -> int:
    """How many programs the first grid has under these block sizes."""
    blocks = [b for grid in kernel.outline.grids[:1] for b in grid.blocks if b in sizes]
    tuned = [-(-kernel.extent(block, 1) // sizes[block]) for block in blocks]
    return kernel.programs(tuple(blocks)) * prod(tuned)


def count_beside(kernel: TargetedKernel, *blocks: str | None) -> int:
    """How many programs there are for each tile of these blocks, in the grid that steps by one."""
    outline, total = kernel.outline, 1
    own = [grid for grid in outline.grids if not set(blocks).isdisjoint(grid.blocks)]
    for grid in (own or outline.grids)[:1]:
        for axis in outline.axes_of(grid):
            if not axis.block or axis.block not in blocks:
                is_block = bool(axis.block) and outline.function.is_block(axis.block)
                fixed = outline.function.block(axis.block).fixed if is_block else 1
                total *= -(-(axis.extent or 1) // (fixed or 1))
    return max(1, total)


def untiled_elements(kernel: TargetedKernel, shape: Shape) -> int:
    """The product of the axes of a tile that no tuned block cuts."""
    tuned = set(kernel.entries.blocks)
    whole = [dim for dim in shape if tuned.isdisjoint(dim.symbols)]
    return prod(max(1, kernel.outline.extent(dim) or 1) for dim in whole)


def shapes_with(kernel: TargetedKernel, dim: Dim) -> set[Shape]:
    """The shapes of all tiles along one dimension."""
    shapes = {value.tile.shape for value in kernel.outline.tile_values}
    return {shape for shape in shapes if dim in shape}


def spread(kernel: TargetedKernel, names: Iterable[str], elements: float) -> dict[str, int]:
    """Give the elements to the blocks in turn, each as many as its axis takes."""
    blocks: dict[str, int] = {}
    for name in names:
        blocks[name] = min(longest(kernel, name), power_of_2_floor(elements))
        elements /= max(1, min(blocks[name], kernel.extent(name)))
    return blocks


def complete_blocks(kernel: TargetedKernel, blocks: Mapping[str, int]) -> dict[str, int]:
    """A size for every block: at least its minimum, at most its axis, and of a useful tile."""
    sizes: dict[str, int] = {
        name: max(kernel.minimum(name), min(size, longest(kernel, name)))
        for name, size in blocks.items()
    }
    outer = set(kernel.outline.outer_bounds.values())
    # Blocks along memory first, then from the last to the first.
    along = {fact.contiguous_block for fact in kernel.facts.accesses}
    names = [name for name in kernel.entries.blocks[::-1] if name not in sizes]
    for name in sorted(names, key=lambda name: name not in along):
        share = programs_share(kernel, kernel.extent(name))
        room = share if name in outer else _room(kernel, sizes, name)
        sizes[name] = max(kernel.minimum(name), min(room, longest(kernel, name)))
    for inner, bound in kernel.outline.outer_bounds.items():
        if isinstance(bound, str) and bound in sizes and inner in sizes:
            most = max(kernel.minimum(inner), kernel.maximum(bound))
            sizes[inner] = min(sizes[inner], most)
            sizes[bound] = max(sizes[bound], sizes[inner])
    return sizes


def _room(kernel: TargetedKernel, sizes: Mapping[str, int], name: str) -> int:
    """How long the block may be for its largest tile to have a middling size."""

    def elements(shape: Shape) -> int:
        cuts = [sizes.get(symbol, 1) for dim in shape for symbol in dim.symbols]
        return prod(cuts) * untiled_elements(kernel, shape)

    shapes = {value.tile.shape for value in kernel.outline.tile_values}
    own = [shape for shape in shapes if any(name in dim.symbols for dim in shape)]
    return power_of_2_floor(MIDDLING_TILE / max(map(elements, own), default=1))


LEAST_ELEMENTS, MOST_ELEMENTS = 1 << 14, 1 << 16
"""Of one program: enough to hide its start, few enough to stay in the second cache."""
RUN_ELEMENTS = 1 << 14


def pointwise_seeds(kernel: TargetedKernel) -> list[CpuSeed]:
    """A seed, and one with four times shorter programs."""
    fact = kernel.facts.pointwise
    if fact is None or not kernel.entries.blocks:
        return []
    along = _blocks_along_memory(kernel)
    slab = max(1, fact.slab)
    is_known = not any(is_guess(kernel, name) for name in kernel.entries.blocks)
    worth = elements_worth(site.op for site in kernel.outline.sites)
    if is_known and fact.total is not None and fact.total * slab * worth <= SERIAL_ELEMENTS:
        return [CpuSeed({name: longest(kernel, name) for name in kernel.entries.blocks})]
    if len(along) > 1:
        return [CpuSeed(_square(kernel, along))]
    total = LEAST_ELEMENTS if fact.total is None else fact.total * slab
    least = power_of_2_floor(LEAST_ELEMENTS / worth)
    elements = min(max(programs_share(kernel, total), least), MOST_ELEMENTS)
    sizes = (elements, max(elements // 4, least // 4))
    return [CpuSeed(_along_memory(kernel, along, size / slab)) for size in sizes]


def _blocks_along_memory(kernel: TargetedKernel) -> list[str]:
    """Blocks along which tensors of full rank lie; indices and biases are short beside them."""
    facts = [fact for fact in kernel.facts.accesses if not fact.is_scalar]
    tiled = {id(f): {symbol for dim in f.shape for symbol in dim.symbols} for f in facts}
    most = max(map(len, tiled.values()), default=0)
    along = {fact.contiguous_block for fact in facts if len(tiled[id(fact)]) == most}
    return [name for name in kernel.entries.blocks if name in along]


def _along_memory(kernel: TargetedKernel, along: list[str], elements: float) -> dict[str, int]:
    """Runs along memory, then as many of them as there is room for."""
    names = [name for name in reversed(kernel.entries.blocks) if name not in along]
    runs = spread(kernel, along, min(elements, RUN_ELEMENTS))
    length = max(runs.values(), default=1)
    others = spread(kernel, names, elements / length)
    count = max(1, power_of_2_floor(elements / length))
    for size in others.values():
        count = max(1, count // size)
    longer = {name: min(longest(kernel, name), size * count) for name, size in runs.items()}
    return {**others, **longer}


def _square(kernel: TargetedKernel, names: list[str]) -> dict[str, int]:
    """Tiles for axes that all run along some tensor's memory: two of them fit the first cache."""
    elements = kernel.target.l1_bytes / (2 * 4)
    side = power_of_2_floor(elements ** (1 / len(names)))
    square = dict.fromkeys(names, side)
    sizes = fit_lines(square, kernel.facts.accesses, kernel.target)
    return {name: min(longest(kernel, name), size) for name, size in sizes.items()}


LONG_ROW = 256
"""A row of this many elements is worth a program of its own."""
SHORT_ROWS_ELEMENTS = 4096
RUNTIME_ROWS = 16
"""Where rows are short in the first call only."""
MIN_LANES, MAX_LANES = 64, 512
"""Elements side by side where rows are added up, one accumulator for each."""


@dataclass(frozen=True)
class Rows:
    """One reduction, and the blocks and sizes of the tiles it stands in."""

    kernel: TargetedKernel
    fact: ReductionFact
    slab: int
    """Elements of a tile that no block cuts."""
    grid_blocks: tuple[str, ...]
    loop_blocks: tuple[str, ...]

    @staticmethod
    def of(kernel: TargetedKernel, fact: ReductionFact) -> Rows:
        """Read the tiles along the reduced axis."""
        dim = fact.axis.dim
        shapes = shapes_with(kernel, dim)
        slab = max((untiled_elements(kernel, shape) for shape in shapes), default=1)
        symbols = {symbol for shape in shapes for other in shape for symbol in other.symbols}
        names = [n for n in kernel.entries.blocks if n in symbols and n not in dim.symbols]
        loops = tuple(name for name in names if name in kernel.loop_blocks)
        return Rows(kernel, fact, slab, tuple(n for n in names if n not in loops), loops)

    @property
    def has_runtime_length(self) -> bool:
        """Whether a later call may have longer rows."""
        is_block = self.kernel.outline.function.is_block
        symbols = self.fact.axis.dim.symbols
        return any(not is_block(s) or is_guess(self.kernel, s) for s in symbols)

    @property
    def l1_elements(self) -> int:
        """Elements of a tile that takes half of the first cache."""
        return self.kernel.target.l1_bytes // (2 * max(4, self.fact.dtype.itemsize))

    def rows(self, width: int) -> dict[str, int]:
        """Rows of that length for each program: one, or many short ones."""
        if width >= LONG_ROW:
            return dict.fromkeys(self.grid_blocks, 1)
        total = prod(map(self.kernel.extent, self.grid_blocks))
        count = SHORT_ROWS_ELEMENTS // max(1, width)
        if self.has_runtime_length:
            count = min(count, RUNTIME_ROWS)
        if total * width > SERIAL_ELEMENTS:
            count = min(count, programs_share(self.kernel, total))
        return spread(self.kernel, reversed(self.grid_blocks), count)

    def inner(self, width: int) -> dict[str, int]:
        """Sizes of loops inside a program, for a tile of half the first cache."""
        return spread(self.kernel, reversed(self.loop_blocks), self.l1_elements / max(1, width))

    def find_lanes(self) -> str | None:
        """The block of the axis along memory, where that is not the reduced one."""
        dim = self.fact.axis.dim
        facts = [fact for fact in self.kernel.facts.accesses if dim in fact.shape]
        if any(fact.contiguous_dim == dim for fact in facts):
            return None
        names = (*self.grid_blocks, *self.loop_blocks)
        found = [fact.contiguous_block for fact in facts if fact.contiguous_block in names]
        return found[0] if found else None

    def columns(self, lanes: str) -> dict[str, int]:
        """Lanes along memory, and one of everything else."""
        width = min(MAX_LANES, longest(self.kernel, lanes))
        if lanes in self.grid_blocks:
            share = programs_share(self.kernel, self.kernel.extent(lanes))
            width = min(width, max(MIN_LANES, share))
        return {**dict.fromkeys((*self.grid_blocks, *self.loop_blocks), 1), lanes: width}


def reduction_seeds(kernel: TargetedKernel) -> list[CpuSeed]:
    """A seed for the longest reduction."""
    facts = kernel.facts.reductions
    if not facts or kernel.facts.matmuls:
        return []
    whole = [fact for fact in facts if fact.kind != "tile"]
    if whole:
        return _whole_row_seeds(Rows.of(kernel, _longest(whole)))
    blocks = {*kernel.outline.grid_blocks}
    looped = [fact for fact in facts if not blocks & {*fact.axis.dim.symbols}]
    return [_tile_seed(Rows.of(kernel, _longest(looped or list(facts))))]


def _longest(facts: list[ReductionFact]) -> ReductionFact:
    return max(facts, key=lambda fact: fact.axis.extent_or(1024))


def _whole_row_seeds(rows: Rows) -> list[CpuSeed]:
    """Resident rows; in chunks, for a search, where a row is too long for the second cache."""
    lanes = rows.find_lanes()
    if lanes is not None:
        return [CpuSeed(rows.columns(lanes))]
    blocks = {**rows.rows(rows.slab), **rows.inner(rows.slab)}
    seed = CpuSeed(blocks)
    quarter = rows.kernel.target.l2_bytes // (4 * 4)
    if rows.fact.kind != "rollable" or rows.slab <= 4 * quarter:
        return [seed]
    return [seed, CpuSeed(blocks, {rows.fact.axis.dim: power_of_2_floor(quarter)})]


def _tile_seed(rows: Rows) -> CpuSeed:
    """Reductions over tiles that the user's own loops walk."""
    kernel, block = rows.kernel, rows.fact.axis.block
    if block is None or block not in kernel.entries.blocks:
        return CpuSeed({})
    lanes = rows.find_lanes()
    if lanes is not None:
        columns = rows.columns(lanes)
        length = power_of_2_floor(rows.l1_elements / (columns[lanes] * rows.slab))
        return CpuSeed({**columns, block: length})
    length = min(longest(kernel, block), power_of_2_floor(rows.l1_elements / rows.slab))
    width = rows.slab * min(length, kernel.extent(block))
    return CpuSeed({**rows.inner(width), **rows.rows(width), block: length})
