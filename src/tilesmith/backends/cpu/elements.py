"""Computes elements of tiles: the value of a tile at a position, in as many lanes as asked for.

Virtual tiles are followed back to loads, constants and indices. What was computed once in a step
of a loop, or outside it, is used again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tilesmith.backends.cpu.buffers import Buffer
from tilesmith.backends.cpu.builder import Builder
from tilesmith.backends.cpu.casts import bitcast, cast, round_to, to_register
from tilesmith.backends.cpu.coordinates import (
    Axis,
    Coord,
    Coords,
    Digit,
    Fixed,
    Place,
    Told,
    access_places,
    operands_at,
)
from tilesmith.backends.cpu.lanes import (
    Lane,
    Strided,
    Uniform,
    Vector,
    combine_strided,
    from_register,
    register_of,
)
from tilesmith.backends.cpu.memory_access import Elements, Lanes, offset_of, read
from tilesmith.backends.cpu.registers import (
    INDEX,
    POINTER,
    Register,
    index,
    memory_element,
    number,
    register_element,
)
from tilesmith.backends.cpu.scalar_functions import apply
from tilesmith.backends.cpu.virtual_tiles import VirtualTiles
from tilesmith.dtypes import F32, F64, I64, Kind
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Arange, BlockSize, Full, Mask, TileIndex
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.ops.rearrangement import Gather, Join, Select
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape
from tilesmith.ir.types import Dim, Extent
from tilesmith.ir.values import Value


class ElementEmitter:
    """Emits elements into one function.

    ``scalars`` holds what rank-0 values and parameters are, ``buffers`` where stored tiles lie,
    ``lengths`` how long the axes of blocks and sizes are here.
    """

    def __init__(self, b: Builder, tiles: VirtualTiles, block_sizes: Mapping[str, int]) -> None:
        self.b = b
        self.tiles = tiles
        self.block_sizes = block_sizes
        self.scalars: dict[Value, Register] = {}
        self.named: dict[str, Register] = {}
        """Runtime sizes and strides by parameter name."""
        self.buffers: dict[Value, Buffer] = {}
        self.spilled: dict[Value, Store] = {}
        self.lengths: dict[str, Register] = {}
        self.program: tuple[Value, ...] = ()
        """The first indices of the program's tiles."""
        self.lanes = Lanes(1)
        self.loops: dict[int, Lane] = {}
        self._memos: list[dict[Place, Lane]] = [{}]
        self._computed_here: frozenset[Value] = frozenset()
        self.prefetched: Mapping[Load, tuple[int, ...]] = {}

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is computed inside is forgotten after: it does not dominate what follows."""
        self._memos.append({})
        yield
        self._memos.pop()

    @contextmanager
    def nest(self, kept: Iterable[Value], width: int) -> Iterator[None]:
        """Inside a nest that computes the ``kept`` tiles itself, from nothing known."""
        saved = self._memos, self._computed_here, self.lanes, self.loops
        self._memos, self._computed_here = [{}], frozenset(kept)
        self.lanes, self.loops = Lanes(width), {}
        yield
        self._memos, self._computed_here, self.lanes, self.loops = saved

    def length(self, dim: Dim) -> Register:
        """How many elements an axis has here."""
        total = index(1)
        for factor in dim.factors:
            part = index(factor) if isinstance(factor, int) else self.symbol(factor)
            total = self.b.multiply(total, part)
        return total

    def symbol(self, name: str) -> Register:
        """How long the axis of a block or runtime size is here."""
        return self.lengths[name] if name in self.lengths else self.block_size(name)

    def block_size(self, name: str) -> Register:
        """How long a whole tile is: a constant of the schedule, or a runtime size."""
        return index(self.block_sizes[name]) if name in self.block_sizes else self.named[name]

    def extent(self, extent: Extent) -> Register:
        """A size or stride of a tensor."""
        return index(extent) if isinstance(extent, int) else self.named[extent]

    def get(self, place: Place) -> Lane:
        """An element of a tile."""
        for memo in reversed(self._memos):
            if place in memo:
                return memo[place]
        found = self._find(place)
        self._memos[-1][place] = found
        return found

    def assume(self, value: Value, x: Register) -> None:
        """Let a scalar be this register until the scope ends, be it one per lane."""
        self._memos[-1][value, ()] = from_register(x)

    def register(self, place: Place) -> Register:
        """An element in register form: a scalar if it is the same in all lanes."""
        return register_of(self.b, self.get(place), place[0].tile.dtype, self.lanes.width)

    def _find(self, place: Place) -> Lane:
        value, coords = place
        if not value.tile.rank and value in self.scalars:
            return Uniform(self.scalars[value])
        is_virtual = not self.tiles.is_stored(value) or not value.tile.rank
        if is_virtual or value in self._computed_here:
            op = self.tiles.definitions[value]
            return ELEMENT_RULES[type(op)](self, op, coords)
        if value in self.spilled:
            return self._read_spilled(self.spilled[value], coords)
        return self.read_buffer(self.buffers[value], coords)

    # --- positions --------------------------------------------------------------------------------

    def coordinate(self, coord: Coord) -> Lane:
        """A position along an axis, as 64-bit lanes."""
        if isinstance(coord, Axis):
            return self.loops[coord.number]
        if isinstance(coord, Told):
            return self._told(coord)
        if isinstance(coord, Digit):
            return self._digit(coord)
        return Strided(index(coord.position if isinstance(coord, Fixed) else 0), index(0))

    def _told(self, coord: Told) -> Lane:
        lane = self.get((coord.value, coord.coords))
        if isinstance(lane, Uniform):
            return Strided(self.b.index_of(lane.x), index(0))
        if isinstance(lane, Strided) and lane.bits == 64:
            return lane
        whole = register_of(self.b, lane, coord.value.tile.dtype, self.lanes.width)
        return Vector(cast(self.b, coord.value.tile.dtype, I64, whole))

    def _digit(self, coord: Digit) -> Lane:
        parts: list[tuple[Lane, Register]] = []
        stride = index(1)
        for dim, part in reversed(list(zip(coord.source, coord.coords))):
            parts.append((self.coordinate(part), stride))
            stride = self.b.multiply(stride, self.length(dim))
        linear = offset_of(self.b, parts, self.lanes.width)
        wide = [axis for axis, dim in enumerate(coord.shape) if not dim.is_one]
        below = index(1)
        for axis in wide:
            if axis > coord.axis:
                below = self.b.multiply(below, self.length(coord.shape[axis]))
        if below.constant != 1:
            linear = self._divide("udiv", linear, below)
        if coord.axis == wide[0]:
            return linear
        return self._divide("urem", linear, self.length(coord.shape[coord.axis]))

    def _divide(self, op: str, x: Lane, divisor: Register) -> Lane:
        if isinstance(x, Strided) and x.step.constant == 0:
            return Strided(self.b.binary(op, x.base, divisor), index(0))
        whole = register_of(self.b, x, I64, self.lanes.width)
        return Vector(self.b.binary(op, whole, self.b.splat(divisor, self.lanes.width)))

    def buffer_position(self, buffer: Buffer, coords: Coords) -> Lane:
        """Where an element lies in its buffer."""
        parts = [(self.coordinate(c), stride) for c, stride in zip(coords, buffer.strides)]
        return offset_of(self.b, parts, self.lanes.width)

    def read_buffer(self, buffer: Buffer, coords: Coords) -> Lane:
        """An element of a stored tile."""
        position = self.buffer_position(buffer, coords)
        found = read(self.b, buffer.elements, position, self.lanes)
        return from_register(to_register(self.b, buffer.dtype, _plain(found)))

    def address(self, op: Load | Store | Atomic, coords: Coords) -> tuple[Elements, Lane]:
        """The tensor's memory and the position of the accessed element in it."""
        tensor = op.tensor.tensor
        shape = (op.result if isinstance(op, Load) else op.value).tile.shape
        places = access_places(op, shape, coords)
        strides = map(self.extent, tensor.strides)
        parts = [(self.get(place), stride) for place, stride in zip(places, strides)]
        pointer = self.scalars[op.tensor]
        if not isinstance(op, Atomic) and op.bases is not None:
            base = self.register(places[len(op.indices)])
            pointer = self.b.convert("inttoptr", base, POINTER)
        memory = Elements(pointer, memory_element(tensor.dtype))
        return memory, offset_of(self.b, parts, self.lanes.width)

    def prefetch(self, op: Load, memory: Elements, position: Strided) -> None:
        """Fetch into the second cache what the next program will read here."""
        ahead = position.base
        for distance, stride in zip(self.prefetched[op], op.tensor.tensor.strides):
            ahead = self.b.add(ahead, self.b.multiply(index(distance), self.extent(stride)))
        pointer = self.b.offset(memory.pointer, ahead, memory.element)
        read, second_cache, data = (number("i32", value) for value in (0, 2, 1))
        self.b.call_void("llvm.prefetch.p0", pointer, read, second_cache, data)

    def explicit_mask(self, op: Load | Store | Atomic, coords: Coords) -> Register | None:
        """The mask of an access as written by the user."""
        if op.mask is None:
            return None
        shape = (op.result if isinstance(op, Load) else op.value).tile.shape
        return self.register(access_places(op, shape, coords)[-1])

    def _read_spilled(self, store: Store, coords: Coords) -> Lane:
        memory, position = self.address(store, coords)
        found = read(self.b, memory, position, self.lanes)
        dtype = store.tensor.tensor.dtype
        return from_register(to_register(self.b, dtype, _plain(found)))


