"""Products whose rows are reduced in the same program, so that both can be tiled on their own.

Only what is certain is found: a loop over products with an accumulator of whole rows, then ops that
treat each row alike and store it. The columns of the product are told apart by dataflow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from tilesmith.analysis.effects import alias_group, is_elsewhere, is_pure
from tilesmith.diagnostics.location import SourceLocation
from tilesmith.ir import axis_roles as forms
from tilesmith.ir.axis_roles import Role
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Trait
from tilesmith.ir.ops.control_flow import Grid, Loop, Yield
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import BlockSize, Full, TileIndex
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Load, ProgramBarrier, Store
from tilesmith.ir.traversal import definitions, values_used_by, walk
from tilesmith.ir.types import Dim, Shape, TileType, Value

_WITH_EFFECTS = (Load, Store, Loop, Yield, ProgramBarrier)
"""What may stand beside pure ops: the rest of memory and control flow is not followed."""
_RANDOM = "mulhi"
"""What random numbers are made with: which lane draws which number may hang on the tiling."""
_Place = tuple[Value, int]
"""An axis of a value."""
_TELLING = frozenset({Role.KEPT, Role.REPEATED, Role.COMBINED})
"""Roles in which lanes keep their numbers, or the result has no lanes to number."""


@dataclass(frozen=True, eq=False)
class RowSite:
    """Rows of a known length that a grid has tiles of."""

    grid: Grid
    num_rows: int
    num_columns: int
    """The length of a row."""
    loc: SourceLocation

    @property
    def row_block(self) -> str:
        """The block that the grid tiles rows by."""
        return self.grid.blocks[0]

    @property
    def row_begin(self) -> Value:
        """The first row of a program's tile."""
        return self.grid.body.args[0]


@dataclass(frozen=True, eq=False)
class RowProduct(RowSite):
    """The parts of a function: what the loop needs from before it, and what comes of its result."""

    loop: Loop
    dot: Dot
    acc: Value
    before: tuple[Operation, ...]
    """Ops of the grid that the loop needs."""
    after: tuple[Operation, ...]
    """Ops of the grid that its stores need, less the loop; barriers are not among them."""
    columns: Mapping[Value, int] = field(default_factory=dict[Value, int])
    """The values before and in the loop that have the axis of columns, and which axis it is."""


def find_row_product(function: Function) -> RowProduct | None:
    """The product whose rows a function reduces, where it has one and does little else."""
    site = _find_loop(function)
    if site is None or not _is_row_wise(site):
        return None
    ops = (*site.before, site.loop, *site.loop.body.ops)
    columns = find_axis(ops, site.acc, 1)
    if columns is None or site.dot.result not in columns:
        return None
    combined = (op for op in ops if isinstance(op.form, forms.Combined))
    if any(not columns.keys().isdisjoint(op.operand_values()) for op in combined):
        return None
    return replace(site, columns=columns)


def _find_loop(function: Function) -> RowProduct | None:
    grid = next(reversed(function.body.ops), None)
    if not isinstance(grid, Grid) or not all(map(is_pure, function.body.ops[:-1])):
        return None
    num_rows = count_rows(function, grid)
    loops = [op for op in grid.body.ops if isinstance(op, Loop)]
    dots = [op for op in walk(grid.body) if isinstance(op, Dot)]
    if num_rows is None or len(loops) != 1 or len(dots) != 1:
        return None
    if not all(map(is_followed, grid.body.ops)):
        return None
    site = _collect(grid, loops[0], dots[0], num_rows)
    return site if site and _has_whole_rows(site.acc.tile.shape, grid) else None


def _has_whole_rows(shape: Shape, grid: Grid) -> bool:
    """Whether an accumulator has whole rows of constant length, for a tile of rows."""
    if len(shape) != 2 or shape[0] != Dim.of(grid.blocks[0]):
        return False
    return shape[1].constant is not None and len(shape[1].factors) == 1


def _collect(grid: Grid, loop: Loop, dot: Dot, num_rows: int) -> RowProduct | None:
    position = grid.body.ops.index(loop)
    before, after = grid.body.ops[:position], grid.body.ops[position + 1 :]
    used = set(values_used_by(after))
    results = [value for value in loop.results if value in used]
    inside = (*before, *loop.body.ops)
    if len(results) != 1 or dot not in loop.body.ops:
        return None
    if any(isinstance(op, (Store, Loop)) or not is_followed(op) for op in inside):
        return None
    stores = [op for op in after if isinstance(op, Store)]
    needed = needed_by((*before, *after), stores)
    length = next((dim.constant or 0 for dim in reversed(results[0].tile.shape)), 0)
    place, ops = (grid, num_rows, length, loop.loc), (needed_by(before, [loop]), needed)
    return RowProduct(*place, loop, dot, results[0], *ops)


def count_rows(function: Function, grid: Grid) -> int | None:
    """The constant end of a grid over tiles of one block from 0 on."""
    if len(grid.blocks) != 1 or not grid.blocks[0]:
        return None
    defined_by = definitions(function.body)
    begin, end = (defined_by.get(value) for value in (*grid.begins, *grid.ends))
    if not isinstance(begin, Full) or not isinstance(end, Full) or begin.value != 0:
        return None
    return int(end.value) or None


