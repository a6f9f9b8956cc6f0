"""What CPU heuristics answer, and the sizes of blocks that no formula is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from tilesmith.ir.types import Dim, Shape
from tilesmith.schedule.rules import TargetedKernel
from tilesmith.schedule.space.sizes import MIDDLING_TILE, power_of_2_floor

PROGRAMS_PER_CORE = 4
"""Enough that a thread which starts late or is interrupted holds up no other."""

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
        wanted = PROGRAMS_PER_CORE * kernel.target.num_sms
        if kernel.facts.matmuls and count_programs(kernel, sizes) < wanted:
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
    return max(whole, MIDDLING_TILE) if is_guess(kernel, block) else whole


def programs_share(kernel: TargetedKernel, extent: int) -> int:
    """The largest power of two that leaves every core its programs along such an axis."""
    return power_of_2_floor(extent / (PROGRAMS_PER_CORE * kernel.target.num_sms))


def count_programs(kernel: TargetedKernel, sizes: Mapping[str, int]) -> int:
    """How many programs the first grid has under these block sizes."""
    blocks = [b for grid in kernel.outline.grids[:1] for b in grid.blocks if b in sizes]
    tuned = [-(-kernel.extent(block, 1) // sizes[block]) for block in blocks]
    return kernel.programs(tuple(blocks)) * prod(tuned)


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
    names = [name for name in _by_contiguity(kernel) if name not in sizes]
    for name in names:
        share = programs_share(kernel, kernel.extent(name))
        room = share if name in outer else _room(kernel, sizes, name)
        sizes[name] = max(kernel.minimum(name), min(room, longest(kernel, name)))
    for inner, bound in kernel.outline.outer_bounds.items():
        if isinstance(bound, str) and bound in sizes and inner in sizes:
            sizes[bound] = max(sizes[bound], sizes[inner])
    return sizes


def _by_contiguity(kernel: TargetedKernel) -> list[str]:
    """Blocks along memory first, then from the last to the first."""
    along = {fact.contiguous_block for fact in kernel.facts.accesses}
    names = kernel.entries.blocks[::-1]
    return sorted(names, key=lambda name: name not in along)


def _room(kernel: TargetedKernel, sizes: Mapping[str, int], name: str) -> int:
    """How long the block may be for its largest tile to have a middling size."""

    def elements(shape: Shape) -> int:
        cuts = [sizes.get(symbol, 1) for dim in shape for symbol in dim.symbols]
        return prod(cuts) * untiled_elements(kernel, shape)

    shapes = {value.tile.shape for value in kernel.outline.tile_values}
    own = [shape for shape in shapes if any(name in dim.symbols for dim in shape)]
    return power_of_2_floor(MIDDLING_TILE / max(map(elements, own), default=1))
