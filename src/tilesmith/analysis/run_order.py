"""Atomics whose outcome depends on the order in which programs, and lanes of one, come.

Sums of floats do, in their last bits; so do exchanges, and previous values that are used. All are
safe where every program, and every lane, updates elements of its own. Axes of the grid along which
that cannot be shown must have one program only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from math import inf

from tilesmith.analysis.affine import AffineIndex, add_terms, find_affine
from tilesmith.analysis.memory_conflicts import (
    Iterations,
    find_accesses,
    is_disjoint,
    is_same_place,
)
from tilesmith.ir.axis_roles import Accessed
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Grid, Loop
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import BlockSize, Full
from tilesmith.ir.ops.memory import Atomic, AtomicKind, Load, Store
from tilesmith.ir.ops.shape import Broadcast
from tilesmith.ir.traversal import count_uses, definitions, values_defined_in, walk
from tilesmith.ir.types import Dim, Value

_LAST_WRITER_WINS = (AtomicKind.XCHG.value, AtomicKind.CAS.value)
_UNCHANGED_BY_ZERO = (AtomicKind.ADD.value, AtomicKind.OR.value, AtomicKind.XOR.value)


@dataclass(frozen=True)
class Steps:
    """What the first position of a tile runs over."""

    block: str
    """Empty for an axis of plain indices."""
    extent: int | None
    """From the first to the last position; None where it is not constant."""
    parent: Value | None = None
    """Where the tile begins that the loop runs over: other tiles have other positions."""


@dataclass(frozen=True)
class Surroundings:
    """What is known of the values that the indices of one grid are made of."""

    definitions: Mapping[Value, Operation]
    varying: Collection[Value]
    """All that is not the same in every program, at any time."""
    steps: Mapping[Value, Steps]
    """By the arguments of the grid and of the loops in it."""
    sizes: Mapping[str, int]
    """Of blocks, as far as they are known."""

    def within(self, args: Collection[Value]) -> Surroundings:
        """The same where these arguments have one value each."""
        steps = {
            arg: replace(steps, parent=None) if steps.parent in args else steps
            for arg, steps in self.steps.items()
            if arg not in args
        }
        varying = frozenset(self.varying) - frozenset(args)
        return replace(self, steps=steps, varying=varying)

    def has_one_step(self, arg: Value) -> bool:
        """Whether the argument of a loop is certain to have one value only."""
        steps = self.steps[arg]
        size = self.sizes.get(steps.block, 1)
        return steps.extent is not None and steps.extent <= size


@dataclass(frozen=True)
class _Digit:
    """One term of an index: a factor times a number that runs over an extent."""

    factor: int
    extent: int | None
    """How many values there are, at most."""
    arg: Value | None = None
    lane: int | None = None


def find_distinguishing_axes(index: Value, where: Surroundings) -> frozenset[Value | int]:
    """Arguments of loops, and axes of the index, in which two that name one element agree."""
    forms = _summands(index, where.definitions)
    digits = list(_digits(forms, where)) if forms is not None else []
    if not _are_separate(digits):
        return frozenset()
    found: set[Value | int] = {digit.lane for digit in digits if digit.lane is not None}
    for digit in digits:
        arg = digit.arg
        while arg is not None:
            found.add(arg)
            arg = where.steps[arg].parent
    return frozenset(found)


def find_told_apart(op: Load | Store | Atomic, grid: Grid, where: Surroundings) -> set[Value | int]:
    """Arguments of loops, and axes of the accessed tile, that its elements tell apart."""
    found: set[Value | int] = set()
    rank = Accessed.tile(op).tile.rank
    for index, stride in zip(op.indices, op.tensor.tensor.strides):
        if stride == 0:
            continue
        for here in (where, where.within(grid.body.args)):
            axes = find_distinguishing_axes(index, here)
            missing = rank - index.tile.rank
            found |= {one + missing if isinstance(one, int) else one for one in axes}
    return found


def _are_separate(digits: list[_Digit]) -> bool:
    reach = 0.0
    for digit in sorted(digits, key=lambda digit: abs(digit.factor)):
        if abs(digit.factor) <= reach:
            return False
        reach += abs(digit.factor) * (inf if digit.extent is None else max(digit.extent - 1, 0))
    return True


def _summands(value: Value, definitions: Mapping[Value, Operation]) -> list[AffineIndex] | None:
    """Forms along one axis each that add up to the value."""
    form = find_affine(value, definitions)
    if form is not None:
        return [form]
    op = definitions.get(value)
    if isinstance(op, Broadcast) or (isinstance(op, Cast) and op.x.tile.dtype.is_integer):
        return _summands(op.x, definitions)
    if not isinstance(op, Elementwise) or op.fn != "add":
        return None
    parts = [_summands(arg, definitions) for arg in op.args]
    return None if None in parts else [form for part in parts if part for form in part]


def _digits(forms: list[AffineIndex], where: Surroundings) -> Iterator[_Digit]:
    base = add_terms({}, (term for form in forms for term in form.base))
    lanes: dict[int, tuple[Dim, int]] = {}
    for form in forms:
        if form.axis is not None and form.dim is not None:
            lanes[form.axis] = form.dim, lanes.get(form.axis, (form.dim, 0))[1] + form.scale
    for axis, (dim, factor) in lanes.items():
        # Where the tile begins whose lanes an axis has.
        ranges = where.steps.items()
        begins = [arg for arg, steps in ranges if steps.block and Dim.of(steps.block) == dim]
        arg = next((arg for arg in base if arg in begins and base[arg] == factor != 0), None)
        if arg is not None:
            # The tiles of a loop lie side by side: position and lane are one number.
            del base[arg]
            yield _Digit(factor, where.steps[arg].extent, arg, axis)
        elif factor:
            size = dim.constant if dim.symbol is None else where.sizes.get(dim.symbol)
            yield _Digit(factor, size, lane=axis)
    for value, factor in base.items():
        if factor and value in where.varying:
            arg = _loop_argument(value, where)
            yield _Digit(factor, where.steps[arg].extent if arg else None, arg)


def _loop_argument(value: Value, where: Surroundings) -> Value | None:
    """The argument that a scalar is, or numbers the tiles of: ``tile.id`` is begin // size."""
    if value in where.steps:
        return value
    op = where.definitions.get(value)
    if not isinstance(op, Elementwise) or op.fn != "floordiv":
        return None
    begin, size = op.args[0], where.definitions.get(op.args[1])
    steps = where.steps.get(begin)
    if steps is None or steps.parent is not None or not isinstance(size, BlockSize):
        return None
    return begin if size.block == steps.block else None