def _plain(lane: Lane) -> Register:
    assert not isinstance(lane, Strided)
    return lane.x


def _load(e: ElementEmitter, op: Load, coords: Coords) -> Lane:
    memory, position = e.address(op, coords)
    if op in e.prefetched and e.lanes.tail is None and isinstance(position, Strided):
        e.prefetch(op, memory, position)
    explicit = e.explicit_mask(op, coords)
    found = read(e.b, memory, position, e.lanes, explicit)
    return from_register(to_register(e.b, op.tensor.tensor.dtype, _plain(found)))


def _elementwise(e: ElementEmitter, op: Elementwise, coords: Coords) -> Lane:
    args = [e.get(place) for place in operands_at(op, coords)]
    if op.result.tile.dtype.is_integer:
        found = combine_strided(e.b, op.fn, args, op.result.tile.dtype.bits)
        if found is not None:
            return found
    width = e.lanes.width
    parts = [register_of(e.b, a, v.tile.dtype, width) for a, v in zip(args, op.args)]
    if any(part.type.is_vector for part in parts):
        parts = [e.b.splat(part, width) for part in parts]
    return from_register(apply(e.b, op.fn, op.args[-1].tile.dtype, parts))


def _cast(e: ElementEmitter, op: Cast, coords: Coords) -> Lane:
    lane = e.get((op.x, coords))
    source, target = op.x.tile.dtype, op.dtype
    if isinstance(lane, Strided) and min(source.bits, target.bits) >= 32 and target.is_integer:
        if target.bits < source.bits:
            return from_register(register_of(e.b, lane, target, e.lanes.width))
        if target.bits == source.bits or source.kind is Kind.SIGNED:
            return lane
    convert = bitcast if op.bitcast else cast
    x = register_of(e.b, lane, source, e.lanes.width)
    return from_register(convert(e.b, source, target, x))


