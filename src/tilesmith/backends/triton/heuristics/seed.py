"""What a heuristic is asked about (a kernel) and what it answers (seeds)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilesmith.ir.types import Dim, next_power_of_2
from tilesmith.schedule.facts.accesses import AccessFact
from tilesmith.schedule.facts.outline import AnyLoop
from tilesmith.schedule.rules import TargetedKernel
from tilesmith.schedule.space.sizes import power_of_2_floor


def copied(kernel: TargetedKernel, is_wanted: Callable[[AccessFact], bool]) -> dict[str, list[str]]:
    """The option that sends accesses through the copy engine, where they are wanted and fit."""
    facts = [fact for fact in kernel.facts.accesses if fact.kind != "atomic"]
    fits = [fact.fits_descriptor and is_wanted(fact) for fact in facts]
    return {"indexing": ["tensor_descriptor" if fit else "pointer" for fit in fits]}


def in_one_loop(kernel: TargetedKernel) -> dict[str, Any]:
    """The options for programs that walk several tiles in one loop with what is inside.

    The operands of the next tile arrive while this one is finished.
    """
    flattens = [True, *[None] * (len(kernel.entries.ranges) - 1)]
    return {"pid_type": "persistent_interleaved", "range_flattens": flattens}


@dataclass(frozen=True)
class GpuSeed:
    """Block sizes by name and other values of a Config; of others a grid's take their minimum."""

    blocks: Mapping[str, int]
    num_warps: int = 4
    num_stages: int = 1
    l2_grouping: int = 1
    chunks: Mapping[Dim, int] = field(default_factory=dict[Dim, int])
    """Chunk sizes of rolled reductions; others are resident."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    fastest: tuple[str | None, ...] = ()
    """Blocks whose tiles follow one another in the grid; other axes (batches) vary more slowly."""

    def values(self, kernel: TargetedKernel) -> dict[str, Any]:
        """The keys of a Config."""
        entries = kernel.entries
        return {
            "block_sizes": self._block_sizes(kernel),
            # Rules divide elements by those of a warp: what they find need not be a power of two.
            "num_warps": power_of_2_floor(min(self.num_warps, 1024 // kernel.target.warp_size)),
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

    def _block_sizes(self, kernel: TargetedKernel) -> list[int]:
        loops = [b for b in kernel.loop_blocks if kernel.facts.matmuls and kernel.minimum(b) == 1]
        named = {**dict.fromkeys(loops, 64), **self.blocks}  # one in a turn would be slow
        sizes = {
            name: next_power_of_2(
                max(kernel.minimum(name), min(named.get(name, 1), kernel.maximum(name)))
            )
            for name in kernel.entries.blocks
        }
        # An outer tile is at least as large as the tiles that walk it.
        for inner, outer in kernel.outline.outer_bounds.items():
            if isinstance(outer, str) and outer in sizes and inner in sizes:
                sizes[outer] = max(sizes[outer], sizes[inner])
        return list(sizes.values())
