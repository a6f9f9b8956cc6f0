"""The plan of a program: steps in order, most of them nests of loops with what they compute.

The plan is what is shown to users and what machine code is made from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from tilesmith.backends.cpu.coordinates import Place, access_places
from tilesmith.backends.cpu.packed_operands import PackedOperand, PackedTensor
from tilesmith.backends.cpu.virtual_tiles import Closure, VirtualTiles
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Grid, If, Loop, While
from tilesmith.ir.ops.foreign import Print
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.ops.rearrangement import Sort
from tilesmith.ir.ops.reduction import Reduce, ReduceWith, Scan, ScanWith
from tilesmith.ir.types import Shape
from tilesmith.ir.values import Value


class Form(Enum):
    """How a nest's loops are arranged."""

    ROWS = "rows"
    """Lanes along the innermost loop; reductions go along the lanes."""
    COLUMNS = "columns"
    """Lanes across the innermost loop, along which every column is reduced."""
    ONE_BY_ONE = "one by one"
    """No lanes: elements in row-major order."""


@dataclass(frozen=True)
class Layout:
    """The loops of a nest: roots of equal layout can share one."""

    space: Shape
    form: Form
    vector_axis: int
    """The loop that lanes go along; -1 without."""
    reduced_axis: int = -1
    """In columns, the loop that is reduced."""


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
    prefetched: dict[Load, tuple[int, ...]] = field(default_factory=dict[Load, tuple[int, ...]])
    """Loads that fetch ahead for the next program, and how far their indices move."""

    @property
    def reductions(self) -> list[tuple[Root, Reduce]]:
        """The roots that are reductions."""
        return [(r, r.op) for r in self.roots if not r.is_keep and isinstance(r.op, Reduce)]


@dataclass(frozen=True, eq=False)
class ScalarStep:
    """An op on scalars, done at once."""

    op: Operation


@dataclass(frozen=True, eq=False)
class DotStep:
    """A matrix product into the buffer of its result."""

    op: Dot
    accumulates: bool
    """Whether the buffer holds the accumulator already."""
    starts_in: Loop | None = None
    """The loop in whose first iteration the accumulator is zero and the buffer holds nothing."""


@dataclass(frozen=True, eq=False)
class ScanStep:
    """Running combinations along one axis, element by element."""

    op: Scan


@dataclass(frozen=True, eq=False)
class CombineStep:
    """A combination of the user's own along one axis, element by element."""

    op: ReduceWith | ScanWith


@dataclass(frozen=True, eq=False)
class PrintStep:
    """Lines about the elements of some values, at this very moment."""

    op: Print


@dataclass(frozen=True, eq=False)
class SortStep:
    """The lines of a buffer put in order where they lie."""

    op: Sort


@dataclass(frozen=True, eq=False)
class LoopStep:
    """A sequential loop; carried tiles live in buffers."""

    op: Loop
    body: list[Step]


@dataclass(frozen=True, eq=False)
class WhileStep:
    """A loop of unknown length."""

    op: While
    condition: list[Step]
    body: list[Step]


@dataclass(frozen=True, eq=False)
class IfStep:
    """A branch."""

    op: If
    then: list[Step]
    otherwise: list[Step]


Step = (
    Nest
    | ScalarStep
    | DotStep
    | ScanStep
    | CombineStep
    | PrintStep
    | LoopStep
    | WhileStep
    | IfStep
    | SortStep
)


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


@dataclass(frozen=True, eq=False)
class PlannedGrid:
    """A grid with the plan of its body."""

    op: Grid
    program: Program
    tiles: VirtualTiles
    packed: Mapping[Dot, PackedOperand] = field(default_factory=dict[Dot, PackedOperand])
    """Operands packed once for all programs."""

    @property
    def packed_tensors(self) -> tuple[PackedTensor, ...]:
        """What is packed before the programs run."""
        return tuple(dict.fromkeys(operand.source for operand in self.packed.values()))
