"""Loops that are not unrolled, and loops that are not flattened, since Triton 3.6 fails on them.

Nothing is folded after loops are unrolled: where bounds are constants the condition of a branch
may then be one, and the pass that orders the threads of loads and stores knows nothing of those in
an arm that never runs. A sort inside of a flattened loop is left with two layouts of one tile.
Both end in "PassManager::run failed" (docs/decisions/0012).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilesmith.analysis.product_operands import has_loaded_bounds_inside
from tilesmith.ir.operation import Region, Trait
from tilesmith.ir.ops.control_flow import If, Loop, While
from tilesmith.ir.ops.rearrangement import EXCHANGING
from tilesmith.ir.ops.reduction import Reduce, ReduceWith, Scan, ScanWith
from tilesmith.ir.traversal import walk
from tilesmith.schedule.facts.outline import FunctionOutline
from tilesmith.schedule.schedule import LoopOptions
from tilesmith.schedule.space.slots import Entries, RangeEntry

_SUMS = (Reduce, Scan, ReduceWith, ScanWith)


def can_unroll(body: Region) -> bool:
    """Whether no branch in a loop loads or stores, nor a loop that may end at once."""
    branches = [op for op in walk(body) if isinstance(op, (If, While))]
    inside = (op for branch in branches for region in branch.regions() for op in walk(region))
    return not any(Trait.READS in op.traits or Trait.WRITES in op.traits for op in inside)


def searches_unrolled(outline: FunctionOutline, entry: RangeEntry) -> bool:
    """Unrolling the program loop copies all loops inside; Triton fails on some unrolled sums."""
    body = entry.loop.body
    has_sums = any(isinstance(op, _SUMS) for op in walk(body))
    return can_unroll(body) and not (outline.loops if entry.is_persistent_loop else has_sums)


def can_flatten(bodies: Sequence[Region]) -> bool:
    """Whether no loop inside of these bodies of one loop sorts."""
    loops = [op for body in bodies for op in walk(body) if isinstance(op, (Loop, While))]
    inside = (op for loop in loops for region in loop.regions() for op in walk(region))
    return not any(isinstance(op, EXCHANGING) for op in inside)


def searches_flattened(outline: FunctionOutline, entry: RangeEntry) -> bool:
    """In a flattened loop Triton also reads the bounds of inner loops for one turn too many.

    That is past the end of a tensor.
    """
    has_loaded_bounds = has_loaded_bounds_inside(entry.loop, outline.definitions)
    return not has_loaded_bounds and can_flatten([entry.loop.body])


def find_limit(entries: Entries, key: str, index: int) -> str:
    """Why the loop of an entry of a ``range_*`` list cannot have the option; "" where it can."""
    entry = entries.ranges[index]
    # All grids share one loop over programs.
    loops = [e.loop for e in entries.ranges if e.is_persistent_loop]
    bodies = [loop.body for loop in (loops if entry.is_persistent_loop else [entry.loop])]
    if key == "range_unroll_factors" and not all(map(can_unroll, bodies)):
        return "a branch in it loads or stores; Triton fails where such a loop is unrolled"
    if key == "range_flattens" and not can_flatten(bodies):
        return "a loop in it sorts; Triton fails where loops around that are flattened"
    return ""


def limited(options: LoopOptions, bodies: Sequence[Region]) -> LoopOptions:
    """The options without those that Triton fails on, for a loop around these bodies."""
    if options.unroll_factor > 1 and not all(map(can_unroll, bodies)):
        options = replace(options, unroll_factor=0)
    if options.flatten and not can_flatten(bodies):
        options = replace(options, flatten=None)
    return options
