"""Where elements lie in memory: rows of scratch tiles, and lanes that turn out to be neighbours.

Tiles are row-major unless most nests that touch one have their lanes along another axis: then that
axis is the innermost, so that lanes are neighbours in memory. Small matrices, one in each lane,
live from this. Rows have room for whole vectors, so that the last vector of a row needs no mask.

Positions that a kernel computes often follow one another, though no one knows before: pixels of a
row, tokens of a page. One load takes a fraction of the time of a gather, so it is worth a look.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tilesmith.backends.cpu.llvm import lanes
from tilesmith.backends.cpu.llvm.builder import Builder
from tilesmith.backends.cpu.llvm.lanes import Elements, Lane, Lanes, Place, Scattered, Strided
from tilesmith.backends.cpu.llvm.registers import (
    LType,
    Register,
    index,
    lane_numbers,
    memory_element,
    number,
)
from tilesmith.backends.cpu.loop_ir.elements import (
    LoopIndex,
    ReadTile,
    Tile,
    TilePlace,
    walk_elements,
)
from tilesmith.backends.cpu.loop_ir.statements import (
    Assign,
    Block,
    For,
    If,
    KeepElement,
    Nest,
    ReduceElement,
    StoreElement,
    UpdateElement,
    While,
)
from tilesmith.backends.cpu.loop_ir.whole_tiles import Product, WholeTile
from tilesmith.dtypes import DType
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.indexing import Arange, Full, TileIndex
from tilesmith.ir.ops.memory import Atomic, Store
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Reshape
from tilesmith.ir.types import Value, next_power_of_2

_ITERATIONS = 8
"""How often a loop is taken to run."""


def find_lane_axes(block: Block) -> dict[Tile, int]:
    """The innermost axes of tiles; those that something goes through by itself are left out."""
    votes: dict[Tile, Counter[int]] = {}
    fixed: set[Tile] = set()
    for item, weight in _statements(block, 1):
        if isinstance(item, Nest):
            along = LoopIndex(item.layout.vector_axis)
            for place in _places(item):
                own = [axis for axis, at in enumerate(place.positions) if at == along]
                count = votes.setdefault(place.tile, Counter({_last(place.tile): 0}))
                count.update(dict.fromkeys(own, weight))
        else:
            fixed.update(_tiles_of(item))
    # Of equal ones the last axis, which was counted first.
    preferred = {tile: count.most_common(1)[0][0] for tile, count in votes.items()}
    return {
        tile: axis for tile, axis in preferred.items() if tile not in fixed and not tile.is_padded
    }


@dataclass(frozen=True)
class Buffer:
    """A tile in memory of its own. ``dtype`` is what its elements are held as.

    Rows along ``whole_axis`` have room for whole vectors of ``lanes``: the last needs no mask.
    """

    pointer: Register
    strides: tuple[Register, ...]
    dtype: DType
    whole_axis: int | None = None
    lanes: int = 1

    @property
    def element(self) -> str:
        """The LLVM type of an element."""
        return memory_element(self.dtype)

    @property
    def elements(self) -> Elements:
        """The memory itself."""
        return Elements(self.pointer, self.element)

    def lanes_in(
        self,
        place: TilePlace,
        position: Place,
        among: Lanes,
        loops: Mapping[int, Lane],
        *,
        is_written: bool = False,
    ) -> Lanes:
        """Those that touch the tile: all of them where its rows have room for whole vectors.

        Masked stores are slow to be read again. What lies behind the end of a row does not matter;
        behind the end of a partial tile of a block lie elements that a loop may carry, though.
        """
        is_fitting = among.width <= self.lanes and self.elements.has_neighbours(position)
        if self.whole_axis is None or not is_fitting:
            return among
        if is_written and place.tile.shape[self.whole_axis].constant is None:
            return among
        at = place.positions[self.whole_axis]
        # Vectors begin at multiples of their length along a loop, not where something else says.
        lane = loops.get(at.axis) if isinstance(at, LoopIndex) else None
        moves = isinstance(lane, Strided) and lane.step.constant == 1
        return Lanes(among.width) if moves else among


def find_strides(
    builder: Builder, lengths: list[Register], innermost: int | None
) -> tuple[tuple[Register, ...], Register]:
    """The strides of a tile in memory of its own, and how many elements it has room for."""
    strides, step = dict[int, Register](), index(1)
    first = [] if innermost is None else [innermost]
    for axis in first + [n for n in reversed(range(len(lengths))) if n not in first]:
        strides[axis], step = step, builder.multiply(step, lengths[axis])
    return tuple(strides[axis] for axis in range(len(lengths))), step


def may_leave(op: Store | Atomic, definitions: Mapping[Value, Operation]) -> bool:
    """Whether an index is computed: by a mistake it could be outside of the tensor's memory."""
    return any(_is_computed(position, definitions) for position in op.indices)


