"""Loops that do more with what they carry than add to it: every turn's state is kept in memory.

The forward loop stores what it carries at the start of a turn; the backward loop runs from the last
turn to the first and loads it back. Both belong to one program, so nobody waits for anybody.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tilesmith.gradients.additive import is_only_added_to
from tilesmith.ir.function import Function, Parameter
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Grid, Loop, While
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import Arange, BlockSize, Full, TileIndex
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.ir.ops.shape import ExpandDims
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.traversal import definitions
from tilesmith.ir.types import ONE, Dim, TensorType, TileType, Value

Axis = tuple[Value, str]
"""The argument of a loop, and its block."""
Bound = Value | int | str
"""The end of a loop, or the size of a tensor that it does not pass."""


@dataclass(frozen=True)
class Extent:
    """One dimension of kept states: how long it is, in words that host code can say."""

    end: Bound | None = None
    block: str = ""
    """Tiles of this block are counted, not indices."""
    dim: Dim | None = None
    """A dimension that is no tile's."""


@dataclass(frozen=True)
class KeptState:
    """Where one carried value of a loop is kept."""

    place: int
    tensor: Value
    shape: tuple[Extent, ...]


@dataclass(frozen=True)
class Recurrence:
    """A loop whose states are kept, or the reason why they cannot be."""

    states: tuple[KeptState, ...] = ()
    problem: str = ""


class _Keeper:
    """Adds stores of states to the loops of a function that need them."""

    def __init__(
        self, function: Function, active: Collection[Value], ordered: Collection[Value]
    ) -> None:
        self._ordered = ordered
        self._known = definitions(function.body)
        self._parameters = {p.value for p in function.parameters}
        self._active = active
        self._names: set[str] = {p.value.name for p in function.parameters}
        self.loops: dict[Value, Recurrence] = {}
        """By the first argument of the loop's body."""
        self.tensors: list[Value] = []

    def visit(self, region: Region, around: tuple[tuple[Axis, Value], ...]) -> Region:
        """The region with stores in its loops."""
        return region.with_ops([self._visit_op(op, around) for op in region.ops])

    def _visit_op(self, op: Operation, around: tuple[tuple[Axis, Value], ...]) -> Operation:
        inner = around
        if isinstance(op, (Grid, Loop)):
            axes = zip(op.body.args, op.blocks)
            inner = (*around, *zip(axes, op.ends))
        if isinstance(op, While):
            return op
        regions = tuple(self.visit(region, inner) for region in op.regions())
        op = op.with_regions(regions)
        return self._keep(op, inner) if isinstance(op, Loop) else op

    def _keep(self, op: Loop, axes: Sequence[tuple[Axis, Value]]) -> Loop:
        places = [i for i in range(len(op.carried)) if not is_only_added_to(op, i)]
        is_reversed = bool(places) and op.body.args[0] in self._ordered
        if not is_reversed and not any(op.carried[i] in self._active for i in places):
            return op
        ends = {axis: self._host_bound(end) or self._indexed(axis) for axis, end in axes}
        if None in ends.values():
            problem = "how many turns there are is known on the device only"
            self.loops[op.body.args[0]] = Recurrence(problem=problem)
            return op
        writer = TileWriter(lambda: op.loc)
        writer.open_region()
        states: list[KeptState] = []
        for place in places:
            carried = op.carried[place]
            state = self._state(place, carried, {a: e for a, e in ends.items() if e is not None})
            indices = state_indices(writer, carried.tile, [axis for axis, _ in axes])
            writer.effect(Store, tensor=state.tensor, value=carried, indices=indices)
            states.append(state)
        self.loops[op.body.args[0]] = Recurrence(tuple(states))
        stores = writer.close_region().ops
        return replace(op, body=op.body.with_ops([*stores, *op.body.ops]))

    def _state(self, place: int, carried: Value, ends: Mapping[Axis, Bound]) -> KeptState:
        blocks = [block for _, block in ends]
        leading = [
            Extent(end, block) for (_, block), end in ends.items() if not _is_axis(block, carried)
        ]
        own = [
            Extent(_end_of(dim.symbol, ends))
            if dim.symbol is not None and dim.symbol in blocks
            else Extent(dim=dim)
            for dim in carried.tile.shape
        ]
        shape = (*leading, *own)
        kind = TensorType(carried.tile.dtype, (1,) * len(shape), (1,) * len(shape), alias=-1)
        stem = name = f"{carried.name or 'carried'}_states"
        while name in self._names:
            name = f"{stem}_{len(self._names)}"
        self._names.add(name)
        tensor = Value(kind, name, carried.loc)
        self.tensors.append(tensor)
        return KeptState(place, tensor, shape)

    def _indexed(self, axis: Axis) -> Bound | None:
        """The size of a dimension that a loop indexes: its tiles begin before that."""
        loads = [op for op in self._known.values() if isinstance(op, Load) and op.mask is None]
        for op in loads:
            for index, size in zip(op.indices, op.tensor.tensor.shape):
                line = self._known.get(index)
                line = self._known.get(line.x) if isinstance(line, ExpandDims) else line
                is_tile = isinstance(line, TileIndex) and (line.begin, line.block) == axis
                if is_tile or (index, "") == axis:
                    return size
        return None

    def _host_bound(self, end: Value) -> Value | None:
        """A number of the host that is not below the end of a loop."""
        op = self._known.get(end)
        if end in self._parameters or isinstance(op, Full):
            return end
        if isinstance(op, Elementwise) and op.fn == "minimum":
            bounds = [self._host_bound(arg) for arg in op.args]
            return next((bound for bound in bounds if bound is not None), None)
        return None


