"""The plan of a program: steps in order, most of them nests of loops with what they compute.

The plan is what is shown to users and what machine code is made from.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilesmith.backends.cpu.loop_ir.nests import Layout
from tilesmith.backends.cpu.planning.coordinates import Place, access_places
from tilesmith.backends.cpu.planning.virtual_tiles import Closure, VirtualTiles
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Loop
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Atomic, Store
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.values import Value


@dataclass(frozen=True, eq=False)
class Root:
    """One thing a nest is for: a store, an atomic, a reduction, or a tile to keep.

    ``place`` is the element that each step computes. A kept tile is written to the buffer of
    ``target``: its own, or that of the carried value or result which it becomes.
    """

    op: Operation
    place: Place
    target: Value | None = None

    @property
    def is_keep(self) -> bool:
        """Whether the root fills a buffer."""
        return self.target is not None

    @property
    def is_own_keep(self) -> bool:
        """Whether a virtual tile is stored under its own name."""
        return self.target is self.place[0]

    def places(self) -> list[Place]:
        """Every element needed for one element of the root."""
        if not self.is_keep and isinstance(self.op, (Store, Atomic)):
            value, coords = self.place
            return [self.place, *access_places(self.op, value.tile.shape, coords)]
        return [self.place]

    def closure(self, tiles: VirtualTiles) -> Closure:
        """Everything computed for one element of the root."""
        if self.is_own_keep:
            return tiles.own_closure(self.place)
        return tiles.join(self.places())


@dataclass(eq=False)
class Nest:
    """Loops over one space, computing all roots in one go."""

    layout: Layout
    roots: list[Root] = field(default_factory=list[Root])

    @property
    def reductions(self) -> list[tuple[Root, Reduce]]:
        """The roots that are reductions."""
        return [(r, r.op) for r in self.roots if not r.is_keep and isinstance(r.op, Reduce)]


@dataclass(frozen=True, eq=False)
class DotStep:
    """A matrix product into the buffer of its result."""

    op: Dot
    accumulates: bool
    """Whether the buffer holds the accumulator already."""
    starts_in: Loop | None = None
    """The loop in whose first iteration the accumulator is zero and the buffer holds nothing."""


@dataclass(frozen=True, eq=False)
class OpStep:
    """An op done at once, with the steps of each of its regions; carried tiles are in buffers."""

    op: Operation
    bodies: tuple[list[Step], ...] = ()


Step = Nest | DotStep | OpStep


@dataclass(eq=False)
class Program:
    """One grid's body as steps, with the buffers it needs."""

    steps: list[Step]
    buffers: dict[Value, None] = field(default_factory=dict[Value, None])
    """Tiles in memory, in the order in which they were found."""
    aliases: dict[Value, Value] = field(default_factory=dict[Value, Value])
    """Values that share the buffer of another."""
    spilled: dict[Value, Store] = field(default_factory=dict[Value, Store])
    """Tiles kept where a later store will put its result."""
    starts: dict[Dot, Loop] = field(default_factory=dict[Dot, Loop])
    """Products whose accumulator a loop begins with as zeros that nobody writes."""
    used: frozenset[Value] = frozenset()
    """Values that some op looks at."""

    def buffer_of(self, value: Value) -> Value:
        """The tile whose buffer a value lies in."""
        while value in self.aliases:
            value = self.aliases[value]
        return value