def _is_computed(position: Value, definitions: Mapping[Value, Operation]) -> bool:
    op = definitions.get(position)
    while isinstance(op, (Broadcast, ExpandDims, Reshape)):
        op = definitions.get(op.x)
    return op is not None and not isinstance(op, (TileIndex, Arange, Full))


def count_lanes(length: int | None, most: int) -> int:
    """Lanes along a loop of at most that length: few more, for masked ones cost as much."""
    return most if length is None else min(most, max(2, next_power_of_2(length)))


def _last(tile: Tile) -> int:
    """The innermost axis of a row-major tile, axes of one element aside."""
    return max((axis for axis, dim in enumerate(tile.shape) if not dim.is_one), default=0)


def _statements(block: Block, weight: int) -> Iterator[tuple[Nest | WholeTile, int]]:
    for item in block:
        if isinstance(item, For):
            yield from _statements(item.body, _ITERATIONS * weight)
        elif isinstance(item, While):
            yield from _statements((*item.condition, *item.body), _ITERATIONS * weight)
        elif isinstance(item, If):
            yield from _statements((*item.then, *item.otherwise), weight)
        elif not isinstance(item, (Assign, StoreElement, UpdateElement)):
            yield item, weight


def _places(nest: Nest) -> Iterator[TilePlace]:
    """The elements of tiles that a step reads and writes."""
    for element in walk_elements(nest.operands):
        if isinstance(element, ReadTile) and isinstance(element.place, TilePlace):
            yield element.place
    for write in nest.writes:
        target = write.target if isinstance(write, (KeepElement, ReduceElement)) else None
        if isinstance(target, TilePlace):
            yield target


def _tiles_of(item: WholeTile) -> Iterator[Tile]:
    """Tiles that something goes through by itself, row by row."""
    for value in vars(item).values():
        for part in value if isinstance(value, tuple) else (value,):
            found = getattr(part, "tile", part)
            if isinstance(found, Tile):
                yield found
    if isinstance(item, Product):
        yield item.target


def read(
    builder: Builder,
    memory: Elements,
    position: Place,
    among: Lanes,
    explicit: Register | None = None,
) -> Register:
    """The elements at a position; 0 where ``explicit`` does not hold."""
    if memory.pointer.type.is_vector or not isinstance(position, Scattered):
        return lanes.read(builder, memory, position, among, explicit)
    if position.steps is None:
        return lanes.read(builder, memory, position, among, explicit)
    first = builder.extract(position.steps, 0)
    near = Strided(builder.add(position.base, builder.index_of(first)), index(1))
    (found,) = builder.if_else(
        _are_neighbours(builder, position.steps, first, among.mask(builder, explicit)),
        lambda: [lanes.read(builder, memory, near, among, explicit)],
        lambda: [lanes.read(builder, memory, position, among, explicit)],
    )
    return found


def _are_neighbours(
    builder: Builder, steps: Register, first: Register, mask: Register | None
) -> Register:
    """Whether all lanes that count go element by element."""
    numbers = lane_numbers(steps.type.element, steps.lanes)
    expected = builder.binary("add", builder.splat(first, steps.lanes), numbers)
    differs = builder.compare("ne", steps, expected)
    if mask is not None:
        differs = builder.binary("and", differs, mask)
    bits = f"i{steps.lanes}"
    all_bits = builder.value(LType(bits), f"bitcast {differs} to {bits}")
    return builder.compare("eq", all_bits, number(bits, 0))
