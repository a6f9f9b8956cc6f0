"""One top-level loop of a function, as a ``Structure`` of its own."""

from __future__ import annotations

from functools import cached_property

from tilesmith.ir.ops.control_flow import Grid, GridBarrier
from tilesmith.schedule.structure import Site, Structure


class GridStructure(Structure):
    """What a function without its other top-level loops would have.

    Definitions stay those of the whole function: bounds are computed before all loops.
    """

    def __init__(self, whole: Structure, grid: Grid) -> None:
        super().__init__(whole.function)
        self.sites = tuple(site for site in self.sites if _belongs(site, grid))

    @cached_property
    def block_slots(self) -> tuple[str, ...]:
        """Those of the blocks that occur in the loop."""
        used = {block for loop in self.all_loops for block in loop.blocks}
        shapes = [value.tile.shape for value in self.tile_values]
        used.update(symbol for shape in shapes for dim in shape for symbol in dim.symbols)
        return tuple(name for name in super().block_slots if name in used)


def _belongs(site: Site, grid: Grid) -> bool:
    if site.loops:
        return site.loops[0] is grid
    return site.op is grid or not isinstance(site.op, (Grid, GridBarrier))
