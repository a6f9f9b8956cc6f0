"""Sizes of tiles and blocks under a Config, by the rules of a backend, and the keys that set them.

Block symbols take their configured size; constants and runtime sizes are padded where a backend
wants powers of two. A block size has a range: what products need at least, what is worth searching.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, prod
from typing import Any

from tilesmith.ir.ops.control_flow import Grid
from tilesmith.ir.types import Dim, Shape, Value, next_power_of_2
from tilesmith.schedule.facts.fact_set import Facts
from tilesmith.schedule.facts.outline import FunctionOutline
from tilesmith.schedule.facts.products import MatmulFact
from tilesmith.schedule.space.fragments import (
    BlockSizeFragment,
    BooleanFragment,
    EnumFragment,
    Fragment,
    PermutationFragment,
    is_int,
)
from tilesmith.schedule.space.slots import Entries, Slot, label_of_loop

USEFUL_ELEMENTS = 1 << 20
"""Of a tile that a search tries. Triton allows no more in one tile; more is of no use elsewhere."""
MAX_SEARCHED_BLOCK = 1 << 14
UNKNOWN_EXTENT = 4096
MIDDLING_TILE = 16384
"""Elements that a kernel of which nothing is known works on at a time."""
LEAST_CHUNK = 8


def power_of_2_floor(n: float) -> int:
    """The largest power of two that is at most ``n`` (1 for n < 2)."""
    return 1 << max(0, int(n).bit_length() - 1)


def _middling_block(num_blocks: int, slab: int) -> int:
    return power_of_2_floor((MIDDLING_TILE / slab) ** (1 / num_blocks))


@dataclass(frozen=True)
class SizeRules:
    """What a backend allows and wants of sizes. The defaults allow everything."""

    most_elements: int = 1 << 26
    """In one tile."""
    is_padded: bool = False
    """Whether sides of tiles are powers of two."""
    least_dot_side: int = 0
    """Of the tiles of a matrix product; 0: any size, also along K."""
    largest_block: int = 1 << 16
    """That a search tries."""
    least_searched_dot_side: int = 1
    """Up to here a search tries sides of products, even where an axis is shorter."""
    most_programs: float = inf
    """A search leaves out blocks so small that there would be more."""
    chunks: Sequence[int] = tuple(1 << e for e in range(10, 17))
    """Of rows that are walked in parts, those worth searching."""
    fragment: type[BlockSizeFragment] = BlockSizeFragment
    """The values that a block size may have."""
    plain_block: Callable[[int, int], int] = _middling_block
    """From the number of blocks and the number of untiled elements of a tile to a block size that
    suits no kernel especially."""

    def pad(self, size: int) -> int:
        """The physical size of an axis of that many elements."""
        return next_power_of_2(size) if self.is_padded else max(1, size)


@dataclass(frozen=True)
class TileSizes:
    """Sizes under one Config. ``rolled`` dimensions are walked in chunks of the given size."""

    symbols: Mapping[str, int]
    padded: Mapping[int, int]
    rolled: Mapping[Dim, int] = field(default_factory=dict[Dim, int])

    def size(self, dim: Dim) -> int:
        """The physical size of one dimension."""
        if self.rolled and dim in self.rolled:
            return self.rolled[dim]
        return dim.physical(self.symbols, self.padded)

    def numel(self, shape: Shape) -> int:
        """The physical number of elements of a tile."""
        return prod(map(self.size, shape))


def dot_minimums(matmuls: tuple[MatmulFact, ...], rules: SizeRules) -> dict[Dim, int]:
    """The least physical size of every dimension that takes part in a matrix product."""
    found: dict[Dim, int] = {}
    if not rules.least_dot_side:
        return found
    # With one row or column it is a sum of products, lane by lane.
    for fact in (f for f in matmuls if not (f.m.dim.is_one or f.n.dim.is_one)):
        minimums = (rules.least_dot_side, rules.least_dot_side, fact.min_k)
        for axis, minimum in zip(fact.axes, minimums):
            dim, least = _deciding_factor(axis.dim, minimum)
            if not dim.is_one:
                found[dim] = max(least, found.get(dim, 1))
    return found


def _deciding_factor(dim: Dim, minimum: int) -> tuple[Dim, int]:
    """What must be how large for ``dim`` to reach a size: of ``block * 2`` half of it is enough."""
    if len(dim.symbols) != 1:
        return dim, minimum
    constants = prod(next_power_of_2(n) for n in dim.factors if isinstance(n, int))
    return Dim.of(dim.symbols[0]), -(-minimum // constants)


def pad_constants(
    outline: FunctionOutline, minimums: Mapping[Dim, int], rules: SizeRules
) -> dict[int, int]:
    """The physical size of every constant factor but 1 in any tile's shape (0 becomes 1)."""
    if not rules.is_padded:
        return {}
    dims = {dim for value in outline.tile_values for dim in value.tile.shape}
    factors = [factor for dim in dims for factor in dim.factors]
    constants = sorted({factor for factor in factors if isinstance(factor, int) and factor != 1})
    return {n: max(next_power_of_2(n), minimums.get(Dim((n,)), 1)) for n in constants}


