"""Steps of a plan as loop IR: nests with what they compute and write, and whole tiles."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from tilesmith.backends.cpu.loop_ir import elements as ir
from tilesmith.backends.cpu.loop_ir import nests, whole_tiles
from tilesmith.backends.cpu.lowering.scopes import VIEWS, GridScope
from tilesmith.backends.cpu.planning import coordinates
from tilesmith.backends.cpu.planning.coordinates import Coords, find_bound, own_coords, space_of
from tilesmith.backends.cpu.planning.steps import DotStep, Nest, Root
from tilesmith.backends.cpu.planning.virtual_tiles import (
    find_matrix,
    find_stored,
    multiplies_bytes,
    multiplies_tiles,
)
from tilesmith.dtypes import DType
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.foreign import Print
from tilesmith.ir.ops.indexing import Arange, BlockSize, Full, TileIndex
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.ops.rearrangement import Gather, Join, Sort
from tilesmith.ir.ops.reduction import Reduce, ReduceWith, Scan, ScanWith
from tilesmith.ir.types import Shape, Value
from tilesmith.schedule.schedule import Schedule

NOWHERE: frozenset[int] = frozenset()
Common = tuple[ir.Label, DType, frozenset[int], tuple[ir.Element, ...]]
"""What every element has: label, type, axes, operands."""


class ElementLowering:
    """Lowers the elements that one statement needs, each of them once.

    ``computed`` are stored tiles that the statement computes itself; ``ahead`` says for some loads
    how far their indices move to the next program.
    """

    def __init__(
        self,
        scope: GridScope,
        computed: Collection[Value] = (),
        ahead: Mapping[Load, tuple[int, ...]] | None = None,
    ) -> None:
        self.scope = scope
        self._computed = computed
        self.ahead = ahead or {}
        self._made: dict[coordinates.Place, ir.Element] = {}

    def get(self, place: coordinates.Place) -> ir.Element:
        """The element at a place."""
        found = self._made.get(place)
        if found is None:
            found = self._made[place] = self._lower(place)
        return found

    def compute(self, op: Operation, coords: Coords) -> ir.Element:
        """The element of an op's result from its operands."""
        return ELEMENT_RULES[type(op)](self, op, coords)

    def access(self, op: Load | Store | Atomic, coords: Coords) -> ir.Access:
        """The element of a tensor that an op touches."""
        shape = (op.result if isinstance(op, Load) else op.value).tile.shape
        parts = [self.get(place) for place in coordinates.access_places(op, shape, coords)]
        count = len(op.indices)
        has_base = not isinstance(op, Atomic) and op.bases is not None
        return ir.Access(
            self.scope.tensor(op.tensor),
            tuple(parts[:count]),
            parts[count] if has_base else None,
            None if op.mask is None else parts[-1],
        )

    def place(self, value: Value, coords: Coords) -> ir.TilePlace:
        """An element of a tile in scratch memory."""
        return ir.TilePlace(self.scope.tile(value), self.positions(coords))

    def positions(self, coords: Coords) -> ir.Positions:
        """Coordinates as positions."""
        return tuple(map(self.position, coords))

    def position(self, coord: coordinates.Coord) -> ir.Position:
        """A coordinate as a position."""
        if isinstance(coord, coordinates.Zero):
            return ir.Fixed(0)
        if isinstance(coord, coordinates.Indirect):
            return ir.Indirect(self.get((coord.value, coord.coords)))
        if isinstance(coord, coordinates.Digit):
            return ir.Digit(self.positions(coord.coords), coord.source, coord.shape, coord.axis)
        return coord

    def _lower(self, place: coordinates.Place) -> ir.Element:
        value, coords = place
        label, dtype = self.scope.label(value), value.tile.dtype
        if not value.tile.rank:
            return ir.ReadVariable(label, dtype, NOWHERE, (), self.scope.variable(value))
        if value not in self._computed and self.scope.tiles.is_stored(value):
            axes, store = axes_of_coords(coords), self.scope.program.spilled.get(value)
            if store is not None:
                return ir.ReadResult(label, dtype, axes, (), self.access(store, coords))
            return ir.ReadTile(label, dtype, axes, (), self.place(value, coords))
        op = self.scope.tiles.definitions[value]
        return ELEMENT_RULES[type(op)](self, op, coords)

    def common(self, op: Operation, coords: Coords, operands: tuple[ir.Element, ...]) -> Common:
        """What an op's element has: it changes with all that its operands change with."""
        value = op.result
        # A tile kept in memory counts as changing with all its own axes, computed here or not.
        if value in self._computed or not operands:
            axes = axes_of_coords(coords) if value in self._computed else NOWHERE
        elif len(operands) == 1:
            axes = operands[0].axes
        else:
            axes = NOWHERE.union(*(operand.axes for operand in operands))
        return self.scope.label(value), value.tile.dtype, axes, operands

    def positional(self, op: Operation, coords: Coords, *operands: ir.Element) -> Common:
        """The same for an element that its own position decides."""
        axes = axes_of_coords(coords)
        return self.scope.label(op.result), op.result.tile.dtype, axes, operands