class AtomicHazard(Enum):
    """What an atomic does that depends on the order, and what differs then."""

    SUM = "floats are added to", "the last bits differ"
    EXCHANGE = "elements are exchanged in", "what stays differs"
    RETURNS_OLD = "previous values are taken from", "they differ"


@dataclass(frozen=True, eq=False)
class SharedUpdate:
    """An atomic whose outcome depends on the order of programs."""

    op: Atomic
    hazard: AtomicHazard
    axes: tuple[str, ...] = ()
    """Axes of the grid along which several programs meet, in the user's names."""
    do_lanes_meet: bool = False
    """Whether lanes of one program may, too: then fewer programs are no remedy."""
    other: Atomic | None = None
    """The atomic it meets, where that is not itself."""

    @property
    def tensor(self) -> str:
        """What is updated."""
        return self.op.tensor.name

    @property
    def meeting(self) -> str:
        """Who meets in one element."""
        if self.other is not None:
            return f"this atomic and that of {self.other.loc}"
        if self.do_lanes_meet:
            return "lanes of a program, and programs," if self.axes else "lanes of a program"
        return f"programs that differ along {' and '.join(self.axes)}"

    def __str__(self) -> str:
        what = f"{self.hazard.value[0]} `{self.tensor}` in any order"
        return f"{what}: {self.meeting} meet in one element ({self.op.loc})"


def find_shared_updates(function: Function, sizes: Mapping[str, int]) -> tuple[SharedUpdate, ...]:
    """Atomics whose outcome depends on the run order, with tiles of these sizes.

    ``sizes`` gives blocks that are not fixed; one that is missing is taken for the smallest.
    """
    known = definitions(function.body)
    fixed = {block.name: block.fixed for block in function.blocks if block.fixed is not None}
    found: list[SharedUpdate] = []
    for grid in walk(function.body):
        if isinstance(grid, Grid):
            found += _Programs(grid, find_surroundings(grid, known, {**sizes, **fixed})).updates()
    return tuple(found)


