"""Which tiles of a kernel's loops are computed alike wherever they stand, each for itself.

A grid axis whose tiles are independent can be spread over processes: each runs the same code on the
elements that it has. That is read off the traced function, not guessed: where a tile stands is
used to index tensors and for nothing else, its lanes never meet, and everything it stores is
stored at its own place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tilesmith.analysis.effects import is_elsewhere
from tilesmith.ir.axis_roles import Role
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Grid, GridBarrier, GroupBarrier, Yield
from tilesmith.ir.ops.elementwise import Cast
from tilesmith.ir.ops.indexing import TileIndex
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.ops.shape import Broadcast, ExpandDims
from tilesmith.ir.traversal import walk
from tilesmith.ir.types import TileType, Value

_APART = (Role.KEPT, Role.REPEATED)
_PLACES = (TileIndex, ExpandDims, Broadcast, Cast)
"""Ops that hand on where a tile stands."""


@dataclass(eq=False)
class GridAxis:
    """One axis of a top-level loop, by the value that is the first index of its tiles."""

    begin: Value
    low: Value
    high: Value
    """The range it goes over."""
    block: str
    """Empty where it goes over single indices."""
    problem: str = ""
    """Why its tiles are not independent; empty if they are."""
    accesses: dict[tuple[Operation, int], Value] = field(default_factory=dict)
    """Accesses that it indexes, along which dimension, and their tensors."""

    def refuse(self, problem: str) -> None:
        """Note why its tiles are not independent; the first reason counts."""
        self.problem = self.problem or problem


def find_axes(function: Function) -> list[GridAxis]:
    """The axes of all top-level loops."""
    found: list[GridAxis] = []
    has_barriers = False
    for op in function.body.ops:
        has_barriers = has_barriers or isinstance(op, (GridBarrier, GroupBarrier))
        if isinstance(op, Grid):
            found += _GridReader(op).axes
    for axis in found:
        if has_barriers:
            axis.refuse("its programs wait for each other")
    return found


def accesses_of(function: Function, tensor: Value) -> list[Operation]:
    """All ops that read or write a tensor."""
    ops = (op for op in walk(function.body) if isinstance(op, (Load, Store, Atomic)))
    return [op for op in ops if op.tensor is tensor]


class _GridReader:
    """Reads one top-level loop."""

    def __init__(self, grid: Grid) -> None:
        ranges = zip(grid.body.args, grid.begins, grid.ends, grid.blocks)
        self.axes = [GridAxis(begin, low, high, block) for begin, low, high, block in ranges]
        self._places: dict[Value, GridAxis] = {axis.begin: axis for axis in self.axes}
        """Values that say where the tile of an axis stands, and nothing else."""
        for op in walk(grid.body):
            self._read(op)

    def _read(self, op: Operation) -> None:
        self._read_lanes(op)
        if isinstance(op, (Load, Store, Atomic)):
            self._read_access(op)
            return
        if isinstance(op, _PLACES):
            (source,) = op.operand_values()
            axis = self._places.get(source)
            if axis is not None:
                self._places[op.results[0]] = axis
            return
        self._refuse_places(op, op.operand_values())

    def _refuse_places(self, op: Operation, values: Iterator[Value]) -> None:
        for value in values:
            axis = self._places.get(value)
            if axis is not None:
                axis.refuse(f"{_line(op)} computes with the position of a tile")

    def _read_access(self, op: Load | Store | Atomic) -> None:
        if is_elsewhere(op):
            for axis in self.axes:
                axis.refuse(f"{_line(op)} goes to computed addresses")
        found = [self._places.get(index) for index in op.indices]
        for dim, axis in enumerate(found):
            if axis is not None:
                axis.accesses[op, dim] = op.tensor
                if found.count(axis) > 1:
                    axis.refuse(f"{_line(op)} has one tile twice")
        others = (v for v in op.operand_values() if v is not op.tensor and v not in op.indices)
        self._refuse_places(op, others)
        if not isinstance(op, Load):
            for axis in self.axes:
                if axis not in found:
                    axis.refuse(f"{_line(op)} stores to `{op.tensor.name}` from all of its tiles")

    def _read_lanes(self, op: Operation) -> None:
        """Refuse axes whose lanes meet in an op."""
        if isinstance(op, Yield):
            return
        for value, roles in zip(op.operand_values(), op.axis_roles()):
            if not isinstance(value.type, TileType):
                continue
            for dim, role in zip(value.type.shape, roles):
                if role.role not in _APART:
                    self._refuse_dim(op, dim.factors)

    def _refuse_dim(self, op: Operation, factors: tuple[int | str, ...]) -> None:
        for axis in self.axes:
            if axis.block and axis.block in factors:
                axis.refuse(f"{_line(op)} computes with several elements of a tile together")


def _line(op: Operation) -> str:
    return f"line {op.loc.line}" if op.loc.line else f"`{op.name}`"
