"""How long the straight code of a program gets: what one thread does between two jumps back.

Compilers for GPUs write a tile's elements out one by one, and a loop's body as often as it is
unrolled. Long straight code spills, and takes minutes to compile.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from tilesmith.ir.ops.control_flow import Loop
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Load
from tilesmith.schedule.facts.outline import FunctionOutline, Site
from tilesmith.schedule.launch import Launch, LoopUse
from tilesmith.schedule.space.tile_sizes import TileSizes

MAX_MULTIPLIED = 2048
"""Multiply-adds of a thread without matrix units: offline builds with more nearly all spilled."""
MAX_MULTIPLIED_SLOWLY = 4096
"""More than these also take tens of seconds to compile."""
MAX_LOADED = 2048
"""Elements that a thread loads one by one: builds with more ran for minutes."""


@dataclass(frozen=True)
class CodeLength:
    """What one thread does in a straight line."""

    multiplied: int = 0
    """Multiply-adds of products that matrix units do not take."""
    loaded: int = 0
    """Elements, but for those that come through descriptors."""

    @property
    def is_short(self) -> bool:
        """Whether registers hold what such code keeps at hand."""
        return self.multiplied <= MAX_MULTIPLIED and self.loaded <= MAX_LOADED

    @property
    def is_compilable(self) -> bool:
        """Whether a compiler gets through it in seconds."""
        return self.multiplied <= MAX_MULTIPLIED_SLOWLY and self.loaded <= MAX_LOADED

    @property
    def problem(self) -> str:
        """What is too long, in numbers; nothing where all is short."""
        if self.multiplied > MAX_MULTIPLIED:
            return f"each thread would multiply {self.multiplied} times in one straight line"
        if self.loaded > MAX_LOADED:
            return f"each thread would load {self.loaded} elements in one straight line"
        return ""


NO_CODE = CodeLength()


class StraightCode:
    """Measures the straight code of one function under different Configs."""

    def __init__(self, structure: FunctionOutline, exact: Iterable[Dot]) -> None:
        self._exact = {id(dot) for dot in exact}
        self._sites = tuple(
            site
            for site in structure.sites
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
