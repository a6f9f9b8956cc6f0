"""CPU schedules of reductions: one long row for each program, or many short ones.

Tiles are never held whole, so rows stay in one piece up to any length; what is read twice comes
from the second cache. Loops over tiles that the user wrote get tiles of half the first cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tilesmith.backends.cpu.schedule.seed import (
    SERIAL_ELEMENTS,
    CpuSeed,
    is_guess,
    longest,
    programs_share,
    shapes_with,
    spread,
    untiled_elements,
)
from tilesmith.schedule.facts.products import ReductionFact
from tilesmith.schedule.rules import TargetedKernel
from tilesmith.schedule.space.sizes import power_of_2_floor

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
    looped = [fact for fact in facts if not set(fact.axis.dim.symbols) & _grid_blocks(kernel)]
    return [_tile_seed(Rows.of(kernel, _longest(looped or list(facts))))]


def _grid_blocks(kernel: TargetedKernel) -> set[str]:
    return set(kernel.outline.grid_blocks)


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
