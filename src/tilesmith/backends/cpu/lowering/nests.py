"""Steps of a plan as loop IR: nests with what they compute and write, and whole tiles."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from tilesmith.backends.cpu.dots.joined_steps import multiplies_tiles, steps_at_once
from tilesmith.backends.cpu.loop_ir import elements as ir
from tilesmith.backends.cpu.loop_ir import statements, whole_tiles
from tilesmith.backends.cpu.lowering.scopes import VIEWS, GridScope
from tilesmith.backends.cpu.planning import coordinates
from tilesmith.backends.cpu.planning.coordinates import (
    Coords,
    operands_at,
    own_coords,
    own_place,
    space_of,
)
from tilesmith.backends.cpu.planning.steps import DotStep, Nest, Root
from tilesmith.backends.cpu.planning.virtual_tiles import find_matrix, find_stored
from tilesmith.backends.cpu.positions.memory import count_lanes, may_leave
from tilesmith.dtypes import DType
from tilesmith.ir.axis_roles import Joined, Numbered
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.foreign import Print
from tilesmith.ir.ops.indexing import Arange, BlockSize, Full, TileIndex
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.ops.rearrangement import Gather, Join, Sort
from tilesmith.ir.ops.reduction import Reduce, ReduceWith, Scan, ScanWith
from tilesmith.ir.types import Shape, Value

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
        value, operands = op.result, tuple(map(self.get, operands_at(op, coords)))
        # A tile kept in memory counts as changing with all its own axes, computed here or not.
        if value in self._computed or isinstance(op.form, (Numbered, Joined)):
            axes = coordinates.axes_of(coords)
        else:
            axes = NOWHERE.union(*(operand.axes for operand in operands))
        common = self.scope.label(value), value.tile.dtype, axes, operands
        return ELEMENT_RULES[type(op)](self, op, coords, common)

    def access(self, op: Load | Store | Atomic, coords: Coords) -> ir.Access:
        """The element of a tensor that an op touches."""
        parts = [self.get(place) for place in coordinates.access_places(op, coords)]
        count = len(op.indices)
        has_base = not isinstance(op, Atomic) and op.bases is not None
        return ir.Access(
            self.scope.tensor(op.tensor),
            tuple(parts[:count]),
            parts[count] if has_base else None,
            None if op.mask is None else parts[-1],
            not isinstance(op, Load) and may_leave(op, self.scope.tiles.definitions),
        )

    def place(self, value: Value, coords: Coords) -> ir.TilePlace:
        """An element of a tile in scratch memory."""
        return ir.TilePlace(self.scope.tile(value), self.positions(coords))

    def kept_place(self, value: Value, coords: Coords) -> ir.TilePlace | ir.Access:
        """Where an element of a tile in memory lies: scratch memory, or that of a later store."""
        store = self.scope.program.spilled.get(value)
        return self.place(value, coords) if store is None else self.access(store, coords)

    def target(self, result: Value, coords: Coords) -> ir.Variable | ir.TilePlace:
        """Where an element of a result goes."""
        is_tile = result.tile.rank > 0
        return self.place(result, coords) if is_tile else self.scope.variable(result)

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
            kept = self.kept_place(value, coords)
            return ir.ReadTile(label, dtype, coordinates.axes_of(coords), (), kept)
        return self.compute(self.scope.tiles.definitions[value], coords)


ElementRule = Callable[[ElementLowering, Any, Coords, Common], ir.Element]


def _number_positions(at: ElementLowering, _: Operation, coords: Coords, it: Common) -> ir.Element:
    return ir.PositionOf(*it, at.position(coords[0]))


ELEMENT_RULES: dict[type[Operation], ElementRule] = {
    Elementwise: lambda _at, op, _coords, it: ir.Apply(*it, op.fn),
    Cast: lambda _at, op, _coords, it: ir.Convert(*it, op.bitcast),
    Load: lambda at, op, coords, it: ir.Read(*it, at.access(op, coords), at.ahead.get(op, ())),
    Full: lambda _at, op, _coords, it: ir.Number(*it, op.value),
    TileIndex: _number_positions,
    Arange: _number_positions,
    BlockSize: lambda _at, op, _coords, it: ir.BlockLength(*it, op.block),
    Join: lambda at, _op, coords, it: ir.Joined(*it, at.position(coords[-1])),
    Gather: lambda _at, _op, _coords, it: ir.Gathered(*it),
    **dict.fromkeys(VIEWS, lambda _at, _op, _coords, it: ir.View(*it)),
}
"""The record of each op whose elements are computed on demand, from what all elements have."""


def lower_nest(
    scope: GridScope, nest: Nest, ahead: Mapping[Load, tuple[int, ...]]
) -> statements.Nest:
    """A nest with all its writes."""
    own = [root.place[0] for root in nest.roots if root.is_own_keep]
    elements = ElementLowering(scope, own, ahead)
    layout, options = nest.layout, scope.schedule.cpu
    is_plain = layout.form is statements.Form.ONE_BY_ONE or layout.vector_axis < 0
    most = scope.schedule.target.vector_lanes
    length = None if is_plain else scope.find_bound(layout.space[layout.vector_axis])
    writes = tuple(_write(elements, nest, root) for root in nest.roots)
    has_sums = any(isinstance(write, statements.ReduceElement) for write in writes)
    return statements.Nest(
        layout=layout,
        writes=writes,
        lanes=1 if is_plain else count_lanes(length, most),
        unroll=options.unroll if has_sums else 1,
        may_stream=options.streaming_stores and not has_sums,
    )


def _write(elements: ElementLowering, nest: Nest, root: Root) -> statements.Write:
    op, coords = root.op, root.place[1]
    if root.target is not None:
        return _keep(elements, nest, root, root.target)
    if isinstance(op, (Store, Atomic)):
        return lower_access(elements, op, coords)
    assert isinstance(op, Reduce)
    target = elements.target(op.result, _without(coords, op.axis))
    value = elements.get(root.place)
    return statements.ReduceElement(value, op.reduction, op.result.tile.dtype, target, op.loc)


def _without(coords: Coords, axis: int) -> Coords:
    return coords[:axis] + coords[axis + 1 :]


def _keep(elements: ElementLowering, nest: Nest, root: Root, kept: Value) -> statements.KeepElement:
    value, target = elements.get(root.place), elements.kept_place(kept, root.place[1])
    store = elements.scope.program.spilled.get(kept)
    # Where the store itself is in this nest and stores this very tile, it does the work.
    is_stored = store is not None and store.value is kept
    is_stored_too = is_stored and any(other.op is store for other in nest.roots)
    return statements.KeepElement(value, target, root.is_own_keep, is_stored_too)


def lower_access(
    elements: ElementLowering, op: Store | Atomic, coords: Coords
) -> statements.StoreElement | statements.UpdateElement:
    """A store or an atomic update of one element."""
    value, access = elements.get((op.value, coords)), elements.access(op, coords)
    if isinstance(op, Store):
        return statements.StoreElement(value, access, op.loc)
    expected = None
    if op.expected is not None:
        expected = elements.get(coordinates.access_places(op, coords)[len(op.indices)])
    result = elements.target(op.result, coords) if op.result in elements.scope.users else None
    return statements.UpdateElement(value, access, op.kind, op.order, expected, result, op.loc)


def lower_product(
    scope: GridScope, step: DotStep, packed: whole_tiles.PackedOperand | None
) -> whole_tiles.Product:
    """A product into the scratch memory of its result."""
    op, elements = step.op, ElementLowering(scope)
    (*batch, m, k), n = op.lhs.tile.shape, op.rhs.tile.shape[-1]
    addend = None if op.acc is None else elements.get(own_place(op.acc))
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
        bounds=(scope.find_most(m), scope.find_most(n), scope.find_most(k)),
        dtype=op.result.tile.dtype,
        accumulates=step.accumulates,
        starts_at=starts_at,
        uses_matrix_tiles=multiplies_tiles(op, scope.schedule.target),
        joined_steps=steps_at_once(op, scope.schedule.target),
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


def _lower_print(scope: GridScope, op: Print) -> whole_tiles.Print:
    elements = ElementLowering(scope)
    pairs = tuple((elements.get(own_place(value)), value.tile.shape) for value in op.values)
    return whole_tiles.Print(op.prefix, pairs, op.loc)


def _lower_sort(scope: GridScope, op: Sort) -> whole_tiles.SortLines | None:
    """A line of one element is in order."""
    if op.x.tile.shape[op.axis].is_one:
        return None
    return whole_tiles.SortLines(scope.tile(op.result), op.axis, op.count, op.loc)


def _lower_scan(scope: GridScope, op: Scan) -> whole_tiles.Scan:
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


def _lower_combination(scope: GridScope, op: ReduceWith | ScanWith) -> whole_tiles.Combine:
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
    if result.tile.rank and result not in elements.scope.users:
        return ir.Unread(elements.scope.label(result))
    coords = own_coords(op.xs[0].tile.shape)
    return elements.target(
        result, _without(coords, op.axis) if isinstance(op, ReduceWith) else coords
    )


def _loop_of(shape: Shape, axis: int) -> int | None:
    """The loop that goes along a dimension; None where that has one element."""
    return None if shape[axis].is_one else len(space_of(shape[:axis]))


WHOLE_TILES: dict[type[Operation], Callable[[GridScope, Any], whole_tiles.WholeTile | None]] = {
    Print: _lower_print,
    ReduceWith: _lower_combination,
    Scan: _lower_scan,
    ScanWith: _lower_combination,
    Sort: _lower_sort,
}
"""Ops that go through whole tiles by themselves."""
