"""Block sizes for the reference interpreter: tiles as large as the semantics allow, within a memory bound.

The interpreter pays per op, not per element, so one whole-tensor tile is the fastest schedule; only values that
would grow beyond the bound (broadcast products, for one) are tiled.
"""

from __future__ import annotations

from tilesmith.ir.function import Function
from tilesmith.ir.traversal import walk_function
from tilesmith.ir.types import TileType
from tilesmith.schedule.schedule import next_power_of_2

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
    limits = {block.name: block.extent or 1 for block in function.blocks}
    for shape in shapes:
        _shrink(function, shape, sizes, limits)
    return sizes


def _shrink(
    function: Function, shape: object, sizes: dict[str, int], limits: dict[str, int]
) -> None:
    """Halve the largest block of a shape until it fits."""
    while True:
        elements = 1
        blocks: list[str] = []
        for dim in shape:  # type: ignore[attr-defined]
            for factor in dim.factors:
                if isinstance(factor, int):
                    elements *= factor
                elif factor in sizes:
                    elements *= min(sizes[factor], limits[factor])
                    blocks.append(factor)
                elif not function.is_block(factor):
                    elements *= function.hint(factor)
        largest = max(blocks, key=sizes.__getitem__, default=None)
        if elements <= MAX_TILE_ELEMENTS or largest is None or sizes[largest] == 1:
            return
        sizes[largest] //= 2