def axes_of_coords(coords: Coords) -> frozenset[int]:
    """The loops that coordinates move with."""
    return NOWHERE.union(*map(coordinates.axes_of, coords))


def _load(lowering: ElementLowering, op: Load, coords: Coords) -> ir.Element:
    access = lowering.access(op, coords)
    return ir.Read(
        *lowering.common(op, coords, access.operands), access, lowering.ahead.get(op, ())
    )


def _elementwise(lowering: ElementLowering, op: Elementwise, coords: Coords) -> ir.Element:
    args = tuple(lowering.get((arg, coords)) for arg in op.args)
    return ir.Apply(*lowering.common(op, coords, args), op.fn)


def _tile_index(lowering: ElementLowering, op: TileIndex, coords: Coords) -> ir.Element:
    begin = lowering.get((op.begin, ()))
    return ir.PositionOf(*lowering.positional(op, coords, begin), lowering.position(coords[0]))


def _view(lowering: ElementLowering, op: Operation, coords: Coords) -> ir.Element:
    (place,) = coordinates.operands_at(op, coords)
    return ir.View(*lowering.common(op, coords, (lowering.get(place),)))


def _join(lowering: ElementLowering, op: Join, coords: Coords) -> ir.Element:
    sides = map(lowering.get, coordinates.operands_at(op, coords))
    return ir.Joined(*lowering.positional(op, coords, *sides), lowering.position(coords[-1]))


ELEMENT_RULES: dict[type[Operation], Callable[[ElementLowering, Any, Coords], ir.Element]] = {
    Elementwise: _elementwise,
    Cast: lambda at, op, coords: ir.Convert(
        *at.common(op, coords, (at.get((op.x, coords)),)), op.bitcast
    ),
    Load: _load,
    Full: lambda at, op, coords: ir.Number(*at.common(op, coords, ()), op.value),
    TileIndex: _tile_index,
    Arange: lambda at, op, coords: ir.PositionOf(
        *at.positional(op, coords), at.position(coords[0])
    ),
    BlockSize: lambda at, op, coords: ir.BlockLength(*at.common(op, coords, ()), op.block),
    Join: _join,
    Gather: lambda at, op, coords: ir.Gathered(
        *at.common(op, coords, tuple(map(at.get, coordinates.operands_at(op, coords))))
    ),
    **dict.fromkeys(VIEWS, _view),
}


def lower_nest(
    scope: GridScope, schedule: Schedule, nest: Nest, ahead: Mapping[Load, tuple[int, ...]]
) -> nests.Nest:
    """A nest with all its writes."""
    own = [root.place[0] for root in nest.roots if root.is_own_keep]
    elements = ElementLowering(scope, own, ahead)
    layout, options = nest.layout, schedule.cpu
    is_plain = layout.form is nests.Form.ONE_BY_ONE or layout.vector_axis < 0
    writes = tuple(_write(elements, nest, root) for root in nest.roots)
    has_sums = any(isinstance(write, nests.ReduceElement) for write in writes)
    return nests.Nest(
        layout=layout,
        writes=writes,
        lanes=1 if is_plain else schedule.target.vector_lanes,
        unroll=options.unroll if has_sums else 1,
        may_stream=options.streaming_stores and not has_sums,
    )


def _write(elements: ElementLowering, nest: Nest, root: Root) -> nests.Write:
    op, coords, scope = root.op, root.place[1], elements.scope
    if root.target is not None:
        return _keep(elements, nest, root, root.target)
    if isinstance(op, Store):
        value = elements.get(root.place)
        return nests.StoreElement(value, elements.access(op, coords), op.loc)
    if isinstance(op, Atomic):
        has_memory = scope.has_memory(op.result)
        result = elements.place(op.result, coords) if has_memory else None
        return lower_atomic(elements, op, coords, result)
    assert isinstance(op, Reduce)
    if op.result.tile.rank:
        target = elements.place(op.result, coords[: op.axis] + coords[op.axis + 1 :])
    else:
        target = scope.variable(op.result)
    value = elements.get(root.place)
    return nests.ReduceElement(value, op.reduction, op.result.tile.dtype, target, op.loc)


def _keep(elements: ElementLowering, nest: Nest, root: Root, kept: Value) -> nests.KeepElement:
    value, coords = elements.get(root.place), root.place[1]
    store = elements.scope.program.spilled.get(kept)
    target = elements.place(kept, coords) if store is None else elements.access(store, coords)
    # Where the store itself is in this nest and stores this very tile, it does the work.
    is_stored = store is not None and store.value is kept
    is_stored_too = is_stored and any(other.op is store for other in nest.roots)
    return nests.KeepElement(value, target, root.is_own_keep, is_stored_too)


