"""What is known of values: signs, multiples, which lanes are invalid.

A mask straight behind a load is folded into the load, which fills its masked-off lanes anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import gcd

from tilesmith.analysis.affine import find_partial_axes
from tilesmith.analysis.masked_lanes import find_masked_lanes
from tilesmith.backends.triton.emission.idle_lanes import find_unread_axes
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Grid, Loop
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Arange, BlockSize, Full, Mask, TileIndex
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape
from tilesmith.ir.traversal import count_uses, definitions, walk, walk_function
from tilesmith.ir.types import Dim, TensorType, Value
from tilesmith.schedule.schedule import AccessOptions, Schedule


class Multiples:
    """Known divisors of the scalars of one function under one schedule; 0 is a multiple of all."""

    def __init__(self, function: Function, schedule: Schedule) -> None:
        self._schedule = schedule
        self._definitions = definitions(function.body)
        self._loops: dict[Value, tuple[Grid | Loop, int]] = {
            arg: (op, position)
            for op in walk_function(function)
            if isinstance(op, (Grid, Loop))
            for position, arg in enumerate(op.body.args[: len(op.blocks)])
        }

    def of(self, value: Value) -> int:
        """A number that ``value`` is a multiple of; 0 if it is zero itself."""
        if value in self._loops:
            loop, position = self._loops[value]
            return gcd(self.of(loop.begins[position]), self._step(loop, position))
        op = self._definitions.get(value)
        if isinstance(op, Full) and isinstance(op.value, int):
            return abs(int(op.value))
        if isinstance(op, BlockSize):
            return self._schedule.physical(Dim.of(op.block))
        if isinstance(op, Cast):
            return self.of(op.x) if op.x.tile.dtype.is_integer else 1
        if isinstance(op, Elementwise) and op.fn in ("add", "sub", "minimum", "maximum"):
            return gcd(*map(self.of, op.args))
        if isinstance(op, Elementwise) and op.fn == "mul":
            return self.of(op.args[0]) * self.of(op.args[1])
        return 1

    def _step(self, loop: Grid | Loop, position: int) -> int:
        block = loop.blocks[position]
        return self._schedule.physical(Dim.of(block)) if block else 1


_KEEPING = {"add", "mul", "floordiv", "truncdiv", "fmod", "minimum", "and", "or", "shr"}


class Signs:
    """Answers for one function."""

    def __init__(self, function: Function, definitions: Mapping[Value, Operation]) -> None:
        self._definitions = definitions
        self._known = {value: True for value in _sizes(function)}
        for op in walk_function(function):
            if isinstance(op, (Grid, Loop)):
                for arg, begin in zip(op.body.args, op.begins):
                    # Loops ascend, so the first index bounds the others from below.
                    self._known[arg] = self.is_non_negative(begin)

    def is_non_negative(self, value: Value) -> bool:
        """Whether no lane is below zero, index arithmetic being assumed not to wrap."""
        if value not in self._known:
            self._known[value] = self._derive(value)
        return self._known[value]

    def _derive(self, value: Value) -> bool:
        op = self._definitions.get(value)
        if isinstance(op, (Arange, BlockSize)):
            return True
        if isinstance(op, Full):
            return op.value >= 0
        if isinstance(op, TileIndex):
            return self.is_non_negative(op.begin)
        if isinstance(op, (Cast, ExpandDims, Broadcast, Permute, Reshape)):
            return op.x.tile.dtype.is_integer and self.is_non_negative(op.x)
        return isinstance(op, Elementwise) and self._derive_elementwise(op)

    def _derive_elementwise(self, op: Elementwise) -> bool:
        signs = [self.is_non_negative(arg) for arg in op.args]
        if op.fn == "mod":
            return signs[1]
        if op.fn == "maximum":
            return any(signs)
        return all(signs) and op.fn in _KEEPING


def _sizes(function: Function) -> list[Value]:
    """Scalar parameters that are extents of tensors or of tile dimensions."""
    extents = {size.name for size in function.sizes}
    for parameter in function.parameters:
        if isinstance(parameter.value.type, TensorType):
            extents.update(e for e in parameter.value.type.shape if isinstance(e, str))
    return [p.value for p in function.parameters if p.value.name in extents]


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
    """Axes past whose ends an access is masked by itself, or nothing looks at what is loaded."""

    def masked_ends(self, op: Operation) -> list[Value]:
        """The ends of a loop's axes that masks in its body compare with."""
        if not isinstance(op, (Grid, Loop)):
            return []
        return [end for end, partial in zip(op.ends, self.axes[op]) if partial]

    def unbounded_axes(self, op: Operation, rank: int) -> tuple[int, ...]:
        """The axes of an access whose ends have to be masked."""
        return tuple(axis for axis in range(rank) if axis not in self.bounded.get(op, ()))


def find_partial_tiles(function: Function, schedule: Schedule) -> PartialTiles:
    """Look at all loops and masks of a function."""
    finder = _Finder(function, schedule)
    finder.visit(function.body, {})
    finder.found.bounded = {**find_unread_axes(function), **_find_bounded_axes(function)}
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
        load = self._find_sole_load(op.x, 0 if op.fill == 0 else 16)
        # A load in another region may not know the axes that are bound here.
        if load is not None and load in region.ops and self._can_fill(load, op.fill):
            self.found.identities.add(op)
            if op.fill != 0:
                self.found.fills[load] = op.fill

    def _is_partial(self, factor: int | str, partial: Mapping[str, bool]) -> bool:
        if isinstance(factor, int):
            return self._schedule.padded.get(factor, factor) != factor
        return partial.get(factor, not self._function.is_block(factor))

    def _find_sole_load(self, value: Value, bits: int) -> Load | None:
        """The load that only ``value`` uses, by floats of so many bits: others lack infinity."""
        op = self._definitions.get(value)
        while self._uses.get(value, 0) == 1 and isinstance(op, Cast) and op.x.tile.dtype.is_float:
            value, op = op.x, (self._definitions.get(op.x) if op.dtype.bits >= bits else None)
        return op if isinstance(op, Load) and self._uses.get(value, 0) == 1 else None

    def _can_fill(self, load: Load, fill: Number) -> bool:
        dtype = load.result.tile.dtype
        if fill == 0:
            return True
        is_pointer = self._schedule.accesses.get(load.slot, AccessOptions()).indexing == "pointer"
        # An explicitly masked-off lane is valid and reads as 0, whatever the tile's end says.
        is_exact = not dtype.is_float or dtype.bits >= 16
        return load.mask is None and is_pointer and is_exact