def find_surroundings(
    grid: Grid, known: Mapping[Value, Operation], sizes: Mapping[str, int]
) -> Surroundings:
    """What is known of the values in a grid; ``known`` has the op that gives each."""
    steps: dict[Value, Steps] = {}
    where = Surroundings(known, frozenset(values_defined_in(grid.body)), steps, sizes)
    for op in (grid, *walk(grid.body)):
        if isinstance(op, (Grid, Loop)):
            for arg, begin, end, block in zip(op.body.args, op.begins, op.ends, op.blocks):
                parent = begin if _ends_with_tile(begin, end, where) else None
                steps[arg] = Steps(block, _extent(known.get(begin), known.get(end)), parent)
    return where


def _ends_with_tile(begin: Value, end: Value, where: Surroundings) -> bool:
    """Whether a loop ends with the tile that it begins with, or before."""
    outer, op = where.steps.get(begin), where.definitions.get(end)
    if outer is None or not outer.block:
        return False
    if isinstance(op, Elementwise) and op.fn == "minimum":
        return any(_ends_with_tile(begin, arg, where) for arg in op.args)
    form = find_affine(end, where.definitions)
    others = dict(form.base) if form else {}
    if form is None or others.pop(begin, 0) != 1:
        return False
    if not others:
        return form.offset <= where.sizes.get(outer.block, 1)
    sizes = [where.definitions.get(value) for value, factor in others.items() if factor == 1]
    blocks = [size.block for size in sizes if isinstance(size, BlockSize)]
    return form.offset <= 0 and len(others) == 1 and blocks == [outer.block]


def _extent(begin: Operation | None, end: Operation | None) -> int | None:
    """Only what is constant counts: other extents are those of the first call."""
    if isinstance(begin, Full) and isinstance(end, Full):
        return int(end.value) - int(begin.value)
    return None


class _Programs:
    """The programs of one grid, and what they update."""

    def __init__(self, grid: Grid, where: Surroundings) -> None:
        self._grid = grid
        self._where = where
        self._uses = count_uses(grid.body)

    def updates(self) -> Iterator[SharedUpdate]:
        """Those that depend on the order."""
        atomics = [op for op in walk(self._grid.body) if isinstance(op, Atomic)]
        for place, op in enumerate(atomics):
            hazard = self._find_hazard(op)
            if hazard is None:
                continue
            distinguishing = find_told_apart(op, self._grid, self._where)
            args = enumerate(self._grid.body.args)
            shared = [(i, arg) for i, arg in args if arg not in distinguishing]
            axes = tuple(
                self._grid.blocks[axis] or arg.name or f"axis {axis}"
                for axis, arg in shared
                if not self._where.has_one_step(arg)
            )
            do_lanes_meet = any(
                not (dim.is_one or self._where.sizes.get(dim.symbol or "") == 1)
                for axis, dim in enumerate(op.value.tile.shape)
                if axis not in distinguishing
            )
            if axes or do_lanes_meet:
                yield SharedUpdate(op, hazard, axes, do_lanes_meet)
            for other in (*atomics[:place], *atomics[place + 1 :]):
                if self._may_cross(op, other):
                    yield SharedUpdate(op, hazard, other=other)

    def _find_hazard(self, op: Atomic) -> AtomicHazard | None:
        if op.kind == AtomicKind.ADD.value and op.tensor.tensor.dtype.is_float:
            return AtomicHazard.SUM
        if op.kind in _LAST_WRITER_WINS:
            return AtomicHazard.EXCHANGE
        is_taken = self._uses.get(op.result, 0) > 0
        return AtomicHazard.RETURNS_OLD if is_taken and not self._is_read(op) else None

    def _is_read(self, op: Atomic) -> bool:
        """Whether it only reads: zero is added, as a way to wait for others."""
        added = find_affine(op.value, self._where.definitions)
        return op.kind in _UNCHANGED_BY_ZERO and added == AffineIndex()

    def _may_cross(self, op: Atomic, other: Atomic) -> bool:
        """Whether another atomic may update an element of this one, from another program."""
        (first,), (second,) = (find_accesses(o, self._where.definitions) for o in (op, other))
        if first.group != second.group or self._is_read(other):
            return False
        apart = Iterations(self._grid, self._where.varying, self._where.definitions)
        # In the same place the same lanes meet, and a lane keeps its own order.
        return not (is_same_place(first, second) or is_disjoint(first, second, apart))
