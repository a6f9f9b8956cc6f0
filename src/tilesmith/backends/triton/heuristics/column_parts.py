"""Tiles of kernels with products and, in a loop of its own, a sum over the rows of an operand.

Programs of the sum come last, and take what the last products leave idle. Each has a
multiprocessor to itself, so it needs many rows in flight, and there should be few of them.

bf16 on an H200, us, all gradients of ``addmm`` with these tiles / with 128x128 ones by four warps
in three stages, two programs to a multiprocessor (torch.compile): 20120x512x512 63.8 / 57.4 (60.9),
20120x512x1536 118.7 / 117.9 (129.8), 34579x512x512 87.9 / 93.0 (86.8), 35916x1536x512 213 / 206
(199). Tiles of 64 rows for the sums, where threads hold 128 elements, 138 instead of 119.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilesmith.backends.triton.heuristics.matmul import multiply_adds
from tilesmith.backends.triton.heuristics.measured_tiles import LEAST_WORK
from tilesmith.backends.triton.heuristics.several_grids import GridSeed, SeveralGridsSeed
from tilesmith.backends.triton.heuristics.tile_sides import HALF, sized
from tilesmith.schedule.rules import TargetedKernel

ROWS, COLUMNS, ROWS_AT_ONCE = 256, 512, 32
"""Of a program that sums columns, and of one turn of its loop."""
PRODUCT = (128, 256, 64)
"""Of the products beside it that share no sum."""
LEAST_SHARED_BYTES = 144 << 10
"""Three stages of such tiles in halves."""


def beside_column_sums(
    kernel: TargetedKernel, seeds: Sequence[SeveralGridsSeed]
) -> list[SeveralGridsSeed]:
    """The seeds, the first with tiles for sums of columns; as they were for other kernels."""
    first, facts = seeds[0], kernel.facts.matmuls
    sums = {i: made for i, part in enumerate(first.parts) if (made := _of_columns(part))}
    is_long = all(f.itemsize == HALF and multiply_adds(f) >= LEAST_WORK for f in facts)
    has_room = (kernel.target.shared_bytes or 0) >= LEAST_SHARED_BYTES
    if not sums or not facts or not is_long or kernel.target.kind != "cuda" or not has_room:
        return list(seeds)
    parts = [sums.get(i) or _wide(part) for i, part in enumerate(first.parts)]
    return [replace(first, parts=tuple(parts)), *seeds]


def _of_columns(part: GridSeed) -> GridSeed | None:
    kernel = part.kernel
    grids, (outer, *others) = kernel.outline.grids, (*kernel.loop_blocks, "")
    is_alone = len(grids) == 1 and len(grids[0].blocks) == 2 and others == [""]
    if kernel.facts.matmuls or not is_alone:
        return None
    rows, columns = grids[0].blocks
    if kernel.outline.outer_bounds.get(outer) != rows:
        return None
    sizes = {rows: ROWS, columns: min(COLUMNS, kernel.whole(columns)), outer: ROWS_AT_ONCE}
    return replace(part, seed=replace(part.seed, blocks={**part.seed.blocks, **sizes}))


def _wide(part: GridSeed) -> GridSeed:
    """A product with tiles of the usual sides, unless it shares its sum."""
    facts, outer = part.kernel.facts.matmuls, part.kernel.outline.outer_bounds
    if len(facts) != 1 or isinstance(outer.get(facts[0].k.block or ""), str):
        return part
    (fact,) = facts
    tile = sized(*zip((fact.m, fact.n, fact.k), PRODUCT))
    return replace(part, seed=replace(part.seed, blocks={**part.seed.blocks, **tile}))
