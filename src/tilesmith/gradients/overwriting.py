"""Stores that may not last: what comes later may store into the same elements.

Only the last store counts. Its cotangent is set to zero once it is used, and turns are undone in
reverse order: what was there before finds nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import combinations

from tilesmith.analysis.affine import AffineIndex, find_affine
from tilesmith.analysis.memory_conflicts import Iterations, find_accesses, is_disjoint
from tilesmith.analysis.run_order import Surroundings
from tilesmith.gradients.grids.grid_blocks import surroundings_of
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Region
from tilesmith.ir.ops.control_flow import Grid, Loop
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import BlockSize, Full
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.ir.ops.shape import Broadcast, ExpandDims
from tilesmith.ir.traversal import definitions, values_defined_in
from tilesmith.ir.types import Dim, Value


@dataclass(frozen=True)
class Overwriting:
    """Stores that may not last: what comes later may store into the same elements."""

    tensors: frozenset[Value] = frozenset()
    loops: frozenset[Value] = frozenset()
    """First arguments of the loops around such stores: their turns are undone in reverse order."""


def find_overwriting(function: Function, filled: Collection[Value] = ()) -> Overwriting:
    """Float tensors that later turns or stores may overwrite, and those that callers ``filled``."""
    known = definitions(function.body)
    stores: list[tuple[Store, tuple[Loop, ...]]] = []
    tensors = set(filled)
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
