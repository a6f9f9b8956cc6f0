"""What Configs may restructure: dimensions that can be walked in chunks, grids over one axis.

A row op has the dimension in an operand or result. Its phase is the number of reductions over the
dimension that must be complete before it can run, and more where memory asks for it; each phase
becomes one loop over chunks. Ops without the dimension stand before the loop of their phase.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from tilesmith.analysis.affine import Definitions
from tilesmith.analysis.effects import is_elsewhere, is_pinned
from tilesmith.analysis.memory_conflicts import (
    Access,
    accesses_in,
    find_accesses,
    is_same_place,
    may_conflict,
)
from tilesmith.ir import axis_roles as forms
from tilesmith.ir.axis_roles import Role
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region, Trait
from tilesmith.ir.ops.control_flow import Grid, GroupBarrier, Loop
from tilesmith.ir.ops.indexing import Arange, BlockSize, Full, TileIndex
from tilesmith.ir.ops.memory import Atomic, Load, ProgramBarrier, Store
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.traversal import count_uses, definitions, values_used_by, walk, walk_function
from tilesmith.ir.types import Dim, Shape, TileType, Value


@dataclass(eq=False)
class RowPlan:
    """How the ops of one region fall into phases."""

    region: Region
    rows: set[Operation] = field(default_factory=set[Operation])
    """The ops of the region that have the dimension."""
    phases: dict[Operation, int] = field(default_factory=dict[Operation, int])
    """The phase of every op directly in the region."""

    def anchors(self, dim: Dim, phase: int) -> list[Operation]:
        """The row ops a phase must run: its stores, and its reductions over the dimension."""
        rows = (op for op in self.region.ops if op in self.rows and self.phases[op] == phase)
        return [op for op in rows if is_anchor(op, dim)]

    @property
    def num_phases(self) -> int:
        """One more than the last phase of any op."""
        return max(self.phases.values(), default=0) + 1


def find_rollable_dims(function: Function) -> tuple[Dim, ...]:
    """The dimensions that ``roll_reductions`` can turn into loops, in order of first reduction."""
    found: dict[Dim, None] = {}
    for op in walk_function(function):
        if isinstance(op, Reduce):
            found.setdefault(op.x.tile.shape[op.axis])
    return tuple(dim for dim in found if plan_rolling(function, dim) is not None)


def plan_rolling(function: Function, dim: Dim) -> list[RowPlan] | None:
    """The plans of all regions with row ops; None when the dimension cannot be rolled."""
    if not _is_slice(function, dim) or not _has_legal_rows(function, dim):
        return None
    defined_by = definitions(function.body)
    inner = [region for op in walk_function(function) for region in op.regions()]
    plans = [_make_plan(region, dim, defined_by) for region in (function.body, *inner)]
    plans = [plan for plan in plans if plan.rows]
    is_reduced = any(_reduces_over(op, dim) for plan in plans for op in plan.rows)
    is_legal = is_reduced and all(
        _inputs_can_be_recomputed(plan, dim, defined_by)
        and _keeps_memory_order(plan, dim, defined_by)
        for plan in plans
    )
    return plans if is_legal else None


def has_dim(value: Value, dim: Dim) -> bool:
    """Whether a tile has the dimension."""
    return isinstance(value.type, TileType) and dim in value.type.shape


def is_row(op: Operation, dim: Dim) -> bool:
    """Whether an operand or result of an op has the dimension."""
    return any(has_dim(value, dim) for value in (*op.operand_values(), *op.results))


def is_anchor(op: Operation, dim: Dim) -> bool:
    """Whether a row op has an effect, or a result that outlives the loop over chunks."""
    return Trait.WRITES in op.traits or _reduces_over(op, dim)


def _reduces_over(op: Operation, dim: Dim) -> bool:
    return isinstance(op, Reduce) and op.x.tile.shape[op.axis] == dim


def _is_slice(function: Function, dim: Dim) -> bool:
    """Whether the dimension is a constant beyond 1, or a size that is known as a scalar."""
    if dim.constant is not None:
        return len(dim.factors) == 1 and dim.constant > 1
    is_size = dim.symbol is not None and not function.is_block(dim.symbol)
    return is_size and function.find_parameter(dim.symbol or "") is not None


def _has_legal_rows(function: Function, dim: Dim) -> bool:
    uses = count_uses(function.body)
    for op in walk_function(function):
        if any(has_dim(arg, dim) for region in op.regions() for arg in region.args):
            return False
        # Phases would change the order of effects.
        if is_pinned(op):
            return False
        if not is_row(op, dim):
            continue
        values = (v for v in (*op.operand_values(), *op.results) if has_dim(v, dim))
        if not _can_be_chunked(op) or any(v.tile.shape.count(dim) > 1 for v in values):
            return False
        if isinstance(op, Atomic) and uses.get(op.result):
            return False
    return True


def _can_be_chunked(op: Operation) -> bool:
    """Whether an op can be run over a chunk of a row at a time.

    Each phase computes again what it needs, so ops that are not lane-wise (products, sorts) would
    be repeated at their full cost even where they keep the dimension. Of those that combine lanes
    only built-in reductions have an accumulator, of those that number lanes only a slice's indices
    become those of a tile.
    """
    if isinstance(op.form, forms.Numbered):
        return isinstance(op, Arange)
    return op.form.is_lane_wise or isinstance(op.form, forms.Accessed) or isinstance(op, Reduce)


def _make_plan(region: Region, dim: Dim, defined_by: Definitions) -> RowPlan:
    plan = RowPlan(region)
    available: dict[Value, int] = {}
    earlier: list[_Timed] = []
    for op in region.ops:
        if is_row(op, dim):
            plan.rows.add(op)
        accesses = _accesses_of(op, defined_by)
        waits = (available.get(value, 0) for value in values_used_by((op,)))
        phase = max((0, *waits, *_phases_of_memory(accesses, op in plan.rows, earlier)))
        plan.phases[op] = phase
        earlier.extend(_Timed(access, phase, phase, op in plan.rows) for access in accesses)
        for result in op.results:
            available[result] = phase + _reduces_over(op, dim)
    return plan


def _phases_of_memory(
    accesses: list[Access], is_row_op: bool, earlier: list[_Timed]
) -> Iterator[int]:
    """The phases that accesses must not come before, for the sake of accesses before them."""
    for access in accesses:
        for before in earlier:
            if may_conflict(before.access, access):
                now = _Timed(access, before.last, before.last, is_row_op)
                yield before.last + (not _stays_before(before, now))


def _accesses_of(op: Operation, defined_by: Definitions) -> list[Access]:
    # Barriers are put in again once the loops stand.
    if isinstance(op, ProgramBarrier):
        return []
    inside = (access for region in op.regions() for access in accesses_in(region, defined_by))
    return [*find_accesses(op, defined_by), *inside]


def _inputs_can_be_recomputed(plan: RowPlan, dim: Dim, defined_by: Definitions) -> bool:
    """Whether row values from enclosing regions are lane-wise, so that each loop makes its own."""
    here = {result for op in plan.region.ops for result in op.results}
    used = (value for op in plan.rows for value in op.operand_values())
    outside = [value for value in used if value not in here]
    return all(op.form.is_lane_wise for op in row_closure(outside, dim, defined_by))


def row_closure(roots: Iterable[Value], dim: Dim, defined_by: Definitions) -> set[Operation]:
    """The row ops that must run to compute ``roots`` from values without the dimension."""
    found: set[Operation] = set()
    waiting = list(roots)
    while waiting:
        value = waiting.pop()
        if has_dim(value, dim) and defined_by[value] not in found:
            found.add(defined_by[value])
            waiting.extend(defined_by[value].operand_values())
    return found


@dataclass(frozen=True, eq=False)
class _Timed:
    """An access with the first and last phase that makes it."""

    access: Access
    first: int
    last: int
    is_row: bool


def _keeps_memory_order(plan: RowPlan, dim: Dim, defined_by: Definitions) -> bool:
    last = {op: plan.phases[op] for op in plan.rows}
    for phase in range(plan.num_phases):
        roots = [v for op in plan.anchors(dim, phase) for v in op.operand_values()]
        for op in row_closure(roots, dim, defined_by):
            last[op] = max(phase, last.get(op, 0))
    accesses = [
        _Timed(access, first, last.get(op, first), op in plan.rows)
        for op, first in plan.phases.items()
        for access in _accesses_of(op, defined_by)
    ]
    return all(
        _stays_before(earlier, later)
        for i, later in enumerate(accesses)
        for earlier in accesses[:i]
        if may_conflict(earlier.access, later.access)
    )


def _stays_before(earlier: _Timed, later: _Timed) -> bool:
    """Whether every run of the earlier access comes before every run of the later one."""
    if earlier.last != later.first:
        return earlier.last < later.first
    if not earlier.is_row:
        # Ops without the dimension stand before the loop of their phase, in their old order.
        return True
    # In one loop, chunks meet only themselves when both touch the same place.
    return later.is_row and is_same_place(earlier.access, later.access)


class BlockUse(Enum):
    """How the shape of a tile uses the blocks of a grid."""

    PLAIN = "plain"
    COORDINATE = "coordinate"
    JOINT = "joint"
    SCATTERED = "scattered"


def find_flattenable(function: Function) -> tuple[int, ...]:
    """The slots of the grids that ``flatten_tiles`` can make grids over all their elements.

    Every value inside must have the grid's blocks all together and in order (a joint tile), or be
    an index along one of them (a coordinate), or have none of them (plain).
    """
    defined_by = definitions(function.body)
    grids = [op for op in function.body.ops if isinstance(op, Grid)]
    return tuple(grid.slot for grid in grids if _is_flattenable(grid, defined_by))


def find_run(shape: Shape, blocks: tuple[str, ...]) -> int | None:
    """The axis at which the blocks stand one after the other, if they do."""
    wanted = tuple(map(Dim.of, blocks))
    for start in range(len(shape) - len(wanted) + 1):
        if shape[start : start + len(wanted)] == wanted:
            return start
    return None


def block_use_of(shape: Shape, blocks: tuple[str, ...]) -> BlockUse:
    """How a shape uses the blocks."""
    used = [dim for dim in shape if set(dim.symbols) & set(blocks)]
    if not used:
        return BlockUse.PLAIN
    if find_run(shape, blocks) is not None and len(used) == len(blocks):
        return BlockUse.JOINT
    is_line = len(used) == 1 and used[0].symbol is not None
    others = [dim for dim in shape if dim is not used[0]]
    if is_line and all(dim.is_one for dim in others):
        return BlockUse.COORDINATE
    return BlockUse.SCATTERED


def _is_flattenable(grid: Grid, defined_by: dict[Value, Operation]) -> bool:
    blocks = grid.blocks
    if len(blocks) < 2 or not all(blocks) or len(set(blocks)) < len(blocks):
        return False
    begins = [defined_by.get(begin) for begin in grid.begins]
    if not all(isinstance(begin, Full) and begin.value == 0 for begin in begins):
        return False
    ops = list(walk(grid.body))
    is_legal = all(_is_legal(op, grid) for op in ops)
    return is_legal and any(isinstance(op.form, forms.Accessed) for op in ops)


def _is_legal(op: Operation, grid: Grid) -> bool:
    if Trait.EFFECT in op.traits:
        return False
    uses_position = not set(op.operand_values()).isdisjoint(grid.body.args)
    if isinstance(op, TileIndex) and op.block in grid.blocks:
        return op.begin is grid.body.args[grid.blocks.index(op.block)]
    if uses_position or (isinstance(op, BlockSize) and op.block in grid.blocks):
        return False
    if isinstance(op, Loop) and not set(op.blocks).isdisjoint(grid.blocks):
        return False
    args = (arg for region in op.regions() for arg in region.args)
    types = [value.type for value in (*op.operand_values(), *op.results, *args)]
    tiles = [kind for kind in types if isinstance(kind, TileType)]
    uses = {block_use_of(tile.shape, grid.blocks) for tile in tiles}
    if uses <= {BlockUse.PLAIN}:
        # How often an atomic without tiles runs depends on the number of programs; who comes to a
        # barrier does too.
        return not isinstance(op, (Atomic, GroupBarrier))
    return BlockUse.SCATTERED not in uses and _is_legal_kind(op, uses, grid.blocks)


def _is_legal_kind(op: Operation, uses: set[BlockUse], blocks: tuple[str, ...]) -> bool:
    form = op.form
    if isinstance(form, forms.Accessed):
        return _is_legal_access(op, blocks)
    if isinstance(form, (forms.Carried, forms.Combined, forms.Mixed)) or (
        isinstance(form, forms.Kept) and form.attribute
    ):
        # Axes of joint tiles are counted anew; a coordinate becomes a line, which has no others.
        mixed = (
            dim
            for value, roles in zip(op.operand_values(), op.axis_roles())
            for role, dim in zip(roles, value.tile.shape if roles else ())
            if role.role is not Role.KEPT
        )
        is_mixed = any(not set(dim.symbols).isdisjoint(blocks) for dim in mixed)
        return BlockUse.COORDINATE not in uses and not is_mixed
    # Lanes that are numbered within a tile, or lie along axes in another order, do not run through
    # all elements of the grid.
    return form.is_lane_wise and not isinstance(form, (forms.Numbered, forms.Permuted))


def _is_legal_access(op: Operation, blocks: tuple[str, ...]) -> bool:
    shape = forms.Accessed.tile(op).tile.shape
    if block_use_of(shape, blocks) is not BlockUse.JOINT or is_elsewhere(op):
        return False
    # Indices align with the accessed shape from the right: each coordinate must meet its block.
    assert isinstance(op, (Load, Store, Atomic))
    return all(
        own.is_one or own == met
        for index in op.indices
        for own, met in zip(reversed(index.tile.shape), reversed(shape))
    )
