"""What a heuristic is asked about (a situation) and what it answers (seeds)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from tilesmith.ir.types import Dim
from tilesmith.schedule.facts.accesses import AccessFact
from tilesmith.schedule.facts.collect import Facts
from tilesmith.schedule.facts.outline import AnyLoop, FunctionOutline
from tilesmith.schedule.schedule import next_power_of_2
from tilesmith.schedule.space.block_bounds import block_minimum
from tilesmith.schedule.space.slots import Entries
from tilesmith.targets import Target


@dataclass(frozen=True)
class Situation:
    """A kernel on a target."""

    structure: FunctionOutline
    facts: Facts
    entries: Entries
    target: Target
    _minimums: dict[str, int] = field(default_factory=dict[str, int], compare=False, repr=False)

    def minimum(self, block: str) -> int:
        """The least size of a block."""
        if block not in self._minimums:
            least = block_minimum(self.structure, self.facts, self.target, block)
            self._minimums[block] = least
        return self._minimums[block]

    def extent(self, block: str, unknown: int = 4096) -> int:
        """How far the block's axis ranges; ``unknown`` where that is not known."""
        extent = self.structure.extent(Dim.of(block))
        return unknown if extent is None else extent

    def whole(self, block: str) -> int:
        """The block size that covers the whole axis."""
        return max(self.minimum(block), next_power_of_2(self.extent(block)))

    @property
    def loop_blocks(self) -> tuple[str, ...]:
        """Tunable blocks that only sequential loops step by."""
        return tuple(b for b in self.entries.blocks if b not in self.structure.grid_blocks)

    def programs(self, besides: tuple[str | None, ...]) -> int:
        """How many programs the grid has for each tile of the given blocks."""
        axes = [axis for grid in self.structure.grids[:1] for axis in self.structure.axes_of(grid)]
        counts = [
            -(-(axis.extent or 1) // self._pinned(axis.block))
            for axis in axes
            if not axis.block or axis.block not in besides
        ]
        return max(1, prod(counts))

    def _pinned(self, block: str) -> int:
        function = self.structure.function
        return (function.block(block).fixed or 1) if function.is_block(block) else 1


def copied(situation: Situation, is_wanted: Callable[[AccessFact], bool]) -> dict[str, list[str]]:
    """The option that sends accesses through the copy engine, where they are wanted and fit."""
    facts = [fact for fact in situation.facts.accesses if fact.kind != "atomic"]
    fits = [fact.fits_descriptor and is_wanted(fact) for fact in facts]
    return {"indexing": ["tensor_descriptor" if fit else "pointer" for fit in fits]}


def in_one_loop(situation: Situation) -> dict[str, Any]:
    """The options for programs that walk several tiles in one loop with what is inside.

    The operands of the next tile arrive while this one is finished.
    """
    flattens = [True, *[None] * (len(situation.entries.ranges) - 1)]
    return {"pid_type": "persistent_interleaved", "range_flattens": flattens}


@dataclass(frozen=True)
class Seed:
    """Block sizes by name and other values of a Config; blocks not named take their minimum."""

    blocks: Mapping[str, int]
    num_warps: int = 4
    num_stages: int = 1
    l2_grouping: int = 1
    chunks: Mapping[Dim, int] = field(default_factory=dict[Dim, int])
    """Chunk sizes of rolled reductions; others are resident."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    fastest: tuple[str | None, ...] = ()
    """Blocks whose tiles follow one another in the grid; other axes (batches) vary more slowly."""

    def values(self, situation: Situation) -> dict[str, Any]:
        """The keys of a Config."""
        entries = situation.entries
        return {
            "block_sizes": self._block_sizes(situation),
            "num_warps": min(self.num_warps, 1024 // situation.target.warp_size),
            "num_stages": self.num_stages,
            "l2_groupings": [self.l2_grouping for _ in entries.grouped[:1]],
            "loop_orders": [self.order(entries.ordered[0])] if entries.ordered else [],
            "reduction_loops": [self.chunks.get(dim) for dim in entries.rolled],
            **self.options,
        }

    def order(self, loop: AnyLoop) -> list[int]:
        """The axes of a loop, the fastest first."""
        first = [i for i, block in enumerate(loop.blocks) if block and block in self.fastest]
        return first + [i for i in range(len(loop.blocks)) if i not in first]

    def _block_sizes(self, situation: Situation) -> list[int]:
        sizes = {
            name: next_power_of_2(max(situation.minimum(name), self.blocks.get(name, 1)))
            for name in situation.entries.blocks
        }
        # An outer tile is at least as large as the tiles that walk it.
        for inner, outer in situation.structure.outer_bounds.items():
            if isinstance(outer, str) and outer in sizes and inner in sizes:
                sizes[outer] = max(sizes[outer], sizes[inner])
        return list(sizes.values())
