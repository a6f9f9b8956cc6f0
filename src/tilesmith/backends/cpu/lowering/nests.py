"""Nests of a plan as loop IR: what each step of the loops computes and writes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from tilesmith.backends.cpu.loop_ir import elements as ir
from tilesmith.backends.cpu.loop_ir import nests
from tilesmith.backends.cpu.loop_ir.nests import Form, Write
from tilesmith.backends.cpu.lowering.scopes import VIEWS, GridScope
from tilesmith.backends.cpu.planning import coordinates
from tilesmith.backends.cpu.planning.coordinates import (
    Digit as DigitCoord,
)
from tilesmith.backends.cpu.planning.coordinates import (
    Fixed as FixedCoord,
)
from tilesmith.backends.cpu.planning.steps import Nest, Root
from tilesmith.dtypes import DType
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Arange, BlockSize, Full, TileIndex
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.ops.rearrangement import Gather, Join
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.types import Value
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

    def compute(self, op: Operation, coords: coordinates.Coords) -> ir.Element:
        """The element of an op's result from its operands."""
        return ELEMENT_RULES[type(op)](self, op, coords)

    def access(self, op: Load | Store | Atomic, coords: coordinates.Coords) -> ir.Access:
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

    def place(self, value: Value, coords: coordinates.Coords) -> ir.TilePlace:
        """An element of a tile in scratch memory."""
        return ir.TilePlace(self.scope.tile(value), self.positions(coords))

    def positions(self, coords: coordinates.Coords) -> ir.Positions:
        """Coordinates as positions."""
        return tuple(map(self.position, coords))

    def position(self, coord: coordinates.Coord) -> ir.Position:
        """A coordinate as a position."""
        if isinstance(coord, coordinates.Axis):
            return ir.LoopIndex(coord.number)
        if isinstance(coord, coordinates.Indirect):
            return ir.Indirect(self.get((coord.value, coord.coords)))
        if isinstance(coord, DigitCoord):
            return ir.Digit(self.positions(coord.coords), coord.source, coord.shape, coord.axis)
        return ir.Fixed(coord.position if isinstance(coord, FixedCoord) else 0)

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

    def common(
        self, op: Operation, coords: coordinates.Coords, operands: tuple[ir.Element, ...]
    ) -> Common:
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

    def positional(
        self, op: Operation, coords: coordinates.Coords, *operands: ir.Element
    ) -> Common:
        """The same for an element that its own position decides."""
        axes = axes_of_coords(coords)
        return self.scope.label(op.result), op.result.tile.dtype, axes, operands


def axes_of_coords(coords: coordinates.Coords) -> frozenset[int]:
    """The loops that coordinates move with."""
    return NOWHERE.union(*map(coordinates.axes_of, coords))


def _load(lowering: ElementLowering, op: Load, coords: coordinates.Coords) -> ir.Element:
    access = lowering.access(op, coords)
    return ir.Read(
        *lowering.common(op, coords, access.operands), access, lowering.ahead.get(op, ())
    )


def _elementwise(
    lowering: ElementLowering, op: Elementwise, coords: coordinates.Coords
) -> ir.Element:
    args = tuple(lowering.get((arg, coords)) for arg in op.args)
    return ir.Apply(*lowering.common(op, coords, args), op.fn)


def _cast(lowering: ElementLowering, op: Cast, coords: coordinates.Coords) -> ir.Element:
    x = lowering.get((op.x, coords))
    return ir.Convert(*lowering.common(op, coords, (x,)), op.bitcast)


def _full(lowering: ElementLowering, op: Full, coords: coordinates.Coords) -> ir.Element:
    return ir.Number(*lowering.common(op, coords, ()), op.value)


def _tile_index(lowering: ElementLowering, op: TileIndex, coords: coordinates.Coords) -> ir.Element:
    begin = lowering.get((op.begin, ()))
    position = lowering.position(coords[0])
    return ir.PositionOf(*lowering.positional(op, coords, begin), position)


def _arange(lowering: ElementLowering, op: Arange, coords: coordinates.Coords) -> ir.Element:
    return ir.PositionOf(*lowering.positional(op, coords), lowering.position(coords[0]))


