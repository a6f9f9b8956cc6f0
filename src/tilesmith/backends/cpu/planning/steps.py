"""The steps of a plan, and the order in which they may happen.

Most steps are nests of loops. A root joins the earliest nest of its layout that comes after
everything it depends on: values it reads, memory that other steps touch, and readers of the buffer
it fills. The lanes of a nest go along the loop that moves through memory element by element.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tilesmith.analysis.memory_conflicts import Access, is_same_place, may_conflict
from tilesmith.backends.cpu.loop_ir.statements import Form, Layout
from tilesmith.backends.cpu.planning import coordinates
from tilesmith.backends.cpu.planning.closures import Closure
from tilesmith.backends.cpu.planning.single_positions import Bounds
from tilesmith.backends.cpu.planning.virtual_tiles import VirtualTiles, is_identity, is_injective
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Loop
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.types import Shape, Value
from tilesmith.schedule.schedule import Schedule


@dataclass(frozen=True, eq=False)
class Root:
    """One thing a nest is for: a store, an atomic, a reduction, or a tile to keep.

    ``place`` is the element that each step computes. A kept tile is written to the buffer of
    ``target``: its own, or that of the carried value or result which it becomes.
    """

    op: Operation
    place: coordinates.Place
    target: Value | None = None

    @property
    def is_keep(self) -> bool:
        """Whether the root fills a buffer."""
        return self.target is not None

    @property
    def is_own_keep(self) -> bool:
        """Whether a virtual tile is stored under its own name."""
        return self.target is self.place[0]

    def places(self) -> list[coordinates.Place]:
        """Every element needed for one element of the root."""
        if not self.is_keep and isinstance(self.op, (Store, Atomic)):
            return [self.place, *coordinates.access_places(self.op, self.place[1])]
        return [self.place, *self._positions()]

    def _positions(self) -> list[coordinates.Place]:
        """The elements that say where a tile is changed, if only some of it is."""
        coords = self.place[1] if self.is_keep else ()
        return [(c.value, c.coords) for c in coords if isinstance(c, coordinates.Indirect)]

    @property
    def is_update(self) -> bool:
        """Whether only one position along some axis is written."""
        coords = self.place[1] if self.is_keep else ()
        return any(isinstance(c, (coordinates.Indirect, coordinates.Fixed)) for c in coords)

    @property
    def space(self) -> Shape:
        """The dimensions of the loops around the root."""
        pairs = zip(self.place[0].tile.shape, self.place[1])
        return tuple(dim for dim, coord in pairs if isinstance(coord, coordinates.LoopIndex))

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
    bounds: Bounds = field(default_factory=dict[Value, tuple[int, int]])
    """Between which numbers indices of loops are."""

    def buffer_of(self, value: Value) -> Value:
        """The tile whose buffer a value lies in."""
        while value in self.aliases:
            value = self.aliases[value]
        return value


class StepOrder:
    """Takes steps one by one and puts each in its place."""

    def __init__(self, tiles: VirtualTiles, schedule: Schedule, program: Program) -> None:
        self.steps: list[Step] = []
        self._tiles = tiles
        self._schedule = schedule
        self._program = program
        self._accesses: list[list[Access]] = []
        self._moved: set[Access] = set()
        """Loads of other elements than those of the step of the nest they are in."""
        self._made_at: dict[Value, int] = {}
        """The step after which a stored value of this region is there."""
        self._read_at: dict[Value, int] = {}
        """The last step that reads a buffer."""
        self._floor = 0

    def close(self) -> None:
        """Let nothing join the steps there are."""
        self._floor = len(self.steps)

    def add_root(self, root: Root, results: Iterable[Value]) -> None:
        """Compute a root in the earliest nest of its layout that may."""
        layout = _choose_layout(root, self._tiles, self._schedule)
        accesses = self._root_accesses(root)
        first = max(self._floor, self._after_operands(root), self._after_accesses(accesses))
        if root.target is not None:
            first = max(first, self._read_at.get(self._program.buffer_of(root.target), -1) + 1)
        leaves = root.closure(self._tiles).leaves
        for number in range(first, len(self.steps)):
            step = self.steps[number]
            if isinstance(step, Nest) and step.layout == layout:
                step.roots.append(root)
                self._accesses[number].extend(accesses)
                self._note(number, results, leaves)
                return
        self.append(Nest(layout, [root]), accesses, results, leaves)

    def append(
        self,
        step: Step,
        accesses: Iterable[Access],
        results: Iterable[Value],
        read: Iterable[coordinates.Place] = (),
    ) -> None:
        """A step that comes after all others, and the places of stored tiles that it reads."""
        self.steps.append(step)
        self._accesses.append(list(accesses))
        self._note(len(self.steps) - 1, results, read)

    def _note(self, number: int, made: Iterable[Value], read: Iterable[coordinates.Place]) -> None:
        buffer_of = self._program.buffer_of
        self._made_at.update((buffer_of(value), number) for value in made)
        for value, _ in read:
            buffer = buffer_of(value)
            self._read_at[buffer] = max(number, self._read_at.get(buffer, -1))

    def _after_operands(self, root: Root) -> int:
        first = 0
        for value, coords in root.closure(self._tiles).leaves:
            number = self._made_at.get(self._program.buffer_of(value))
            if number is not None:
                first = max(first, number + (not self._is_in_registers(number, (value, coords))))
        return first

    def _is_in_registers(self, number: int, place: coordinates.Place) -> bool:
        """Whether a nest computes that very element, so that a root in it can use it."""
        step = self.steps[number]
        if not isinstance(step, Nest) or not is_identity(place):
            return False
        return any(root.is_own_keep and root.target is place[0] for root in step.roots)

    def _root_accesses(self, root: Root) -> list[Access]:
        found: dict[Operation, tuple[Access, ...]] = {}
        for place, op in root.closure(self._tiles).nodes:
            if isinstance(op, Load):
                found[op] = found.get(op) or self._tiles.accesses(op)
                self._moved.update(() if is_identity(place) else found[op][-1:])
        last = root.op if root.target is None else self._program.spilled.get(root.target)
        own = self._tiles.accesses(last) if last is not None else ()
        return [access for accesses in (*found.values(), own) for access in accesses]

    def append_reading(self, step: Step, read: Iterable[Value], results: Iterable[Value]) -> None:
        """A step that reads whole tiles."""
        closure = self._tiles.join(list(map(coordinates.own_place, read)))
        ops = dict.fromkeys(op for _, op in closure.nodes if isinstance(op, Load))
        accesses = [access for op in ops for access in self._tiles.accesses(op)]
        self.append(step, accesses, results, closure.leaves)

    def _after_accesses(self, accesses: list[Access]) -> int:
        """The first step that may not come before what these accesses must follow."""
        # Reads are in no order among each other, and unrolled code has thousands of them.
        writes = [access for access in accesses if access.writes]
        for number in range(len(self.steps) - 1, -1, -1):
            pairs = ((old, accesses if old.writes else writes) for old in self._accesses[number])
            orders = [self._order(old, new) for old, others in pairs for new in others]
            if any(order == _AFTER for order in orders):
                return number + 1
            if any(order == _WITH for order in orders):
                return number
        return 0

    def _order(self, old: Access, new: Access) -> int:
        """Whether an access may come before an earlier one, in the same nest, or only after it."""
        if not may_conflict(old, new):
            return _APART
        return _WITH if self._is_element_wise(old, new) else _AFTER

    def _is_element_wise(self, old: Access, new: Access) -> bool:
        """Whether each step of a nest overwrites just what was accessed in it before."""
        if not isinstance(new.op, Store) or old in self._moved or not is_same_place(old, new):
            return False
        is_load = isinstance(old.op, Load)
        return isinstance(old.op, Store) or (is_load and is_injective(new.op, self._tiles))


_APART, _WITH, _AFTER = range(3)

_CONTIGUOUS, _BROKEN = 4, -3
_SHORT_AXIS = 5


def _choose_layout(root: Root, tiles: VirtualTiles, schedule: Schedule) -> Layout:
    shape, space = root.place[0].tile.shape, root.space
    if not root.is_keep and isinstance(root.op, Atomic):
        return Layout(space, Form.ONE_BY_ONE, -1)
    if not space or (root.is_update and not _is_expensive(root, tiles)):
        return Layout(space, Form.ROWS, -1)
    lanes = schedule.target.vector_lanes
    short = [_SHORT_AXIS * (schedule.physical(dim) < lanes) for dim in space]

    def preference(axis: int) -> tuple[int, int, int]:
        all_loops, fewer_loops = _scores(root, axis, tiles)
        # The last of equal ones: tiles are row-major.
        return all_loops - short[axis], fewer_loops, axis

    axis = max(range(len(space)), key=preference)
    if root.is_keep or not isinstance(root.op, Reduce):
        return Layout(space, Form.ROWS, axis)
    if shape[root.op.axis].is_one:
        return Layout(space, Form.ROWS, -1)
    reduced = sum(not dim.is_one for dim in shape[: root.op.axis])
    if axis == reduced:
        return Layout(space, Form.ROWS, axis)
    return Layout(space, Form.COLUMNS, axis, reduced)


def _is_expensive(root: Root, tiles: VirtualTiles) -> bool:
    return any(tiles.is_expensive(op) for _, op in root.closure(tiles).nodes)


def _scores(root: Root, axis: int, tiles: VirtualTiles) -> tuple[int, int]:
    """How well accesses go along an axis: those in all loops, and those that fewer loops move.

    A bias or a scale of each row is read once a row when lanes go along the row.
    """
    num_loops = len(root.space)
    scores = [0, 0]
    for (_, coords), op in root.closure(tiles).nodes:
        if isinstance(op, Load):
            places = coordinates.access_places(op, coords)
            is_partial = len(frozenset().union(*map(tiles.axes, places))) < num_loops
            scores[is_partial] += _access_score(op, places, axis, tiles)
    if not root.is_keep and isinstance(root.op, Store):
        scores[0] += 2 * _access_score(root.op, root.places()[1:], axis, tiles)
    scores[0] += root.is_keep and axis == num_loops - 1
    return scores[0], scores[1]


def _access_score(
    op: Load | Store | Atomic, places: list[coordinates.Place], axis: int, tiles: VirtualTiles
) -> int:
    has_bases = not isinstance(op, Atomic) and op.bases is not None
    if has_bases and axis in tiles.axes(places[len(op.indices)]):
        return _BROKEN
    moved = tiles.moved_strides(op, places, axis)
    return (_CONTIGUOUS if moved == [(1, 1)] else _BROKEN) if moved else 0