def useful_elements(outline: FunctionOutline) -> int:
    """The most elements of a tile worth a try; more only where no Config can have fewer."""
    function = outline.function
    blocks = {block.name: block.fixed or 1 for block in function.blocks}
    hints = {size.name: size.hint for size in function.sizes}
    sizes = TileSizes({**blocks, **hints}, {})
    least = (sizes.numel(value.tile.shape) for value in outline.tile_values)
    return max([USEFUL_ELEMENTS, *least])


def distinct_tiles(outline: FunctionOutline) -> tuple[Value, ...]:
    """One value for each shape that occurs, the largest ranks first."""
    by_shape: dict[Shape, Value] = {}
    for value in outline.tile_values:
        known = by_shape.get(value.tile.shape)
        if known is None or (value.name and not known.name):
            by_shape[value.tile.shape] = value
    return tuple(sorted(by_shape.values(), key=lambda value: -value.tile.rank))


def block_minimum(outline: FunctionOutline, facts: Facts, rules: SizeRules, name: str) -> int:
    """The least size the block may have: declared in the source, or needed by a matrix product."""
    declared = max(b.low for b in outline.function.blocks if b.name == name)
    most = declared_maximum(outline, name) or UNKNOWN_EXTENT
    # What the source allows counts more than what suits a device: such tiles are padded there.
    return max(declared, min(most, dot_minimums(facts.matmuls, rules).get(Dim.of(name), 1)))


def _block_maximum(outline: FunctionOutline, facts: Facts, rules: SizeRules, name: str) -> int:
    extent = outline.extent(Dim.of(name)) or UNKNOWN_EXTENT
    high = min(next_power_of_2(extent), rules.largest_block)
    if name in {axis.block for fact in facts.matmuls for axis in (fact.m, fact.n)}:
        high = max(high, rules.least_searched_dot_side)
    if any(fact.batch is not None and fact.batch.block == name for fact in facts.matmuls):
        # Products of several matrices at once are far slower than one after the other.
        high = 1
    declared = outline.function.block(name).high
    return high if declared is None else min(high, next_power_of_2(declared))


def declared_maximum(outline: FunctionOutline, name: str) -> int | None:
    """The most that ``hl.register_block_size`` allows a block, where that is less than its axis.

    The length of the axis is a usual maximum: larger blocks are then a waste as everywhere, and
    kernels with one config for all their sizes need them.
    """
    declared = outline.function.block(name).high
    if declared is None:
        return None
    most = next_power_of_2(declared)
    lengths = [
        outline.find_constant(loop.ends[position])
        for loop in outline.all_loops
        for position, block in enumerate(loop.blocks)
        if block == name
    ]
    is_length = lengths and all(n is not None and next_power_of_2(n) <= most for n in lengths)
    return None if is_length else most


def _search_floor(outline: FunctionOutline, rules: SizeRules, name: str) -> int:
    """Smaller blocks than this would give far more programs than the device can keep busy."""
    extent = outline.extent(Dim.of(name))
    grid = next((grid for grid in outline.grids if name in grid.blocks), None)
    if grid is None or extent is None:
        return 1
    most_programs = rules.most_programs ** (1 / len(grid.blocks))
    return power_of_2_floor(extent / max(1.0, most_programs))


def _plain_default(outline: FunctionOutline, facts: Facts, rules: SizeRules) -> int:
    """A block size that suits no kernel especially: smaller the more untiled elements there are."""
    rows = [fact.axis.extent or 1 for fact in facts.reductions if fact.kind != "tile"]
    slab = prod(map(next_power_of_2, rows))
    return rules.plain_block(max(1, len(outline.block_slots)), slab)


def block_fragment(
    outline: FunctionOutline, facts: Facts, rules: SizeRules, name: str
) -> BlockSizeFragment:
    """Bounds and default of one entry of ``block_sizes``."""
    low = next_power_of_2(block_minimum(outline, facts, rules, name))
    high = max(low, _block_maximum(outline, facts, rules, name))
    default = min(max(_plain_default(outline, facts, rules), low), high)
    floor = min(_search_floor(outline, rules, name), default)
    block = outline.function.block(name)
    # A minimum that a pass sets for a block of its own is not the user's: sizes are raised to it.
    least = block.low if block.high is not None else 1
    declared = (least, declared_maximum(outline, name))
    return rules.fragment(min(max(low, floor), high), high, default, declared=declared)


def _round_chunk(chunk: int | None, extent: int | None) -> int | None:
    """A chunk of at least 8; None (the whole row) when one chunk covers it."""
    if chunk is None or not is_int(chunk):
        return None
    chunk = max(LEAST_CHUNK, chunk)
    return None if extent is not None and chunk >= extent else chunk


