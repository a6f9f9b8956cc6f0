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

from tilesmith.analysis.affine import AffineIndex, find_affine
from tilesmith.analysis.memory_conflicts import (
    Access,
    Iterations,
    find_accesses,
    is_disjoint,
    is_same_place,
)
from tilesmith.analysis.run_order import Surroundings, find_told_apart
from tilesmith.gradients.grid_blocks import surroundings_of
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Grid, Loop
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Arange, BlockSize, Full, TileIndex
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute
from tilesmith.ir.traversal import definitions, values_defined_in, walk
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
    """Whether every element is stored."""


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
            return Placement(Mode.STORE, parts, self._covers())
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
        dims = enumerate(site.op.result.tile.shape)
        return all(axis in apart or dim.is_one for axis, dim in dims)

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
            if not all(_splits_alike(first, second, arg) for arg in several):
                return False
        return True

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


def _splits_alike(first: Access, second: Access, arg: Value) -> bool:
    """Whether programs that differ in an argument of the grid are apart in one dimension."""
    for lhs, rhs in zip(first.forms, second.forms):
        if lhs is None or rhs is None:
            continue
        is_own = dict(lhs.base) == dict(rhs.base) == {arg: 1} and lhs.offset == rhs.offset
        if is_own and lhs.dim == rhs.dim and lhs.scale == rhs.scale:
            return True
    return False


@dataclass(frozen=True)
class Overwriting:
    """Stores that may not last: what comes later may store into the same elements."""

    tensors: frozenset[Value] = frozenset()
    loops: frozenset[Value] = frozenset()
    """First arguments of the loops around such stores: their turns are undone in reverse order."""


def find_overwriting(function: Function) -> Overwriting:
    """Tensors of floats whose elements a later turn, or another store, may overwrite."""
    known = definitions(function.body)
    stores: list[tuple[Store, tuple[Loop, ...]]] = []
    tensors: set[Value] = set()
    for grid in function.body.ops:
        if not isinstance(grid, Grid):
            continue
        where = surroundings_of(function, grid, known)
        apart = Iterations(grid, where.varying, known)
        own = list(_stores_in(grid.body, ()))
        stores += own
        for store, loops in own:
            if not all(_moves_on(store, loop, where) for loop in loops):
                tensors.add(store.tensor)
        for (first, _), (second, _) in combinations(own, 2):
            (one,), (other,) = (find_accesses(op, known) for op in (first, second))
            if one.group == other.group and not is_disjoint(one, other, apart):
                tensors |= {first.tensor, second.tensor}
    around = [loop for store, loops in stores if store.tensor in tensors for loop in loops]
    return Overwriting(frozenset(tensors), frozenset(loop.body.args[0] for loop in around))


def _moves_on(store: Store, loop: Loop, where: Surroundings) -> bool:
    """Whether a lane stores each turn elsewhere; no two lanes may store into one element anyway."""
    inside = frozenset(values_defined_in(loop.body))
    for axis, arg in enumerate(loop.body.args[: loop.rank]):
        if where.has_one_step(arg):
            continue
        wide = Dim.of(loop.blocks[axis]) if loop.blocks[axis] else None
        steps = [_varying_part(index, inside, where) for index in store.indices]
        if any(step is not None and _is_within(step, arg, where) for step in steps):
            continue
        steps = [step and _by_position(step, arg, loop.blocks[axis], where) for step in steps]
        if not any(step is not None and _steps_with(step, arg, wide) for step in steps):
            return False
    return True


def _is_within(form: AffineIndex, arg: Value, where: Surroundings) -> bool:
    """Whether an index runs over tiles of the tile that begins there."""
    if len(form.base) != 1 or form.base[0][0] not in where.steps:
        return False
    parent = where.steps[form.base[0][0]].parent
    while parent is not None and parent is not arg:
        parent = where.steps[parent].parent if parent in where.steps else None
    return parent is arg


def _by_position(form: AffineIndex, arg: Value, block: str, where: Surroundings) -> AffineIndex:
    """The form with the position of a tile in place of its number: both tell turns apart."""

    def is_number(value: Value) -> bool:
        op = where.definitions.get(value)
        if not isinstance(op, Elementwise) or op.fn != "floordiv" or op.args[0] is not arg:
            return False
        size = where.definitions.get(op.args[1])
        fixed = where.sizes.get(block)
        is_fixed = isinstance(size, Full) and fixed is not None and size.value == fixed
        return is_fixed or (isinstance(size, BlockSize) and size.block == block)

    if form.axis is not None:
        return form
    return replace(form, base=tuple((arg if is_number(v) else v, c) for v, c in form.base))


def _steps_with(form: AffineIndex, arg: Value, wide: Dim | None) -> bool:
    terms = dict(form.base)
    factor = terms.pop(arg, 0)
    if not factor or terms:
        return False
    return form.axis is None or (form.dim == wide and form.scale == factor)


def _varying_part(
    index: Value, inside: Collection[Value], where: Surroundings
) -> AffineIndex | None:
    """The summand of an index that changes within a loop, if it is one and affine."""
    form = find_affine(index, where.definitions)
    if form is not None:
        base = tuple(term for term in form.base if term[0] in inside)
        return replace(form, base=base)
    op = where.definitions.get(index)
    if isinstance(op, (Broadcast, ExpandDims, Cast)):
        return _varying_part(op.x, inside, where)
    if not isinstance(op, Elementwise) or op.fn != "add":
        return None
    varying = [arg for arg in op.args if _depends(arg, inside, where)]
    return _varying_part(varying[0], inside, where) if len(varying) == 1 else None


def _depends(value: Value, inside: Collection[Value], where: Surroundings) -> bool:
    """Whether a value may change within a loop, other than by lanes."""
    op = where.definitions.get(value)
    if op is None or value not in inside:
        return value in inside
    if isinstance(op, Load) or op.regions():
        return True
    return any(_depends(operand, inside, where) for operand in op.operand_values())


def _stores_in(region: Region, loops: tuple[Loop, ...]) -> Iterator[tuple[Store, tuple[Loop, ...]]]:
    for op in region.ops:
        if isinstance(op, Store) and op.value.tile.dtype.is_float:
            yield op, loops
        inner = (*loops, op) if isinstance(op, Loop) else loops
        for nested in op.regions():
            yield from _stores_in(nested, inner)


def loads_of_written(function: Function) -> Iterator[Load]:
    """Float loads from memory that the function writes, too."""
    ops = list(walk(function.body))
    written = {a.group for op in ops for a in find_accesses(op, {}) if a.writes}
    for op in ops:
        if isinstance(op, Load) and op.result.tile.dtype.is_float:
            groups = {access.group for access in find_accesses(op, {})}
            if groups & written or None in written:
                yield op
