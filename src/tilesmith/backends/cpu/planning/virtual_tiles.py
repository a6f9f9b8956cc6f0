"""Which tiles are stored and which are computed on demand, and what is behind one element.

Scalars, reductions, products and carried tiles are stored; so are the tiles in ``kept``. All
other tiles are virtual: a loop nest computes their elements in registers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from copy import copy
from dataclasses import dataclass

from tilesmith.analysis.memory_conflicts import Access, find_accesses, is_same_place
from tilesmith.backends.cpu.planning import coordinates
from tilesmith.backends.cpu.planning.closures import Closure, Closures
from tilesmith.dtypes import DType
from tilesmith.ir.axis_roles import Accessed, Joined, Numbered
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Full, Mask, TileIndex
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.ops.shape import ExpandDims, Permute, Reshape
from tilesmith.ir.types import Extent, TileType, Value

_SLOW_FUNCTIONS = frozenset({"div", "fmod", "mod", "floordiv", "truncdiv", "sqrt", "rsqrt"})

_INTEGER_DIVISIONS = frozenset({"fmod", "mod", "floordiv", "truncdiv"})


class VirtualTiles:
    """Answers questions about elements of one function's tiles."""

    def __init__(
        self, definitions: Mapping[Value, Operation], kept: Collection[Value] = ()
    ) -> None:
        self.definitions = definitions
        self.kept = frozenset(kept)
        self._closures = Closures(definitions, self.is_stored)
        self._axes: dict[coordinates.Place, frozenset[int]] = {}
        self._accesses: dict[Operation, tuple[Access, ...]] = {}

    def is_stored(self, value: Value) -> bool:
        """Whether the value lies in a register or buffer instead of being computed on demand."""
        if not isinstance(value.type, TileType) or not value.type.shape or value in self.kept:
            return True
        op = self.definitions.get(value)
        return op is None or not coordinates.is_virtual(type(op))

    def closure(self, place: coordinates.Place) -> Closure:
        """What is behind an element; just itself when it is stored."""
        return self.join([place])

    def own_closure(self, place: coordinates.Place) -> Closure:
        """What is behind an element when it is computed, stored or not."""
        if not self.is_stored(place[0]):
            return self.join([place])
        op = self.definitions[place[0]]
        behind = self.join(coordinates.operands_at(op, place[1]))
        return Closure((*behind.nodes, (place, op)), behind.leaves)

    def join(self, places: Collection[coordinates.Place]) -> Closure:
        """What is behind several elements."""
        return self._closures.of(places)

    def ops_behind(self, place: coordinates.Place) -> Iterator[Operation]:
        """The ops of what is behind a virtual element, users before what they use."""
        return self._closures.ops_behind(place)

    def accesses(self, op: Operation) -> tuple[Access, ...]:
        """What an op touches, as new objects; indices are only looked at once."""
        if op not in self._accesses:
            self._accesses[op] = find_accesses(op, self.definitions)
        return tuple(map(copy, self._accesses[op]))

    def axes(self, place: coordinates.Place) -> frozenset[int]:
        """The loops an element changes with."""
        if self.is_stored(place[0]):
            return coordinates.axes_of(place[1])
        found = self._axes.get(place)
        if found is None:
            op = self.definitions[place[0]]
            if isinstance(op.form, (Numbered, Joined)):
                found = coordinates.axes_of(place[1])
            else:
                parts = [self.axes(operand) for operand in coordinates.operands_at(op, place[1])]
                found = frozenset().union(*parts)
            self._axes[place] = found
        return found

    def derivative(self, place: coordinates.Place, axis: int) -> int | None:
        """By how much an integer element grows with a loop's index; None when that varies."""
        value, coords = place
        if axis not in self.axes(place):
            return 0
        op = self.definitions.get(value)
        if op is not None and isinstance(op.form, Numbered):
            if isinstance(coords[0], coordinates.Indirect):
                return self.derivative((coords[0].value, coords[0].coords), axis)
            return 1 if isinstance(coords[0], coordinates.LoopIndex) else None
        if op is None or self.is_stored(value) or isinstance(op.form, (Accessed, Joined)):
            return None
        places = coordinates.operands_at(op, coords)
        if isinstance(op, Elementwise):
            return self._of_function(op, places, axis)
        if isinstance(op, Cast) and not (op.x.tile.dtype.is_integer and op.dtype.is_integer):
            return None
        return self.derivative(places[-1], axis)

    def _of_function(
        self, op: Elementwise, places: list[coordinates.Place], axis: int
    ) -> int | None:
        parts = [self.derivative(place, axis) for place in places]
        if op.fn == "mul":
            for (value, _), part in zip(places, reversed(parts)):
                factor = self.constant(value)
                if factor is not None and part is not None:
                    return factor * part
            return None
        if op.fn not in ("add", "sub", "neg") or any(part is None for part in parts):
            return None
        numbers = [part or 0 for part in parts]
        if op.fn == "neg":
            return -numbers[0]
        return numbers[0] + numbers[1] if op.fn == "add" else numbers[0] - numbers[1]

    def moved_strides(
        self, op: Load | Store | Atomic, places: list[coordinates.Place], axis: int
    ) -> list[tuple[int | None, Extent]]:
        """Of the indices that grow with a loop: by how much, and the tensor's stride."""
        steps = [self.derivative(place, axis) for place in places[: len(op.indices)]]
        return [(step, by) for step, by in zip(steps, op.tensor.tensor.strides) if step != 0]

    def constant(self, value: Value) -> int | None:
        """The integer that all elements of a tile are, if that is known."""
        op = self.definitions.get(value)
        while op is not None and not isinstance(op, Full):
            operands = list(op.operand_values())
            is_view = coordinates.is_virtual(type(op)) and not isinstance(op, (Elementwise, Load))
            if not is_view or len(operands) != 1 or isinstance(op, TileIndex):
                return None
            op = self.definitions.get(operands[0])
        return int(op.value) if op is not None and op.result.tile.dtype.is_integer else None

    def constant_number(self, value: Value) -> float | None:
        """The number that a tile was filled with, or that a scalar is."""
        op = self.definitions.get(value)
        return op.value if isinstance(op, Full) else None

    def is_expensive(self, op: Operation) -> bool:
        """Whether an op costs so much that its result is better stored than computed twice."""
        if isinstance(op, Elementwise):
            is_slow = op.fn in _SLOW_FUNCTIONS and op.result.tile.dtype.is_float
            return op.function.is_transcendental or is_slow or self._divides_integers(op)
        return isinstance(op, Load) and self.is_gather(op)

    def _divides_integers(self, op: Elementwise) -> bool:
        """Whether lanes are divided one by one: no vector instruction does it."""
        if op.fn not in _INTEGER_DIVISIONS or op.result.tile.dtype.is_float:
            return False
        return self.constant(op.args[-1]) is None

    def is_gather(self, op: Load) -> bool:
        """Whether some index comes from memory."""
        if op.bases is not None and op.bases.tile.rank:
            return True
        return any(
            isinstance(self.definitions.get(value), Load) and value.tile.rank
            for index in op.indices
            for value in _ancestors(index, self.definitions)
        )


