"""Loops that run over the rows of one group after another and do the same to each row.

Such groups need not be told apart: one loop over all rows computes the same, if it stores those
rows alone that some group has. Which these are is data; that nothing else depends on groups is
not. A group that has rows of another one, or none, changes nothing: what is stored for a row
follows from the row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilesmith.analysis.affine import find_affine
from tilesmith.analysis.effects import exchanged_memory, is_elsewhere, is_pure
from tilesmith.analysis.merged_groups.lanes import find_meeting, row_axes
from tilesmith.diagnostics.location import SourceLocation
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Grid, If, Loop, Yield
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.ops.memory import Load, ProgramBarrier, Store
from tilesmith.ir.traversal import definitions, walk
from tilesmith.ir.types import Dim, Extent, Value

BLOCK = "merged"
"""The block of the groups that are looked at together."""
BOUND_OPS = (Load, Elementwise, Cast)
"""What may compute where a group begins and ends: it is computed for many groups at once."""
DIVISIONS = ("floordiv", "truncdiv", "mod", "fmod")
"""Of integers: groups that nobody asks for must not be divided by."""


@dataclass(frozen=True)
class Reason:
    """Why groups stay apart, and the line that it is about."""

    text: str
    loc: SourceLocation

    def __str__(self) -> str:
        return f"{self.text} ({self.loc})" if self.loc.line else self.text


@dataclass(frozen=True, eq=False)
class MergedGroups:
    """A loop over rows of groups, and all that is needed to run it over all rows."""

    grid: Grid
    loop: Loop
    rows: int
    """The axis of the loop whose ends come from the group."""
    kept: tuple[Operation, ...]
    """What stands before the loop and is the same for all groups."""
    bounds: tuple[tuple[Operation, int], ...]
    """What says where a group begins and ends, each op with the number of branches around it."""
    conditions: tuple[Value, ...]
    """Of these branches, the outermost first."""
    length: Extent
    """How many rows there are."""
    hidden: frozenset[Load]
    """Loads of rows that may not be there, if no group has them."""
    chain: Load | None
    """Where groups begin, if each of them ends where the next one begins."""

    @property
    def begin(self) -> Value:
        """Where a group begins."""
        return self.loop.begins[self.rows]

    @property
    def end(self) -> Value:
        """Where a group ends."""
        return self.loop.ends[self.rows]


class _ApartError(Exception):
    """Groups cannot be merged."""

    def __init__(self, text: str, op: Operation) -> None:
        super().__init__(text)
        self.reason = Reason(text, op.loc)


def is_merged(function: Function) -> bool:
    """Whether groups of a function have been merged."""
    return any(b.name.startswith(BLOCK) and b.fixed is not None for b in function.blocks)


def has_known_middle(function: Function) -> bool:
    """Whether groups were merged of which each begins where the one before ends.

    Only tiles at the ends then look for the groups of their rows.
    """
    loops = [op for op in walk(function.body) if isinstance(op, Loop)]
    found = [
        op for op in loops if op.blocks[0].startswith(BLOCK) and function.block(op.blocks[0]).fixed
    ]
    known = definitions(function.body)
    return any(isinstance(known.get(op.ends[0]), Elementwise) for op in found)


def find_merged_groups(function: Function) -> MergedGroups | Reason | None:
    """The groups of a function, or why they must be told apart; None where there are none."""
    *others, grid = function.body.ops
    if not isinstance(grid, Grid) or grid.blocks != ("",) or not all(map(is_pure, others)):
        return None
    nest = _find_nest(grid.body)
    if nest is None or nest.loop.init or not all(nest.loop.blocks):
        return None
    of_group = _following(grid, nest)
    bounds = list(zip(nest.loop.begins, nest.loop.ends))
    rows = [axis for axis, ends in enumerate(bounds) if not of_group.isdisjoint(ends)]
    if len(rows) != 1:
        return None
    try:
        return _Checker(function, grid, nest, of_group, rows[0]).run()
    except _ApartError as error:
        return error.reason


@dataclass(frozen=True, eq=False)
class _Nest:
    loop: Loop
    ops: tuple[tuple[Operation, int], ...]
    conditions: tuple[Value, ...] = ()


def _find_nest(region: Region, depth: int = 0) -> _Nest | None:
    """The only loop of a region, itself or in branches that do nothing otherwise."""
    nests = [op for op in region.ops if op.regions()]
    place = region.ops.index(nests[0]) if len(nests) == 1 else len(region.ops)
    if not all(isinstance(op, (Yield, ProgramBarrier)) for op in region.ops[place + 1 :]):
        return None
    nest = nests[0] if len(nests) == 1 else None
    ops = tuple((op, depth) for op in region.ops[:place])
    if isinstance(nest, Loop):
        return _Nest(nest, ops)
    if not isinstance(nest, If) or nest.results or len(nest.otherwise.ops) != 1:
        return None
    inner = _find_nest(nest.then, depth + 1)
    if inner is None:
        return None
    return _Nest(inner.loop, (*ops, *inner.ops), (nest.condition, *inner.conditions))


def _following(grid: Grid, nest: _Nest) -> frozenset[Value]:
    """What follows from the number of a group, or is there only if there is a group."""
    found = {*grid.body.args}
    for op, _ in nest.ops:
        if isinstance(op, Load) or not found.isdisjoint(op.operand_values()):
            found.update(op.results)
    return frozenset(found)


class _Checker:
    """All that must hold for the groups of one function to be merged."""

    def __init__(
        self, function: Function, grid: Grid, nest: _Nest, of_group: frozenset[Value], rows: int
    ) -> None:
        self._function, self._grid, self._nest = function, grid, nest
        self._loop, self._rows, self._of_group = nest.loop, rows, of_group
        self._block, self._first = self._loop.blocks[rows], self._loop.body.args[rows]
        self._known = definitions(function.body)

    def run(self) -> MergedGroups:
        self._check_bounds()
        self._check_body()
        self._check_store()
        length, hidden = self._find_length()
        needed, ops = self._find_needed(), self._nest.ops
        kept = [op for op, _ in ops if self._of_group.isdisjoint(op.results) and is_pure(op)]
        return MergedGroups(
            self._grid,
            self._loop,
            self._rows,
            tuple(kept),
            tuple((op, depth) for op, depth in ops if op in needed),
            self._nest.conditions,
            length,
            hidden,
            self._find_chain(),
        )

    def _check_bounds(self) -> None:
        outside = {p.value for p in self._function.parameters}
        outside.update(value for op in self._function.body.ops for value in op.results)
        outside.update(op.result for op in self._known.values() if isinstance(op, Full))
        loop = self._loop
        others = [axis for axis in range(loop.rank) if axis != self._rows]
        if not outside.issuperset(v[axis] for v in (loop.begins, loop.ends) for axis in others):
            raise _ApartError("another axis of its loop has ends that are loaded", loop)
        needed = self._find_needed()
        for op, _ in self._nest.ops:
            is_bound = is_pure(op) or isinstance(op, Load)
            if op in needed:
                is_bound = isinstance(op, BOUND_OPS) and not op.result.tile.rank
                is_bound = is_bound and not self._may_fail(op)
            if not (is_bound or isinstance(op, ProgramBarrier)) or is_elsewhere(op):
                raise _ApartError("more is done for a group than to find its rows", op)

    def _may_fail(self, op: Operation) -> bool:
        if not isinstance(op, Elementwise) or op.fn not in DIVISIONS:
            return False
        divisor = self._known.get(op.args[-1])
        return not isinstance(divisor, Full) or not divisor.value

    def _find_needed(self) -> set[Operation]:
        """What says where a group begins and ends, and whether anybody asks for it."""
        wanted = {v[self._rows] for v in (self._loop.begins, self._loop.ends)}
        wanted.update(self._nest.conditions)
        needed: set[Operation] = set()
        for op, _ in reversed(self._nest.ops):
            if not wanted.isdisjoint(op.results) and not self._of_group.isdisjoint(op.results):
                needed.add(op)
                wanted.update(op.operand_values())
        return needed

    def _check_body(self) -> None:
        if exchanged_memory(self._function):
            raise _ApartError("it reads what it writes", self._loop)
        for op in walk(self._loop.body):
            used = [v for v in op.operand_values() if v in self._of_group]
            if used:
                raise _ApartError("what is computed for a row depends on its group", op)
        meeting = find_meeting(self._loop, self._rows)
        if meeting is not None:
            raise _ApartError("what is computed for a row depends on others", meeting)

    def _check_store(self) -> None:
        stores = [op for op in walk(self._loop.body) if isinstance(op, Store)]
        if len(stores) != 1:
            raise _ApartError("tiles are stored more than once", (*stores, self._loop)[-1])
        (store,) = stores
        for axis in range(self._loop.rank):
            if not self._is_own(store, axis):
                raise _ApartError("rows are not stored to places of their own", store)

    def _is_own(self, store: Store, axis: int) -> bool:
        """Whether one index is that of the tile along an axis of the loop, and no other one is."""
        block, first = self._loop.blocks[axis], self._loop.body.args[axis]
        places = self._direct_places(store.indices, block, first)
        other = [index for index in store.indices if row_axes(index, block)]
        strides = store.tensor.tensor.strides
        return len(places) == len(other) == 1 and strides[places[0]] != 0

    def _direct_places(self, indices: Sequence[Value], block: str, first: Value) -> list[int]:
        """Which indices are just the numbers of a tile."""
        found = [find_affine(index, self._known) for index in indices]
        return [
            place
            for place, at in enumerate(found)
            if at is not None
            and at.dim == Dim.of(block)
            and (at.base, at.offset, at.scale) == (((first, 1),), 0, 1)
        ]

    def _find_length(self) -> tuple[Extent, frozenset[Load]]:
        """How many rows are there, and loads that may have fewer and need a mask.

        A row that a group has is there wherever it is loaded or stored for certain. Other rows are
        computed as well, as far as the first such tensor has them.
        """
        sizes: dict[Load | Store, Extent | None] = {}
        for op in walk(self._loop.body):
            if isinstance(op, (Load, Store)):
                own = [i for i, v in enumerate(op.indices) if row_axes(v, self._block)]
                places = self._direct_places(op.indices, self._block, self._first)
                if own:
                    is_known = own == places and len(own) == 1
                    sizes[op] = op.tensor.tensor.shape[own[0]] if is_known else None
        loads = [op for op in sizes if isinstance(op, Load)]
        certain = set(self._certain_ops(self._loop.body))
        whole = [op for op in loads if sizes[op] is not None and not op.mask and op in certain]
        chosen = whole[0] if whole else next(op for op in sizes if isinstance(op, Store))
        length = sizes[chosen]
        assert length is not None, "checked before"
        if isinstance(length, str) and self._function.find_parameter(length) is None:
            raise _ApartError("the number of all rows is not known", chosen)
        return length, frozenset(op for op in loads if sizes[op] != length)

    def _certain_ops(self, region: Region) -> Iterator[Operation]:
        """What surely runs if a region does: loops may have no turn, branches may be left out."""
        for op in region.ops:
            yield op
            if isinstance(op, Loop):
                ends = zip(map(self._known.get, op.begins), map(self._known.get, op.ends))
                if all(
                    isinstance(begin, Full) and isinstance(end, Full) and begin.value < end.value
                    for begin, end in ends
                ):
                    yield from self._certain_ops(op.body)

    def _loaded(self, value: Value) -> Operation | None:
        """What loads a bound, before it is cast to another integer."""
        op = self._known.get(value)
        is_cast = isinstance(op, Cast) and op.x.tile.dtype.is_integer and not op.bitcast
        return self._known.get(op.x) if isinstance(op, Cast) and is_cast else op

    def _find_chain(self) -> Load | None:
        """Only where every group is looked at, and only its bounds decide whether it has rows."""
        begin, end = (self._loaded(v[self._rows]) for v in (self._loop.begins, self._loop.ends))
        if not isinstance(begin, Load) or not isinstance(end, Load):
            return None
        (group,) = self._grid.body.args
        plain = [op.mask is None and len(op.indices) == 1 for op in (begin, end)]
        at = find_affine(end.indices[0], self._known)
        is_next = at is not None and (at.base, at.offset, at.scale) == (((group, 1),), 1, 0)
        if not all(plain) or begin.indices[0] is not group or not is_next:
            return None
        depths = [depth for op, depth in self._nest.ops if op in (begin, end)]
        asks_rows = all(self._asks_for_rows(test, begin, end) for test in self._nest.conditions)
        is_chain = begin.tensor is end.tensor and depths == [0, 0] and asks_rows
        return begin if is_chain else None

    def _asks_for_rows(self, condition: Value, begin: Load, end: Load) -> bool:
        """Whether a condition is that a group has rows."""
        test = self._known.get(condition)
        if not isinstance(test, Elementwise):
            return False
        args = tuple(map(self._loaded, test.args))
        return (test.fn, *args) in {("gt", end, begin), ("lt", begin, end)}