def lower_atomic(
    elements: ElementLowering,
    op: Atomic,
    coords: Coords,
    result: ir.Variable | ir.TilePlace | None,
) -> nests.UpdateElement:
    """An atomic update of one element."""
    expected = None
    if op.expected is not None:
        places = coordinates.access_places(op, op.value.tile.shape, coords)
        expected = elements.get(places[len(op.indices)])
    return nests.UpdateElement(
        value=elements.get((op.value, coords)),
        access=elements.access(op, coords),
        kind=op.kind,
        order=op.order,
        expected=expected,
        result=result,
        loc=op.loc,
    )


def lower_product(
    scope: GridScope, schedule: Schedule, step: DotStep, packed: whole_tiles.PackedOperand | None
) -> whole_tiles.Product:
    """A product into the scratch memory of its result."""
    op, elements = step.op, ElementLowering(scope)
    (*batch, m, k), n = op.lhs.tile.shape, op.rhs.tile.shape[-1]
    bound = partial(find_bound, schedule, scope.kernel.block_sizes)
    addend = None if op.acc is None else elements.get((op.acc, own_coords(op.acc.tile.shape)))
    starts_at: tuple[tuple[ir.Variable, ir.Variable], ...] = ()
    if step.starts_in is not None:
        pairs = zip(step.starts_in.body.args, step.starts_in.begins)
        starts_at = tuple((scope.variable(at), scope.variable(begin)) for at, begin in pairs)
    return whole_tiles.Product(
        target=scope.tile(op.result),
        lhs=_matrix(elements, op.lhs),
        rhs=_matrix(elements, op.rhs),
        addend=addend,
        shape=(*batch, m, n, k),
        bounds=(bound(m), bound(n), bound(k)),
        dtype=op.result.tile.dtype,
        accumulates=step.accumulates,
        starts_at=starts_at,
        uses_matrix_tiles=multiplies_tiles(op, schedule.target),
        uses_bytes=multiplies_bytes(op, schedule.target),
        packed=packed,
        loc=op.loc,
    )


def _matrix(elements: ElementLowering, value: Value) -> whole_tiles.Matrix:
    coords, tiles = own_coords(value.tile.shape), elements.scope.tiles
    element, stored = elements.get((value, coords)), find_stored(value, tiles)
    if stored is not None:
        return whole_tiles.StoredMatrix(element, elements.scope.tile(stored))
    found = find_matrix(value, tiles)
    assert found is not None, f"{value.name} was to be kept"
    axes = tuple(coord.axis if isinstance(coord, ir.LoopIndex) else None for coord in coords)
    access = elements.access(found.load, found.coords)
    return whole_tiles.LoadedMatrix(element, access, axes, found.steps)


def lower_print(scope: GridScope, op: Print) -> whole_tiles.Print:
    """A device print."""
    elements = ElementLowering(scope)
    places = [(value, own_coords(value.tile.shape)) for value in op.values]
    pairs = tuple((elements.get(place), place[0].tile.shape) for place in places)
    return whole_tiles.Print(op.prefix, pairs, op.loc)


def lower_sort(scope: GridScope, op: Sort) -> whole_tiles.SortLines | None:
    """A sort; a line of one element is in order."""
    is_single = op.x.tile.shape[op.axis].is_one
    return None if is_single else whole_tiles.SortLines(scope.tile(op.result), op.axis, op.loc)


def lower_scan(scope: GridScope, op: Scan) -> whole_tiles.Scan:
    """A scan of one of the usual kinds."""
    elements, shape = ElementLowering(scope), op.x.tile.shape
    coords = own_coords(shape)
    return whole_tiles.Scan(
        value=elements.get((op.x, coords)),
        space=space_of(shape),
        along=_loop_of(shape, op.axis),
        axis=op.axis,
        kind=op.reduction,
        is_reversed=op.reverse,
        target=elements.place(op.result, coords),
        loc=op.loc,
    )


def lower_combination(scope: GridScope, op: ReduceWith | ScanWith) -> whole_tiles.Combine:
    """A combination of the user's own."""
    elements, shape, variable = ElementLowering(scope), op.xs[0].tile.shape, scope.variable
    coords, inner = own_coords(shape), op.combine.ops[:-1]
    others = op.others if isinstance(op, ReduceWith) else None
    return whole_tiles.Combine(
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
) -> ir.Variable | ir.TilePlace | ir.Unread:
    scope = elements.scope
    if not result.tile.rank:
        return scope.variable(result)
    if not scope.has_memory(result):
        return ir.Unread(scope.label(result))
    coords = own_coords(op.xs[0].tile.shape)
    if isinstance(op, ReduceWith):
        coords = coords[: op.axis] + coords[op.axis + 1 :]
    return elements.place(result, coords)


def _loop_of(shape: Shape, axis: int) -> int | None:
    """The loop that goes along a dimension; None where that has one element."""
    return None if shape[axis].is_one else len(space_of(shape[:axis]))