def is_followed(op: Operation) -> bool:
    """Whether what an op does to rows and to memory is understood here."""
    if isinstance(op, Elementwise) and op.fn == _RANDOM:
        return False
    # Nothing in a combination of two elements knows about tiles.
    is_known = Trait.PURE in op.traits or isinstance(op, _WITH_EFFECTS)
    return is_known and not is_elsewhere(op)


def needed_by(ops: tuple[Operation, ...], roots: Sequence[Operation]) -> tuple[Operation, ...]:
    """The ops that the roots use, directly or not, and those roots that are among them."""
    wanted = set(values_used_by(roots))
    kept: list[Operation] = []
    for op in reversed(ops):
        if op in roots or any(result in wanted for result in op.results):
            kept.append(op)
            wanted.update(values_used_by((op,)))
    return tuple(reversed(kept))


def _is_row_wise(site: RowProduct) -> bool:
    """Whether what follows the loop reduces over columns, and rows may be tiled in any way."""
    written = {alias_group(op.tensor) for op in site.after if isinstance(op, Store)}
    before_loop = site.grid.body.ops[: site.grid.body.ops.index(site.loop)]
    again = [op for op in site.after if isinstance(op, Load) and op in before_loop]
    if any(alias_group(op.tensor) in written for op in again):
        return False
    columns, reached, is_reduced = site.acc.tile.shape[1], {site.acc}, False
    for op in site.after:
        if not reached.isdisjoint(op.operand_values()):
            reached.update(op.results)
            is_combined = isinstance(op.form, forms.Combined) and Role.COMBINED in _roles_of(
                op, columns
            )
            is_reduced = is_reduced or is_combined
    return is_reduced and all(_keeps_rows(op, site) for op in site.after)


def _roles_of(op: Operation, dim: Dim) -> set[Role]:
    """The roles of the operand axes of that dimension."""
    return {
        role.role
        for value, roles in zip(op.operand_values(), op.axis_roles())
        for role, found in zip(roles, value.tile.shape if roles else ())
        if found == dim
    }


def _keeps_rows(op: Operation, site: RowProduct) -> bool:
    """Whether each row comes out of an op the same in whatever tile it stands."""
    rows = Dim.of(site.row_block)
    operands = tuple(op.operand_values())
    tiles = [v.type for v in (*operands, *op.results) if isinstance(v.type, TileType)]
    # Rows beside themselves, or in one dimension with others, depend on how many there are.
    for tile in tiles:
        symbols = [symbol for dim in tile.shape for symbol in dim.symbols]
        if symbols.count(site.row_block) > min(1, tile.shape.count(rows)):
            return False
    if isinstance(op, TileIndex) and op.block == site.row_block:
        return op.begin is site.row_begin
    if site.row_begin in operands:
        return False
    if not any(rows in tile.shape for tile in tiles):
        # Programs that all write the same place would do so in another order.
        is_size = isinstance(op, BlockSize) and op.block == site.row_block
        return not isinstance(op, Store) and not is_size
    if isinstance(op.form, forms.Reshaped):
        # With nothing but ones before it, a reshape leaves a dimension whole.
        fronts = [next((dim for dim in tile.shape if not dim.is_one), None) for tile in tiles]
        return all(front == rows for front in fronts)
    if isinstance(op.form, forms.Carried | forms.Contracted):
        return False
    is_counted = isinstance(op.form, forms.Numbered)  # from 0 in every tile
    return not is_counted and _roles_of(op, rows) <= {Role.KEPT}


def find_axis(ops: Sequence[Operation], value: Value, axis: int) -> dict[Value, int] | None:
    """The values that have an axis of a value, and which of their axes that is.

    None where an axis cannot be told from it: constant dimensions of one length share indices.
    """
    links: defaultdict[_Place, list[_Place]] = defaultdict(list)
    for op in ops:
        for one, other in _same_axes(op):
            links[one].append(other)
            links[other].append(one)
    found: dict[Value, int] = {}
    waiting: list[_Place] = [(value, axis)]
    while waiting:
        place, number = waiting.pop()
        if found.get(place, number) != number:
            return None
        if place not in found:
            found[place] = number
            waiting.extend(links[place, number])
    for op in ops:
        is_carried = isinstance(op.form, forms.Carried)
        is_clear = isinstance(op, (Loop, Yield)) if is_carried else op.form.roles <= _TELLING
        if not is_clear and not found.keys().isdisjoint((*op.operand_values(), *op.results)):
            return None
    return found


def _same_axes(op: Operation) -> Iterator[tuple[_Place, _Place]]:
    """Pairs of axes of an op's values that are one axis."""
    if isinstance(op, Loop):
        for one, *others in zip(op.results, op.init, op.carried, op.body.yielded):
            rank = one.type.rank if isinstance(one.type, TileType) else 0
            yield from (((one, axis), (other, axis)) for other in others for axis in range(rank))
    if isinstance(op.form, forms.Carried):
        return
    targets = (forms.Accessed.tile(op),) if isinstance(op.form, forms.Accessed) else op.results
    combined: list[_Place] = []
    for value, roles in zip(op.operand_values(), op.axis_roles()):
        for axis, role in enumerate(roles):
            if role.role is Role.KEPT and role.to is not None:
                yield from (((target, role.to), (value, axis)) for target in targets)
            elif role.role is Role.COMBINED:
                combined.append((value, axis))
    yield from pairwise(combined)
