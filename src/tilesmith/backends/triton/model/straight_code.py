"""How long the straight code of a program gets: what one thread does between two jumps back.

Compilers for GPUs write a tile's elements out one by one, and a loop's body as often as it is
unrolled. Long straight code spills, and takes minutes to compile.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from tilesmith.backends.triton.model.launch import Launch, LoopUse
from tilesmith.ir.ops.control_flow import Loop
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Load
from tilesmith.schedule.facts.outline import FunctionOutline, Site
from tilesmith.schedule.model.resources import CodeLength
from tilesmith.schedule.space.sizes import TileSizes


class StraightCode:
    """Measures the straight code of one function under different Configs."""

    def __init__(self, outline: FunctionOutline, exact: Iterable[Dot]) -> None:
        self._exact = {id(dot) for dot in exact}
        self._sites = tuple(
            site
            for site in outline.sites
            if isinstance(site.op, Load) or id(site.op) in self._exact
        )

    def length(self, sizes: TileSizes, launch: Launch, warp_size: int) -> CodeLength:
        """The longest that any thread has to go through."""
        threads = launch.num_warps * warp_size
        multiplied, loaded = 0, dict[int, int]()
        for site in self._sites:
            copies = _copies(site, launch)
            if isinstance(site.op, Dot):
                multiplied = max(multiplied, copies * _multiply_adds(site.op, sizes) // threads)
            elif isinstance(site.op, Load) and site.op.slot not in launch.descriptors:
                place = id(site.loops[-1]) if site.loops else 0
                elements = sizes.numel(site.op.result.tile.shape) // threads
                loaded[place] = loaded.get(place, 0) + copies * elements
        return CodeLength(multiplied, max(loaded.values(), default=0))


def _copies(site: Site, launch: Launch) -> int:
    """How often the code of an op is written out."""
    loops = [loop for loop in site.loops if isinstance(loop, Loop)]
    unrolls = [max(1, launch.loops.get(loop.slot, LoopUse()).unroll) for loop in loops]
    return prod(unrolls) * (max(1, launch.program_loop.unroll) if launch.is_persistent else 1)


def _multiply_adds(dot: Dot, sizes: TileSizes) -> int:
    return sizes.numel(dot.lhs.tile.shape) * sizes.size(dot.rhs.tile.shape[-1])
