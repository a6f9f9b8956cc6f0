"""How the gradient of each tensor is written: stored, summed by its program, or by all of them.

A gradient goes where the forward function loaded. Elements that are loaded once are stored; those
that one program loads several times are added up by it; what several programs load is summed up in
parts, one for each program, or with atomics.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import combinations
from math import prod

from tilesmith.analysis.affine import find_affine
from tilesmith.analysis.memory_conflicts import (
    Access,
    Iterations,
    find_accesses,
    is_disjoint,
    is_same_place,
)
from tilesmith.analysis.run_order import Surroundings, find_told_apart
from tilesmith.gradients.grids.grid_blocks import surroundings_of
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Grid, Loop
from tilesmith.ir.ops.elementwise import Cast
from tilesmith.ir.ops.indexing import Arange, Full, TileIndex
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.ops.shape import ExpandDims, Permute
from tilesmith.ir.traversal import definitions, walk
from tilesmith.ir.types import Dim, Extent, TensorType, Value

MAX_PARTS_GROWTH = 16
"""Parts may be as many elements as the largest tensor times this, with tiles of one row."""


class Mode(Enum):
    """What happens to an element of a gradient."""

    STORE = "stored once"
    UPDATE = "added to by one program"
    ATOMIC = "added to by several programs"


@dataclass(frozen=True)
class Placement:
    """How one gradient is written."""

    mode: Mode
    parts: tuple[int, ...] = ()
    """Axes of the grid along which each program has a part of its own."""
    covers: bool = False
    """Whether every element is stored, of all parts."""


@dataclass(frozen=True)
class _Site:
    """A load, and the loops around it."""

    op: Load
    grid: Grid
    loops: tuple[Loop, ...]
    is_certain: bool
    """Whether it stands under no branch."""


def plan_gradients(
    function: Function, tensors: Collection[Value], active: Collection[Value]
) -> dict[Value, Placement]:
    """A placement for each tensor that is loaded; only loads of ``active`` values count."""
    known = definitions(function.body)
    sites = [site for site in _sites(function) if site.op.result in active]
    plans: dict[Value, Placement] = {}
    for tensor in tensors:
        loads = [_densely(site) for site in sites if site.op.tensor is tensor]
        if loads:
            plans[tensor] = _Planner(function, known, loads).plan()
    return plans


def _sites(function: Function) -> Iterator[_Site]:
    for op in function.body.ops:
        if isinstance(op, Grid):
            yield from _sites_in(op.body, op, (), is_certain=True)


def _sites_in(
    region: Region, grid: Grid, loops: tuple[Loop, ...], *, is_certain: bool
) -> Iterator[_Site]:
    for op in region.ops:
        if isinstance(op, Load):
            yield _Site(op, grid, loops, is_certain)
        inner = (*loops, op) if isinstance(op, Loop) else loops
        for nested in op.regions():
            yield from _sites_in(nested, grid, inner, is_certain=is_certain and inner is not loops)


def _densely(site: _Site) -> _Site:
    """The load as it would be of a gradient, of which no elements share memory."""
    kind = site.op.tensor.tensor
    strides: tuple[Extent, ...] = tuple(1 for _ in kind.strides)
    dense = site.op.tensor.like(replace(kind, strides=strides))
    return replace(site, op=replace(site.op, tensor=dense))


class _Planner:
    """Looks at the loads of one tensor."""

    def __init__(
        self, function: Function, known: Mapping[Value, Operation], sites: Sequence[_Site]
    ) -> None:
        self._function = function
        self._known = known
        self._sites = sites
        self._grid = sites[0].grid
        self._where = surroundings_of(function, self._grid, known)
        # Copies of a tensor's value are one tensor.
        tensor = sites[0].op.tensor
        loads = [replace(site.op, tensor=tensor) for site in sites]
        self._accesses = [access for op in loads for access in find_accesses(op, known)]

    def plan(self) -> Placement:
        """The cheapest placement that is certain to be right."""
        if any(site.grid is not self._grid for site in self._sites):
            return Placement(Mode.ATOMIC)
        shared = [self._shared_axes(site) for site in self._sites]
        if not all(map(self._have_own_lanes, self._sites)) or len(set(shared)) > 1:
            return Placement(Mode.ATOMIC)
        parts = shared[0]
        if parts and (self._is_factor() or not self._can_have_parts(parts)):
            return Placement(Mode.ATOMIC)
        if self._is_once_each():
            return Placement(Mode.STORE, parts, self._fills(parts) and self._covers())
        if self._keeps_to_its_program(parts):
            return Placement(Mode.UPDATE, parts)
        return Placement(Mode.ATOMIC)

    def _is_factor(self) -> bool:
        """Whether it is multiplied in loops: then each gradient gets a grid of its own."""
        found = [site.op.result for site in self._sites if site.loops]
        for value in found:
            users = (op for op in self._known.values() if value in op.operand_values())
            for op in users:
                if isinstance(op, Dot):
                    return True
                found += op.results if isinstance(op, (Cast, Permute)) else ()
        return False

    def _told_apart(self, site: _Site) -> set[Value | int]:
        return find_told_apart(site.op, self._grid, self._where)

    def _shared_axes(self, site: _Site) -> tuple[int, ...]:
        """Axes of the grid along which programs load the same elements."""
        apart = self._told_apart(site)
        args = enumerate(self._grid.body.args)
        return tuple(i for i, arg in args if arg not in apart and not self._where.has_one_step(arg))

    def _have_own_lanes(self, site: _Site) -> bool:
        apart = self._told_apart(site)
        # Of a tile of an axis of length one there is one lane.
        single = {Dim.of(s.block) for s in self._where.steps.values() if s.extent == 1 and s.block}
        dims = enumerate(site.op.result.tile.shape)
        return all(axis in apart or dim.is_one or dim in single for axis, dim in dims)

    def _is_once_each(self) -> bool:
        """Whether no element is loaded twice by a program."""
        for site in self._sites:
            args = [arg for loop in site.loops for arg in loop.body.args[: loop.rank]]
            if not self._told_apart(site).issuperset(args):
                return False
        apart = Iterations(self._grid, self._where.varying, self._known)
        return all(is_disjoint(*pair, apart) for pair in combinations(self._accesses, 2))

    def _keeps_to_its_program(self, parts: tuple[int, ...]) -> bool:
        """Whether elements that two loads have in common belong to one program."""
        args = [arg for i, arg in enumerate(self._grid.body.args) if i not in parts]
        several = [arg for arg in args if not self._where.has_one_step(arg)]
        apart = Iterations(self._grid, self._where.varying, self._known)
        for first, second in combinations(self._accesses, 2):
            if is_same_place(first, second) or is_disjoint(first, second, apart):
                continue
            if not all(_splits_alike(first, second, arg, self._where) for arg in several):
                return False
        return True

    def _fills(self, parts: Sequence[int]) -> bool:
        """Whether all loads take place, and parts, which are counted from 0, start there."""
        loops = [self._grid, *(loop for site in self._sites for loop in site.loops)]
        steps = [self._where.steps.get(arg) for loop in loops for arg in loop.body.args]
        begins = [self._known.get(self._grid.begins[axis]) for axis in parts]
        is_run = not any(one and one.extent is not None and one.extent <= 0 for one in steps)
        return is_run and all(isinstance(op, Full) and op.value == 0 for op in begins)

    def _covers(self) -> bool:
        """Whether all elements are loaded, each of them once: those of all loads are as many."""
        shape = self._sites[0].op.tensor.tensor.shape
        counts = [list(self._reached(site)) for site in self._sites]
        if len(counts) == 1 and all(n == size for n, size in zip(counts[0], shape)):
            return True
        sizes = [n for n in shape if isinstance(n, int)]
        numbers = [[n for n in count if isinstance(n, int)] for count in counts]
        if any(len(count) != len(shape) for count in (sizes, *numbers)):
            return False
        return sum(map(prod, numbers)) == prod(sizes)

    def _reached(self, site: _Site) -> Iterator[Extent | None]:
        """How many elements a load reaches along each dimension; None where that is not known."""
        loops: list[Grid | Loop] = [self._grid, *site.loops]
        ranges = {
            arg: (begin, end)
            for loop in loops
            for arg, begin, end in zip(loop.body.args, loop.begins, loop.ends)
        }
        is_sure = site.is_certain and site.op.mask is None
        for index, size in zip(site.op.indices, site.op.tensor.tensor.shape):
            if is_sure and (size == 1 or self._reaches_all(index, size, ranges)):
                yield size
            else:
                yield self._constant_reach(index) if is_sure else None

    def _constant_reach(self, index: Value) -> int | None:
        """The length of a slice with constant bounds, or one of a number."""
        form = find_affine(index, self._known)
        if form is None or form.base:
            return None
        return 1 if form.axis is None else None if form.dim is None else form.dim.constant

    def _reaches_all(
        self, index: Value, size: Extent, ranges: Mapping[Value, tuple[Value, Value]]
    ) -> bool:
        op = self._known.get(index)
        if isinstance(op, ExpandDims):
            op = self._known.get(op.x)
        if isinstance(op, Arange):
            return op.result.tile.shape[0] == Dim.of(size)
        begin = op.begin if isinstance(op, TileIndex) else index
        if begin not in ranges:
            return isinstance(op, Full) and size == 1
        if ranges[begin][0] in ranges and self._where.steps[begin].parent is not None:
            # The tiles of a group: groups reach all if those do.
            begin = ranges[begin][0]
        first, last = (self._known.get(bound) for bound in ranges[begin])
        is_whole = isinstance(last, Full) and last.value == size
        return is_whole and isinstance(first, Full) and first.value == 0

    def _can_have_parts(self, parts: tuple[int, ...]) -> bool:
        """Whether there are few enough of them; of runtime sizes only whole rows are."""
        if any(not self._grid.blocks[axis] for axis in parts):
            return False
        tensors = [p.value.type for p in self._function.parameters]
        sizes = [prod(kind.shape) for kind in tensors if _is_constant(kind)]  # type: ignore[arg-type]
        kind = self._sites[0].op.tensor.tensor
        steps = [self._where.steps[self._grid.body.args[axis]].extent for axis in parts]
        if not _is_constant(kind) or None in steps:
            return not any(site.loops for site in self._sites)
        own = prod(size for size in (*kind.shape, *steps) if isinstance(size, int))
        return own <= MAX_PARTS_GROWTH * max(sizes)


def _is_constant(kind: object) -> bool:
    return isinstance(kind, TensorType) and all(isinstance(size, int) for size in kind.shape)


def _splits_alike(first: Access, second: Access, arg: Value, where: Surroundings) -> bool:
    """Whether programs that differ in an argument of the grid are apart in one dimension."""
    for lhs, rhs in zip(first.forms, second.forms):
        if lhs is None or rhs is None or lhs.offset != rhs.offset:
            continue
        is_own = all(len(form.base) == 1 and form.base[0][1] == 1 for form in (lhs, rhs))
        if is_own and lhs.base == rhs.base and lhs.base[0][0] is arg:
            if lhs.dim == rhs.dim and lhs.scale == rhs.scale:
                return True
        elif is_own and not lhs.offset and lhs.scale == rhs.scale == 1:
            # Tiles of the tile that belongs to the program.
            parents = [where.steps.get(form.base[0][0]) for form in (lhs, rhs)]
            if all(steps is not None and steps.parent is arg for steps in parents):
                return True
    return False


def loads_of_written(function: Function) -> Iterator[Load]:
    """Float loads from memory that the function writes, too."""
    ops = list(walk(function.body))
    written = {a.group for op in ops for a in find_accesses(op, {}) if a.writes}
    for op in ops:
        if isinstance(op, Load) and op.result.tile.dtype.is_float:
            groups = {access.group for access in find_accesses(op, {})}
            if groups & written or None in written:
                yield op