def _full(e: ElementEmitter, op: Full, coords: Coords) -> Lane:
    dtype = op.result.tile.dtype
    x = number(register_element(dtype), op.value)
    is_low = dtype.is_float and dtype not in (F32, F64)
    return Uniform(round_to(e.b, dtype, x) if is_low and op.value else x)


def _tile_index(e: ElementEmitter, op: TileIndex, coords: Coords) -> Lane:
    lane = e.coordinate(coords[0])
    begin = e.b.index_of(e.scalars[op.begin])
    return _narrowed(e, _shift(e, lane, begin), op.result)


def _shift(e: ElementEmitter, lane: Lane, by: Register) -> Lane:
    if isinstance(lane, Strided):
        return Strided(e.b.add(lane.base, by), lane.step)
    return Vector(e.b.binary("add", lane.x, e.b.splat(by, lane.x.lanes)))


def _arange(e: ElementEmitter, op: Arange, coords: Coords) -> Lane:
    return _narrowed(e, e.coordinate(coords[0]), op.result)


def _narrowed(e: ElementEmitter, lane: Lane, value: Value) -> Lane:
    """Positions that are no longer evenly spaced are numbers of their own type."""
    if not isinstance(lane, Vector):
        return lane
    return Vector(cast(e.b, I64, value.tile.dtype, lane.x))


def _view(e: ElementEmitter, op: Operation, coords: Coords) -> Lane:
    return e.get(operands_at(op, coords)[-1])


def _join(e: ElementEmitter, op: Join, coords: Coords) -> Lane:
    places = operands_at(op, coords)
    if len(places) == 1:
        return e.get(places[0])
    width = e.lanes.width
    side = register_of(e.b, e.coordinate(coords[-1]), I64, width)
    lhs, rhs = map(e.register, places)
    is_first = e.b.compare("eq", side, number(INDEX, 0, side.lanes))
    if side.type.is_vector or lhs.type.is_vector or rhs.type.is_vector:
        is_first, lhs, rhs = (e.b.splat(x, width) for x in (is_first, lhs, rhs))
    return from_register(e.b.select(is_first, lhs, rhs))


def _block_size(e: ElementEmitter, op: BlockSize, coords: Coords) -> Lane:
    return Strided(e.block_size(op.block), index(0))


ELEMENT_RULES: dict[type[Operation], Callable[[ElementEmitter, Any, Coords], Lane]] = {
    Elementwise: _elementwise,
    Cast: _cast,
    Load: _load,
    Full: _full,
    TileIndex: _tile_index,
    Arange: _arange,
    BlockSize: _block_size,
    Join: _join,
    **dict.fromkeys((Mask, ExpandDims, Broadcast, Reshape, Permute, Select, Gather), _view),
}