def _is_axis(block: str, carried: Value) -> bool:
    return bool(block) and Dim.of(block) in carried.tile.shape


def _end_of(block: str, ends: Mapping[Axis, Bound]) -> Bound:
    return [end for (_, own), end in ends.items() if own == block][-1]


def state_indices(writer: TileWriter, kind: TileType, axes: Sequence[Axis]) -> tuple[Value, ...]:
    """Where a state is kept: the numbers of tiles that it has no axis for, then its own axes."""
    rank = kind.rank
    leading = [
        _number(writer, arg, block)
        for arg, block in axes
        if not (block and Dim.of(block) in kind.shape)
    ]
    own: list[Value] = []
    for place, dim in enumerate(kind.shape):
        args = [arg for arg, block in axes if block and Dim.of(block) == dim]
        index = axes[0][0].tile
        line = (
            writer.tile_index(args[-1], dim.symbol)
            if args and dim.symbol is not None
            else writer.create(Arange, index.with_shape((dim,)))
        )
        others = tuple(i for i in range(rank) if i != place)
        shape = tuple(dim if i == place else ONE for i in range(rank))
        wide = line.tile.with_shape(shape)
        own.append(writer.create(ExpandDims, wide, x=line, axes=others) if others else line)
    return (*leading, *own)


def _number(writer: TileWriter, begin: Value, block: str) -> Value:
    """Which tile it is; an index stands for itself."""
    if not block:
        return begin
    size = writer.create(BlockSize, begin.tile, block=block)
    return writer.apply("floordiv", begin, size)


def load_state(writer: TileWriter, state: KeptState, kind: TileType, axes: Sequence[Axis]) -> Value:
    """What was carried into a turn."""
    indices = state_indices(writer, kind, axes)
    return writer.create(Load, kind, tensor=state.tensor, indices=indices)


@dataclass(frozen=True)
class KeptFunction:
    """A function whose loops keep their states."""

    function: Function
    loops: Mapping[Value, Recurrence]
    tensors: tuple[Value, ...]


def keep_states(
    function: Function, active: Collection[Value], ordered: Collection[Value] = ()
) -> KeptFunction:
    """Store what loops carry, where gradients need it, or turns have to come in reverse order.

    ``ordered``: first arguments of loops of the second kind.
    """
    keeper = _Keeper(function, active, ordered)
    body = keeper.visit(function.body, ())
    parameters = (*function.parameters, *(Parameter(t, t.name) for t in keeper.tensors))
    made = replace(function, body=body, parameters=parameters) if keeper.tensors else function
    return KeptFunction(made, keeper.loops, tuple(keeper.tensors))
