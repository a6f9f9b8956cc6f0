"""Tiles of programs that walk columns, where there are few of them: they wait for loads.

112 sequences of up to 320 rows, 256 columns, eight warps and sums by lanes, ms on an H200: sums
with 128x64 (columns by rows) 0.0163, 64x64 0.0121, 32x128 0.0113, since there are more programs;
means, which walk columns by a loop of their own, with 128x64 0.0174, 256x64 0.0157, but of 512
columns 0.0327 and 0.0337: all at a time or none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilesmith.schedule.rules import TargetedKernel

NARROW, WIDE = 32, 256
"""Columns of a tile, where programs share them and where they do not."""
ELEMENTS = 4096


def few_walkers(
    kernel: TargetedKernel, blocks: Mapping[str, int], columns: Sequence[str]
) -> dict[str, int]:
    """Sizes of blocks of kernels that compute no functions of elements.

    Where programs have nothing but columns, as many as are wanted have been counted on already.
    """
    if kernel.programs(tuple(columns)) <= 1:
        return dict(blocks)
    shared = [name for name in columns if name in kernel.outline.grid_blocks]
    if not shared:
        whole = {name: kernel.whole(name) for name in columns if kernel.whole(name) <= WIDE}
        return {**blocks, **whole}
    wide = [name for name in shared if blocks[name] > NARROW]
    walked = [name for name in blocks if name not in columns] if wide else []
    rows = {name: min(kernel.whole(name), ELEMENTS // NARROW) for name in walked}
    return {**blocks, **rows, **dict.fromkeys(wide, NARROW)}
