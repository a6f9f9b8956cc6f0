"""Block sizes for checked runs: where possible more than one program along every axis.

With one program there is nothing to race with.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.ir.function import Function


def split_tile_sizes(function: Function, block_sizes: Sequence[int]) -> list[int]:
    """The given sizes, reduced to the largest power of two that splits the axis."""
    sizes = list(block_sizes)
    for block in function.blocks:
        if block.slot is None or block.slot >= len(sizes) or block.extent is None:
            continue
        largest = 1 << max(0, (block.extent - 1).bit_length() - 1)
        sizes[block.slot] = max(block.low, min(sizes[block.slot], largest))
    return sizes