def _ancestors(value: Value, definitions: Mapping[Value, Operation]) -> list[Value]:
    op = definitions.get(value)
    if op is None or not coordinates.is_virtual(type(op)):
        return [value]
    operands = [] if isinstance(op, Load) else op.operand_values()
    return [value, *(found for operand in operands for found in _ancestors(operand, definitions))]


def is_identity(place: coordinates.Place) -> bool:
    """Whether the place is the same in the tile as in the nest over the tile's space."""
    wide = [c for c in place[1] if not isinstance(c, coordinates.Zero)]
    return wide == [coordinates.LoopIndex(number) for number in range(len(wide))]


@dataclass(frozen=True)
class LoadedMatrix:
    """A tile that is one load seen from other axes."""

    load: Load
    coords: coordinates.Coords
    """Position in the load of the tile's own coordinates."""
    steps: tuple[tuple[int, ...], ...]
    """For each axis of the tile's space, by how much each tensor index grows."""

    @property
    def dtype(self) -> DType:
        """Element type in memory."""
        return self.load.tensor.tensor.dtype


def find_stored(value: Value, tiles: VirtualTiles) -> Value | None:
    """The stored tile that an operand is, if it is one: masks change nothing in cropped tiles."""
    op = tiles.definitions.get(value)
    while not tiles.is_stored(value) and isinstance(op, Mask):
        value = op.x
        op = tiles.definitions.get(value)
    return value if tiles.is_stored(value) else None


def find_matrix(value: Value, tiles: VirtualTiles) -> LoadedMatrix | None:
    """The load behind an operand, if it can be read in place."""
    place = coordinates.own_place(value)
    op = tiles.definitions.get(value)
    while not tiles.is_stored(place[0]) and not isinstance(op, Load):
        if isinstance(op, Cast):
            source, target = op.x.tile.dtype, op.dtype
            is_same_kind = source.is_float == target.is_float and not source.is_bool
            if op.bitcast or not (is_same_kind and source.is_held_by(target)):
                return None
        elif not isinstance(op, (Mask, ExpandDims, Permute, Reshape)):
            return None
        (place,) = coordinates.operands_at(op, place[1])
        op = tiles.definitions.get(place[0])
    if not isinstance(op, Load) or tiles.is_stored(place[0]):
        return None
    if op.mask is not None or op.bases is not None:
        return None
    places = coordinates.access_places(op, place[1])
    rank = sum(not dim.is_one for dim in value.tile.shape)
    steps: list[tuple[int, ...]] = []
    for axis in range(rank):
        moved = [tiles.derivative(index, axis) for index in places]
        if any(step is None for step in moved):
            return None
        steps.append(tuple(step or 0 for step in moved))
    return LoadedMatrix(op, place[1], tuple(steps))


def is_injective(op: Store, tiles: VirtualTiles) -> bool:
    """Whether different elements go to different places: each axis moves an index of its own."""
    if op.bases is not None:
        return False
    shape = op.value.tile.shape
    places = coordinates.access_places(op, coordinates.own_coords(shape))[: len(op.indices)]
    moved: list[int] = []
    for axis in range(len(coordinates.space_of(shape))):
        steps = [tiles.derivative(place, axis) for place in places]
        dims = [number for number, step in enumerate(steps) if step != 0]
        if len(dims) != 1 or steps[dims[0]] is None or dims[0] in moved:
            return False
        moved.extend(dims)
    return True


def is_update(load: Access, store: Access, tiles: VirtualTiles) -> bool:
    """Whether each place is overwritten with something computed from what the load finds there."""
    op = store.op
    if not isinstance(op, Store) or not is_same_place(load, store) or not is_injective(op, tiles):
        return False
    place = coordinates.own_place(op.value)
    nodes = tiles.join([place, *coordinates.access_places(op, place[1])]).nodes
    return all(is_identity(read) for read, node in nodes if node is load.op)
