"""Tiles of kernels with products and, in a loop of their own, sums over rows of one of the operands.

Programs of the sums come last, and take what the last products leave idle. Each has a multiprocessor
to itself, beside no product, so it needs many rows in flight, and there should be few of them.
"""

from __future__ import annotations

from dataclasses import replace

from tilesmith.backends.triton.heuristics.several_grids import GridSeed, SeveralGridsSeed
from tilesmith.backends.triton.heuristics.sides.blocks import sized

ROWS, COLUMNS, ROWS_AT_ONCE = 256, 512, 32
"""Of a program that sums columns, and of one turn of its loop."""
PRODUCT = (128, 256, 64)
"""Of the products beside it that share no sum."""


def beside_column_sums(first: SeveralGridsSeed) -> SeveralGridsSeed:
    """The seed with tiles for sums of columns; as it was for kernels that have none."""
    sums = {i: made for i, part in enumerate(first.parts) if (made := _of_columns(part))}
    if not sums:
        return first
    parts = [sums.get(i) or _wide(part) for i, part in enumerate(first.parts)]
    return replace(first, parts=tuple(parts))


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
