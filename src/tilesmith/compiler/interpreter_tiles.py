"""Block sizes for the reference interpreter: whole tensors, or several programs to check.

The interpreter pays per op, not per element, so one whole-tensor tile is the fastest schedule; only
values that would grow beyond the bound (broadcast products, for one) are tiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilesmith.ir.function import Function
from tilesmith.ir.traversal import walk_function
from tilesmith.ir.types import Shape, TileType, next_power_of_2

MAX_TILE_ELEMENTS = 1 << 25
UNKNOWN_EXTENT = 1 << 20


def whole_tile_sizes(function: Function) -> dict[str, int]:
    """A size for every tuned block."""
    sizes = {
        block.name: next_power_of_2(
            UNKNOWN_EXTENT if block.extent is None else max(1, block.extent)
        )
        for block in function.blocks
        if block.fixed is None
    }
    shapes = {
        value.type.shape
        for op in walk_function(function)
        for value in op.results
        if isinstance(value.type, TileType)
    }
    limits = {block.name: block.extent or UNKNOWN_EXTENT for block in function.blocks}
    for shape in shapes:
        _shrink(function, shape, sizes, limits)
    return sizes


def _shrink(
    function: Function, shape: Shape, sizes: dict[str, int], limits: dict[str, int]
) -> None:
    """Halve the largest block of a shape until it fits."""
    factors = [factor for dim in shape for factor in dim.factors]
    blocks = [factor for factor in factors if isinstance(factor, str) and factor in sizes]
    fixed = prod(function.hint(f) if isinstance(f, str) else f for f in factors if f not in sizes)
    while blocks:
        largest = max(blocks, key=sizes.__getitem__)
        elements = fixed * prod(min(sizes[block], limits[block]) for block in blocks)
        if elements <= MAX_TILE_ELEMENTS or sizes[largest] == 1:
            return
        sizes[largest] //= 2


def split_tile_sizes(function: Function, block_sizes: Sequence[int]) -> list[int]:
    """The given sizes, reduced to the largest power of two that splits the axis.

    For checked runs: with one program along an axis there is nothing to race with.
    """
    sizes = list(block_sizes)
    for block in function.blocks:
        if block.slot is None or block.slot >= len(sizes) or block.extent is None:
            continue
        largest = 1 << max(0, (block.extent - 1).bit_length() - 1)
        sizes[block.slot] = max(block.low, min(sizes[block.slot], largest))
    return sizes
