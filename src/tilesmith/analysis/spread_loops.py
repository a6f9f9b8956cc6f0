"""Loops over tiles that do not depend on each other, which programs may share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilesmith.analysis.affine import find_affine
from tilesmith.analysis.effects import exchanged_memory, is_elsewhere, is_pure
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Grid, If, Loop, Yield
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.ops.memory import Load, ProgramBarrier, Store
from tilesmith.ir.traversal import definitions, walk
from tilesmith.ir.types import Dim, Value

SHARES = 64
"""Of one axis at most; the size of a block says how many of them a program has."""
BLOCK = "shares"


@dataclass(frozen=True, eq=False)
class SpreadLoop:
    """A loop over tiles that do not depend on each other, and what becomes of its axes."""

    grid: Grid
    loop: Loop
    moved: tuple[int, ...]
    """Axes that become axes of the grid."""
    shared: int | None
    """The axis whose tiles are shared out."""

    @property
    def kept(self) -> tuple[int, ...]:
        """The axes that programs still walk along."""
        return tuple(axis for axis in range(self.loop.rank) if axis not in self.moved)


def shares_of(function: Function) -> str | None:
    """The block of the programs that share one axis, where there is one."""
    tiled = {block for op in walk(function.body) if isinstance(op, Loop) for block in op.blocks}
    names = [b.name for b in function.blocks if b.name.startswith(BLOCK) and b.extent == SHARES]
    return next((name for name in names if name not in tiled), None)


def find_spread_loop(function: Function) -> SpreadLoop | None:
    """The loop of a function with one grid; None where its tiles may depend on each other."""
    grid = next(reversed(function.body.ops), None)
    if not isinstance(grid, Grid) or not all(map(is_pure, function.body.ops[:-1])):
        return None
    loop = _find_loop(grid.body)
    if loop is None or not all(loop.blocks) or loop.init or exchanged_memory(function):
        return None
    known = definitions(function.body)
    stores = [op for op in walk(loop.body) if isinstance(op, Store)]
    free = [i for i in range(loop.rank) if _are_apart(stores, loop, i, known)]
    outside = {p.value for p in function.parameters}
    outside.update(value for op in function.body.ops for value in op.results)
    outside.update(op.result for op in known.values() if isinstance(op, Full))
    moved = tuple(i for i in free if loop.begins[i] in outside and loop.ends[i] in outside)
    shared = next((i for i in free if i not in moved), None)
    return SpreadLoop(grid, loop, moved, shared) if moved or shared is not None else None


def _find_loop(region: Region) -> Loop | None:
    """The only op of a region with an effect, itself or in branches that do nothing else."""
    effects = [op for op in region.ops if not _can_be_repeated(op)]
    if len(effects) != 1:
        return None
    (op,) = effects
    if isinstance(op, If) and not op.results and len(op.otherwise.ops) == 1:
        return _find_loop(op.then)
    is_plain = isinstance(op, Loop) and all(map(_is_plain, walk(op.body)))
    return op if is_plain and isinstance(op, Loop) else None


def _can_be_repeated(op: Operation) -> bool:
    """Whether programs that share a loop may each do what comes before it."""
    return is_pure(op) or isinstance(op, (Yield, ProgramBarrier)) or _is_plain_load(op)


def _is_plain_load(op: Operation) -> bool:
    return isinstance(op, Load) and not is_elsewhere(op)


def _is_plain(op: Operation) -> bool:
    """Whether nothing but loads and stores of known tensors is seen from outside."""
    is_store = isinstance(op, Store) and not is_elsewhere(op)
    return is_store or isinstance(op, (Loop, If)) or _can_be_repeated(op)


def _are_apart(
    stores: Sequence[Store], loop: Loop, axis: int, known: dict[Value, Operation]
) -> bool:
    """Whether tiles along an axis are stored to different places.

    That is known of one store whose positions are those of the tile, shifted at most by what all
    turns share: several stores may share memory, other positions may meet.
    """
    if len(stores) != 1:
        return False
    (store,) = stores
    dim, first = Dim.of(loop.blocks[axis]), loop.body.args[axis]
    inside = {value for op in walk(loop.body) for value in op.results} | {*loop.body.args}
    inside.update(arg for op in walk(loop.body) for region in op.regions() for arg in region.args)
    found = [find_affine(index, known) for index in store.indices]
    own = [(at, i) for i, at in enumerate(found) if at is not None and at.scale and at.dim == dim]
    if len(own) != 1:
        return False
    ((at, position),) = own
    moving = [(value, factor) for value, factor in at.base if value in inside]
    return moving == [(first, 1)] == [(first, at.scale)] and _is_spaced(store, position)


def _is_spaced(store: Store, position: int) -> bool:
    """Whether neighbours along a dimension have memory of their own."""
    stride = store.tensor.tensor.strides[position]
    return stride != 0
