"""A backward in two launches: the first computes what the programs of the second share.

Programs over keys need the row sums of all queries, each of which takes a loop over all keys. One
program cannot wait for another; but a launch does. What a loop finds and others need is stored by a
first launch, and loaded by the second, where factors can have grids of their own then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from tilesmith.dtypes import DType
from tilesmith.gradients.copies import Copies
from tilesmith.gradients.grids.own_grids import StoredSum
from tilesmith.gradients.grids.tiled_factors import FactorGrids
from tilesmith.gradients.normal_form import simplify_backward
from tilesmith.gradients.recurrences import Extent, KeptState, state_indices
from tilesmith.gradients.tape import without_effects
from tilesmith.ir.function import Block, Function, Parameter
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Grid, Loop, Yield
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.traversal import Substitution, rewrite_region, values_used_by, walk
from tilesmith.ir.types import Dim, TensorType, TileType, Value

ASSUMED_BLOCK = 64
"""Elements along an axis of tuned tiles; those of all values are alike."""


@dataclass
class _Cut:
    """Finds the smallest values that stand between some loops of a grid and what comes after."""

    grid: Grid
    _memo: dict[Value, bool] = field(default_factory=dict[Value, bool])

    def __post_init__(self) -> None:
        self._known = {v: op for op in self.grid.body.ops for v in op.results}

    def needs_loop(self, value: Value) -> bool:
        """Whether a value of the grid comes out of a loop."""
        op = self._known.get(value)
        if op is None:
            return False
        if value not in self._memo:
            operands = values_used_by([op]) if op.regions() else op.operand_values()
            self._memo[value] = bool(op.regions()) or any(map(self.needs_loop, operands))
        return self._memo[value]

    def can_keep(self, value: Value) -> bool:
        """Whether it can be stored and found by its own axes."""
        kind = value.type
        if not isinstance(kind, TileType) or not kind.rank:
            return False
        blocks = {Dim.of(block) for block in self.grid.blocks}
        is_known = all(dim in blocks or dim.constant is not None for dim in kind.shape)
        return is_known and all(self.grid.blocks) and blocks <= set(kind.shape)

    def best(self, value: Value) -> tuple[float, list[Value]] | None:
        """The bytes of the values to keep for one, and those values; None where it cannot be."""
        op = self._known[value]
        found: list[tuple[float, list[Value]]] = []
        if not op.regions():
            parts = [self.best(v) for v in op.operand_values() if self.needs_loop(v)]
            if all(part is not None for part in parts):
                kept = [v for part in parts if part for v in part[1]]
                found.append((sum(part[0] for part in parts if part), kept))
        if self.can_keep(value):
            found.append((_bytes(value.tile), [value]))
        # Of equals, the first: it is nearer to the loop, and has the user's name.
        return min(found, key=lambda one: one[0], default=None)


def _bytes(kind: TileType) -> float:
    return prod(dim.constant or ASSUMED_BLOCK for dim in kind.shape) * kind.dtype.bits / 8


def _has_atomics(op: Operation, settled: Collection[Value]) -> bool:
    inner = walk(op.body) if isinstance(op, Loop) else ()
    return any(isinstance(one, Atomic) and one.tensor not in settled for one in inner)


def _late_ops(grid: Grid, settled: Collection[Value]) -> set[Operation]:
    """Loops with atomics, what depends on them, and what has effects."""
    late: set[Operation] = set()
    found: set[Value] = set()
    for op in grid.body.ops:
        used = values_used_by([op]) if op.regions() else op.operand_values()
        if (
            _has_atomics(op, settled)
            or isinstance(op, (Store, Atomic))
            or any(v in found for v in used)
        ):
            late.add(op)
            found.update(op.results)
    return late


def split_stages(
    function: Function, settled: Collection[Value]
) -> tuple[Function, list[KeptState]] | None:
    """The function with a first grid that stores what loops find, and what it stores.

    None where there is nothing to split, or where it cannot be. ``settled`` gradients have grids
    of their own already.
    """
    grids = [op for op in function.body.ops if isinstance(op, Grid)]
    if len(grids) != 1:
        return None
    (grid,) = grids
    late = _late_ops(grid, settled)
    cut = _Cut(grid)
    used = dict.fromkeys(values_used_by([op for op in grid.body.ops if op in late]))
    made = {v for op in late for v in op.results}
    wanted = [v for v in used if v not in made and cut.needs_loop(v)]
    parts = [cut.best(value) for value in wanted]
    is_late = any(_has_atomics(op, settled) for op in grid.body.ops)
    if not is_late or not wanted or None in parts:
        return None
    kept = [v for part in parts if part for v in part[1]]
    # There is a first launch now: sums of rows that loops of the second need cost it little.
    sums = [op.result for op in grid.body.ops if isinstance(op, Reduce) and op not in late]
    kept += [value for value in sums if cut.can_keep(value) and not cut.needs_loop(value)]
    kept = list(dict.fromkeys(kept))
    return _split(function, grid, kept)


def _split(
    function: Function, grid: Grid, kept: Sequence[Value]
) -> tuple[Function, list[KeptState]]:
    taken = {parameter.value.name for parameter in function.parameters}
    states = [_state(grid, value, taken) for value in kept]
    blocks = list(function.blocks)
    first = _first_grid(grid, kept, states, blocks)
    second = _second_grid(grid, kept, states)
    ops = [one for op in function.body.ops for one in ((first, second) if op is grid else (op,))]
    parameters = (*function.parameters, *(Parameter(s.tensor, s.tensor.name) for s in states))
    made = replace(
        function,
        parameters=parameters,
        blocks=tuple(blocks),
        body=function.body.with_ops(ops),
    )
    return made, states


def _state(grid: Grid, value: Value, taken: set[str]) -> KeptState:
    ends = dict(zip(grid.blocks, grid.ends))
    shape = tuple(
        Extent(ends[dim.symbol]) if dim.symbol in ends else Extent(dim=dim)
        for dim in value.tile.shape
    )
    ones = (1,) * len(shape)
    stem = name = f"{value.name or 'value'}_rows"
    while name in taken:
        name = f"{stem}_{len(taken)}"
    taken.add(name)
    kind = TensorType(value.tile.dtype, ones, ones, alias=-1)
    return KeptState(0, Value(kind, name, value.loc), shape)


def _first_grid(
    grid: Grid, kept: Sequence[Value], states: Sequence[KeptState], blocks: list[Block]
) -> Grid:
    """What the kept values need, with tiles of its own, and stores of them."""
    known = {v: op for op in grid.body.ops for v in op.results}
    needed: set[Operation] = set()
    waiting = list(kept)
    while waiting:
        op = known.get(waiting.pop())
        if op is not None and op not in needed:
            needed.add(op)
            waiting += values_used_by([op])
    writer = TileWriter(lambda: grid.loc)
    writer.open_region()
    # What loops store besides is stored by the second grid.
    for op in without_effects(op for op in grid.body.ops if op in needed):
        writer.insert(op)
    axes = list(zip(grid.body.args, grid.blocks))
    for value, state in zip(kept, states):
        indices = state_indices(writer, value.tile, axes)
        writer.effect(Store, tensor=state.tensor, value=value, indices=indices)
    writer.effect(Yield, values=())
    whole = replace(grid, body=writer.close_region(grid.body.args))
    cloned = Copies(blocks=_fresh_blocks(whole, blocks)).clone(whole)
    assert isinstance(cloned, Grid)
    return cloned


def _fresh_blocks(grid: Grid, blocks: list[Block]) -> dict[str, str]:
    loops = [grid, *(op for op in walk(grid.body) if isinstance(op, Loop))]
    stepped = {block for op in loops for block in op.blocks}
    names: dict[str, str] = {}
    for old in [block for block in blocks if block.name in stepped and block.fixed is None]:
        names[old.name] = f"{old.name}_first"
        blocks.append(replace(old, name=names[old.name], slot=None))
    return names


def _second_grid(grid: Grid, kept: Sequence[Value], states: Sequence[KeptState]) -> Grid:
    """The grid with loads in place of the kept values; what they needed is dead then."""
    writer = TileWriter(lambda: grid.loc)
    writer.open_region()
    axes = list(zip(grid.body.args, grid.blocks))
    substitution = Substitution()
    for value, state in zip(kept, states):
        indices = state_indices(writer, value.tile, axes)
        loaded = writer.create(Load, value.type, tensor=state.tensor, indices=indices)
        loaded.name = value.name
        substitution[value] = loaded
    loads = writer.close_region().ops
    body = rewrite_region(grid.body, lambda op: op, substitution)
    return replace(grid, body=Region(grid.body.args, (*loads, *body.ops)))


def stores_of(op: Operation) -> set[Value]:
    """The tensors that a grid stores into, or adds to."""
    inner = (one for region in op.regions() for one in walk(region))
    return {one.tensor for one in inner if isinstance(one, (Store, Atomic))}


def with_own_grids(
    function: Function, dtypes: Mapping[Value, DType], *, in_one_launch: bool
) -> tuple[Function, Mapping[Value, StoredSum], Sequence[KeptState]]:
    """Grids for factors; in a second launch if more of them can have one then."""
    grids = FactorGrids(dtypes, simplify_backward)
    made, stored = grids.give(function)
    split = None if in_one_launch else split_stages(function, stored)
    if split is not None:
        later, more = grids.give(simplify_backward(split[0]))
        if len(more) > len(stored):
            return later, more, split[1]
    return made, stored, ()