def _block_size(lowering: ElementLowering, op: BlockSize, coords: coordinates.Coords) -> ir.Element:
    return ir.BlockLength(*lowering.common(op, coords, ()), op.block)


def _view(lowering: ElementLowering, op: Operation, coords: coordinates.Coords) -> ir.Element:
    (place,) = coordinates.operands_at(op, coords)
    return ir.View(*lowering.common(op, coords, (lowering.get(place),)))


def _gather(lowering: ElementLowering, op: Gather, coords: coordinates.Coords) -> ir.Element:
    operands = tuple(map(lowering.get, coordinates.operands_at(op, coords)))
    return ir.Gathered(*lowering.common(op, coords, operands))


def _join(lowering: ElementLowering, op: Join, coords: coordinates.Coords) -> ir.Element:
    sides = map(lowering.get, coordinates.operands_at(op, coords))
    return ir.Joined(*lowering.positional(op, coords, *sides), lowering.position(coords[-1]))


ELEMENT_RULES: dict[
    type[Operation], Callable[[ElementLowering, Any, coordinates.Coords], ir.Element]
] = {
    Elementwise: _elementwise,
    Cast: _cast,
    Load: _load,
    Full: _full,
    TileIndex: _tile_index,
    Arange: _arange,
    BlockSize: _block_size,
    Join: _join,
    Gather: _gather,
    **dict.fromkeys(VIEWS, _view),
}


class NestLowering:
    """Lowers one nest."""

    def __init__(
        self,
        scope: GridScope,
        schedule: Schedule,
        nest: Nest,
        ahead: Mapping[Load, tuple[int, ...]],
    ) -> None:
        self._scope = scope
        self._schedule = schedule
        self._nest = nest
        own = [root.place[0] for root in nest.roots if root.is_own_keep]
        self._elements = ElementLowering(scope, own, ahead)

    def lower(self) -> nests.Nest:
        """The nest with all its writes."""
        layout, options = self._nest.layout, self._schedule.cpu
        is_plain = layout.form is Form.ONE_BY_ONE or layout.vector_axis < 0
        has_sums = bool(self._nest.reductions)
        return nests.Nest(
            layout=layout,
            writes=tuple(map(self._write, self._nest.roots)),
            lanes=1 if is_plain else self._schedule.target.vector_lanes,
            unroll=options.unroll if has_sums else 1,
            may_stream=options.streaming_stores and not has_sums,
        )

    def _write(self, root: Root) -> Write:
        op, coords = root.op, root.place[1]
        if root.is_keep:
            return self._keep(root)
        if isinstance(op, Store):
            value = self._elements.get(root.place)
            return nests.StoreElement(value, self._elements.access(op, coords), op.loc)
        if isinstance(op, Atomic):
            has_memory = self._scope.has_memory(op.result)
            result = self._elements.place(op.result, coords) if has_memory else None
            return lower_atomic(self._elements, op, coords, result)
        assert isinstance(op, Reduce)
        return self._reduce(root, op)

    def _keep(self, root: Root) -> nests.KeepElement:
        assert root.target is not None
        value, coords = self._elements.get(root.place), root.place[1]
        store = self._scope.program.spilled.get(root.target)
        if store is None:
            target = self._elements.place(root.target, coords)
        else:
            target = self._elements.access(store, coords)
        # Where the store itself is in this nest and stores this very tile, it does the work.
        is_stored = store is not None and store.value is root.target
        is_stored_too = is_stored and any(other.op is store for other in self._nest.roots)
        return nests.KeepElement(value, target, root.is_own_keep, is_stored_too)

    def _reduce(self, root: Root, op: Reduce) -> nests.ReduceElement:
        coords = root.place[1]
        rest = coords[: op.axis] + coords[op.axis + 1 :]
        target: ir.Variable | ir.TilePlace = (
            self._elements.place(op.result, rest)
            if op.result.tile.rank
            else self._scope.variable(op.result)
        )
        value = self._elements.get(root.place)
        return nests.ReduceElement(value, op.reduction, op.result.tile.dtype, target, op.loc)


def lower_atomic(
    elements: ElementLowering,
    op: Atomic,
    coords: coordinates.Coords,
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
