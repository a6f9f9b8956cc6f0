"""Steps that go through whole tiles as loop IR: products, scans, combinations, prints, sorts."""

from __future__ import annotations

from tilesmith.backends.cpu.loop_ir import whole_tiles as loop_ir
from tilesmith.backends.cpu.loop_ir.elements import TilePlace, Unread, Variable
from tilesmith.backends.cpu.lowering.nests import ElementLowering
from tilesmith.backends.cpu.lowering.scopes import GridScope
from tilesmith.backends.cpu.planning.coordinates import Axis, own_coords, space_of
from tilesmith.backends.cpu.planning.steps import DotStep
from tilesmith.backends.cpu.planning.virtual_tiles import find_matrix, find_stored, multiplies_tiles
from tilesmith.ir.ops import foreign, rearrangement, reduction
from tilesmith.ir.ops.reduction import ReduceWith, ScanWith
from tilesmith.ir.types import Dim, Shape, Value
from tilesmith.schedule.schedule import Schedule


def lower_product(
    scope: GridScope, schedule: Schedule, step: DotStep, packed: loop_ir.PackedOperand | None
) -> loop_ir.Product:
    """A product into the scratch memory of its result."""
    op, elements = step.op, ElementLowering(scope)
    (*batch, m, k), n = op.lhs.tile.shape, op.rhs.tile.shape[-1]
    addend = None if op.acc is None else elements.get((op.acc, own_coords(op.acc.tile.shape)))
    return loop_ir.Product(
        target=scope.tile(op.result),
        lhs=_matrix(elements, op.lhs),
        rhs=_matrix(elements, op.rhs),
        addend=addend,
        shape=(*batch, m, n, k),
        bounds=(_bound(m, scope, schedule), _bound(n, scope, schedule), _bound(k, scope, schedule)),
        dtype=op.result.tile.dtype,
        accumulates=step.accumulates,
        starts_at=_starts(scope, step),
        uses_matrix_tiles=multiplies_tiles(op, schedule.target),
        packed=packed,
        loc=op.loc,
    )


def _matrix(elements: ElementLowering, value: Value) -> loop_ir.Matrix:
    coords, tiles = own_coords(value.tile.shape), elements.scope.tiles
    element, stored = elements.get((value, coords)), find_stored(value, tiles)
    if stored is not None:
        return loop_ir.StoredMatrix(element, elements.scope.tile(stored))
    found = find_matrix(value, tiles)
    assert found is not None, f"{value.name} was to be kept"
    axes = tuple(coord.number if isinstance(coord, Axis) else None for coord in coords)
    access = elements.access(found.load, found.coords)
    return loop_ir.LoadedMatrix(element, access, axes, found.steps)


def _bound(dim: Dim, scope: GridScope, schedule: Schedule) -> int | None:
    """How long a dimension is at most; None where that depends on a runtime size."""
    blocks = scope.kernel.block_sizes
    is_known = all(isinstance(factor, int) or factor in blocks for factor in dim.factors)
    return schedule.physical(dim) if is_known else None


def _starts(scope: GridScope, step: DotStep) -> tuple[tuple[Variable, Variable], ...]:
    loop = step.starts_in
    if loop is None:
        return ()
    indices = loop.body.args[: loop.rank]
    return tuple(
        (scope.variable(index), scope.variable(begin)) for index, begin in zip(indices, loop.begins)
    )


def lower_print(scope: GridScope, op: foreign.Print) -> loop_ir.Print:
    """A device print."""
    elements = ElementLowering(scope)
    places = [(value, own_coords(value.tile.shape)) for value in op.values]
    pairs = tuple((elements.get(place), place[0].tile.shape) for place in places)
    return loop_ir.Print(op.prefix, pairs, op.loc)


def lower_sort(scope: GridScope, op: rearrangement.Sort) -> loop_ir.SortLines | None:
    """A sort; a line of one element is in order."""
    is_single = op.x.tile.shape[op.axis].is_one
    return None if is_single else loop_ir.SortLines(scope.tile(op.result), op.axis, op.loc)


def lower_scan(scope: GridScope, op: reduction.Scan) -> loop_ir.Scan:
    """A scan of one of the usual kinds."""
    elements, shape = ElementLowering(scope), op.x.tile.shape
    coords = own_coords(shape)
    return loop_ir.Scan(
        value=elements.get((op.x, coords)),
        space=space_of(shape),
        along=_loop_of(shape, op.axis),
        axis=op.axis,
        kind=op.reduction,
        is_reversed=op.reverse,
        target=elements.place(op.result, coords),
        loc=op.loc,
    )


def lower_combination(scope: GridScope, op: ReduceWith | ScanWith) -> loop_ir.Combine:
    """A combination of the user's own."""
    elements, shape, variable = ElementLowering(scope), op.xs[0].tile.shape, scope.variable
    coords, inner = own_coords(shape), op.combine.ops[:-1]
    others = op.others if isinstance(op, ReduceWith) else None
    return loop_ir.Combine(
        values=tuple(elements.get((x, coords)) for x in op.xs),
        space=space_of(shape),
        along=_loop_of(shape, op.axis),
        axis=op.axis,
        args=tuple(map(variable, op.combine.args)),
        steps=tuple((variable(part.result), elements.compute(part, ())) for part in inner),
        yielded=tuple(map(variable, op.combine.yielded)),
        results=tuple(_result(elements, op, result) for result in op.results),
        is_scan=isinstance(op, ScanWith),
        is_reversed=isinstance(op, ScanWith) and op.reverse,
        others=others or (0,) * len(op.xs),
        loc=op.loc,
        inner_locs=tuple(part.loc for part in op.combine.ops),
    )


def _result(
    elements: ElementLowering, op: ReduceWith | ScanWith, result: Value
) -> Variable | TilePlace | Unread:
    scope = elements.scope
    if not result.tile.rank:
        return scope.variable(result)
    if not scope.has_memory(result):
        return Unread(scope.label(result))
    coords = own_coords(op.xs[0].tile.shape)
    if isinstance(op, ReduceWith):
        coords = coords[: op.axis] + coords[op.axis + 1 :]
    return elements.place(result, coords)


def _loop_of(shape: Shape, axis: int) -> int | None:
    """The loop that goes along a dimension; None where that has one element."""
    return None if shape[axis].is_one else len(space_of(shape[:axis]))
