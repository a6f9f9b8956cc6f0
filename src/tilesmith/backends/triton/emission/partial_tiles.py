"""What the schedule says about invalid lanes: which axes have any, which masks do nothing.

A mask straight behind a load is folded into the load, which fills its masked-off lanes anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilesmith.analysis.masked_lanes import find_masked_lanes
from tilesmith.analysis.partial_tiles import find_partial_axes
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Grid, Loop
from tilesmith.ir.ops.elementwise import Cast
from tilesmith.ir.ops.indexing import Mask
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.traversal import count_uses, definitions, walk
from tilesmith.ir.types import Value
from tilesmith.schedule.schedule import AccessOptions, Schedule

Number = int | float | bool


@dataclass
class PartialTiles:
    """Facts about one function under one schedule."""

    axes: Mapping[Operation, tuple[bool, ...]]
    """For every grid and loop, which of its axes may end in a shorter tile."""
    identities: set[Operation] = field(default_factory=set[Operation])
    """Masks that leave their operand as it is."""
    fills: dict[Operation, Number] = field(default_factory=dict[Operation, Number])
    """What loads put into masked-off lanes, where it is not 0."""
    bounded: Mapping[Operation, tuple[int, ...]] = field(
        default_factory=dict[Operation, "tuple[int, ...]"]
    )
    """Axes past whose ends the own mask of an access is false."""

    def masked_ends(self, op: Operation) -> list[Value]:
        """The ends of a loop's axes that masks in its body compare with."""
        if not isinstance(op, (Grid, Loop)):
            return []
        return [end for end, partial in zip(op.ends, self.axes[op]) if partial]

    def unbounded_axes(self, op: Operation, rank: int) -> tuple[int, ...]:
        """The axes of an access whose ends its own mask does not respect already."""
        return tuple(axis for axis in range(rank) if axis not in self.bounded.get(op, ()))


def find_partial_tiles(function: Function, schedule: Schedule) -> PartialTiles:
    """Look at all loops and masks of a function."""
    finder = _Finder(function, schedule)
    finder.visit(function.body, {})
    finder.found.bounded = _find_bounded_axes(function)
    return finder.found


def _find_bounded_axes(function: Function) -> Mapping[Operation, tuple[int, ...]]:
    accesses = [op for op in walk(function.body) if isinstance(op, (Load, Store, Atomic))]
    masked = [(op, op.mask) for op in accesses if op.mask is not None]
    lanes = find_masked_lanes(function) if masked else {}
    return {
        op: tuple(axis for axis, held in enumerate(lanes[op][mask].axes) if held is False)
        for op, mask in masked
    }


class _Finder:
    """Walks the regions with the blocks in scope and whether each may be partial."""

    def __init__(self, function: Function, schedule: Schedule) -> None:
        self.found = PartialTiles(find_partial_axes(function, schedule.symbols))
        self._schedule = schedule
        self._function = function
        self._definitions = definitions(function.body)
        self._uses = count_uses(function.body)

    def visit(self, region: Region, partial: Mapping[str, bool]) -> None:
        for op in region.ops:
            inside = partial
            if isinstance(op, (Grid, Loop)):
                inside = {**partial, **dict(zip(op.blocks, self.found.axes[op]))}
            elif isinstance(op, Mask):
                self._visit_mask(op, region, partial)
            for inner in op.regions():
                self.visit(inner, inside)

    def _visit_mask(self, op: Mask, region: Region, partial: Mapping[str, bool]) -> None:
        shape = op.x.tile.shape
        factors = [factor for axis in op.axes for factor in shape[axis].factors]
        if not any(self._is_partial(factor, partial) for factor in factors):
            self.found.identities.add(op)
            return
        load = self._find_sole_load(op.x)
        # A load in another region may not know the axes that are bound here.
        if load is not None and load in region.ops and self._can_fill(load, op.fill):
            self.found.identities.add(op)
            if op.fill != 0:
                self.found.fills[load] = op.fill

    def _is_partial(self, factor: int | str, partial: Mapping[str, bool]) -> bool:
        if isinstance(factor, int):
            return self._schedule.padded.get(factor, factor) != factor
        return partial.get(factor, not self._function.is_block(factor))

    def _find_sole_load(self, value: Value) -> Load | None:
        """The load whose only use is ``value``, with at most conversions between floats."""
        op = self._definitions.get(value)
        while self._uses.get(value, 0) == 1 and isinstance(op, Cast) and op.x.tile.dtype.is_float:
            value = op.x
            op = self._definitions.get(value)
        return op if isinstance(op, Load) and self._uses.get(value, 0) == 1 else None

    def _can_fill(self, load: Load, fill: Number) -> bool:
        dtype = load.result.tile.dtype
        if fill == 0:
            return True
        is_pointer = self._schedule.accesses.get(load.slot, AccessOptions()).indexing == "pointer"
        # An explicitly masked-off lane is valid and reads as 0, whatever the tile's end says.
        is_exact = not dtype.is_float or dtype.bits >= 16
        return load.mask is None and is_pointer and is_exact