class SizeResolver:
    """From ``block_sizes`` and ``reduction_loops`` to the physical size of every dimension."""

    def __init__(
        self, outline: FunctionOutline, facts: Facts, entries: Entries, rules: SizeRules
    ) -> None:
        self._outline = outline
        self._entries = entries
        self._rules = rules
        minimums = dot_minimums(facts.matmuls, rules)
        self._padded = pad_constants(outline, minimums, rules)
        # A runtime size is taken at its hint.
        self._runtime_sizes = {
            size.name: max(rules.pad(size.hint), minimums.get(Dim.of(size.name), 1))
            for size in outline.function.sizes
        }
        self._lows = {
            name: next_power_of_2(block_minimum(outline, facts, rules, name))
            for name in entries.blocks
        }
        slots = {outline.function.block(name).slot: name for name in entries.blocks}
        self._representative = {
            block.name: slots[block.slot]
            for block in outline.function.blocks
            if block.slot is not None
        }

    def settle_blocks(self, sizes: list[int]) -> list[int]:
        """Raise blocks to their minimum, then clamp inner blocks to the tile they walk."""
        by_name = {
            name: max(size, self._lows[name]) for name, size in zip(self._entries.blocks, sizes)
        }
        for name, bound in self._outline.outer_bounds.items():
            own = self._representative.get(name)
            if own is not None:
                outer = bound if isinstance(bound, int) else self._block_size(by_name, bound)
                clamped = min(by_name[own], next_power_of_2(outer))
                by_name[own] = max(self._lows[own], clamped)
        return list(by_name.values())

    def settle_chunks(self, chunks: list[int | None]) -> list[int | None]:
        """Round chunks; one that covers the row means the whole row."""
        return [
            _round_chunk(chunk, self._outline.extent(dim))
            for dim, chunk in zip(self._entries.rolled, chunks)
        ]

    def _block_size(self, by_name: Mapping[str, int], name: str) -> int:
        if name in self._representative:
            return by_name[self._representative[name]]
        block = self._outline.function.block(name)
        return self._rules.pad(block.fixed or block.extent or 1)

    def sizes(self, values: Mapping[str, Any]) -> TileSizes:
        """Physical sizes of all dimensions under settled values."""
        by_name = dict(zip(self._entries.blocks, values.get("block_sizes") or []))
        symbols = {
            block.name: self._block_size(by_name, block.name)
            for block in self._outline.function.blocks
        }
        chunks = zip(self._entries.rolled, values.get("reduction_loops") or [])
        rolled: dict[Dim, int] = {dim: chunk for dim, chunk in chunks if chunk is not None}
        return TileSizes({**symbols, **self._runtime_sizes}, self._padded, rolled)


DEFAULT_CHUNK = 4096


@dataclass(frozen=True)
class KernelSlots:
    """The slots of one kernel on one target, by key."""

    lists: dict[str, tuple[Slot, ...]]
    scalars: dict[str, Slot] = field(default_factory=dict[str, Slot])


class ReductionLoopFragment(EnumFragment):
    """None (the whole row at once) or a chunk size."""

    @property
    def expects(self) -> str:
        """The set in words."""
        return "None (the whole row at once) or a chunk size, a power of two of 8 or more"


def only(value: object) -> Fragment:
    """Nothing to search: one value."""
    return EnumFragment((value,))


def static_range_slots(entries: Entries) -> list[Slot]:
    """Loops with few turns; those whose turns the Config decides are not searched."""
    short, tuned = entries.static, entries.tuned_turns
    return [
        *(Slot.make(label_of_loop(axis.loop), BooleanFragment()) for axis in short),
        *(Slot.make(label_of_loop(axis.loop), BooleanFragment(), only(False)) for axis in tuned),
    ]


def common_lists(
    outline: FunctionOutline,
    facts: Facts,
    entries: Entries,
    rules: SizeRules,
    program_order: Callable[[Grid, Facts], list[int]] | None = None,
) -> dict[str, tuple[Slot, ...]]:
    """One slot for each position; ``program_order`` is the default order of a grid's axes."""
    blocks = [
        Slot.make(name, block_fragment(outline, facts, rules, name)) for name in entries.blocks
    ]
    orders: list[Slot] = []
    for loop in entries.ordered:
        fragment = PermutationFragment(len(loop.blocks))
        default = fragment.default
        if program_order is not None and isinstance(loop, Grid):
            default = program_order(loop, facts)
        orders.append(Slot(label_of_loop(loop), fragment, fragment, default))
    return {
        "block_sizes": tuple(blocks),
        "loop_orders": tuple(orders),
        "flatten_loops": tuple(
            Slot.make(label_of_loop(loop), BooleanFragment(), only(False))
            for loop in entries.flattened
        ),
        "reduction_loops": tuple(_chunk_slot(outline, rules, dim) for dim in entries.rolled),
    }


def _chunk_slot(outline: FunctionOutline, rules: SizeRules, dim: Dim) -> Slot:
    extent = rules.pad(outline.extent(dim) or 1)
    searched = [chunk for chunk in rules.chunks if chunk < extent]
    valid = ReductionLoopFragment([None, *[1 << e for e in range(31)]])
    is_possible = extent <= rules.most_elements
    search = EnumFragment([None, *searched] if is_possible else searched)
    default = None if is_possible else DEFAULT_CHUNK
    return Slot(f"the reduction over {dim}", valid, search, default)
