"""A function as the interpreter wants it, and the state of a run.

What is known before running a function serves every run. The state is what every value holds and
how long every tile axis is right now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from tilesmith.interpreter.access import AffineTile
from tilesmith.interpreter.observers import RaceDetector, Sampling
from tilesmith.interpreter.torch_dtypes import to_torch
from tilesmith.ir import traversal
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Grid, GroupBarrier, Loop
from tilesmith.ir.ops.memory import Atomic, Store
from tilesmith.ir.types import Dim, Shape, TensorType, TileType, Value


@dataclass(frozen=True)
class LoopPlan:
    """Which values a loop over blocks must crop to the lanes of the current tile."""

    cropped: tuple[Value, ...]
    """Values from outside the loop that have one of its blocks as an axis."""
    has_own_axis: tuple[bool, ...]
    """For each carried value, whether it has one of the loop's blocks as an axis."""


@dataclass(frozen=True)
class GridStep:
    """What programs of a grid do up to a barrier of their group, the last step up to the end."""

    ops: Region
    barrier: GroupBarrier | None
    kept: tuple[Value, ...]
    """Values of a program, its arguments among them, that its later steps use."""


@dataclass(frozen=True)
class PreparedFunction:
    """A function and the facts the interpreter needs of it."""

    function: Function
    loops: dict[Operation, LoopPlan]
    steps: dict[Operation, tuple[GridStep, ...]]
    """Of grids: one, and one more for each barrier at which programs wait for each other."""
    stored: frozenset[Value]
    """Tensor parameters written by the function."""
    used: frozenset[Value]
    """Values that are an operand of some op."""
    evaluators: Mapping[type[Operation], Callable[[Any, Any], Any]] = field(
        default_factory=dict[type[Operation], Callable[[Any, Any], Any]]
    )
    """What runs some kinds of ops in place of what usually does, for experiments."""


def prepare_function(function: Function) -> PreparedFunction:
    """Analyse a function for ``run_prepared``."""
    ops = list(traversal.walk_function(function))
    return PreparedFunction(
        function,
        {op: _plan_loop(op) for op in ops if isinstance(op, Loop)},
        {op: _plan_steps(op) for op in function.body.ops if isinstance(op, Grid)},
        _stored(function, ops),
        frozenset(traversal.count_uses(function.body)),
    )


def _stored(function: Function, ops: list[Operation]) -> frozenset[Value]:
    # A store to computed addresses may write any tensor.
    if any(isinstance(op, Store) and op.bases is not None for op in ops):
        tensors = (parameter.value for parameter in function.parameters)
        return frozenset(value for value in tensors if isinstance(value.type, TensorType))
    counted = frozenset(op.counts for op in ops if isinstance(op, GroupBarrier))
    return counted | frozenset(op.tensor for op in ops if isinstance(op, (Store, Atomic)))


def _plan_steps(grid: Grid) -> tuple[GridStep, ...]:
    body = grid.body
    ends = [i for i, op in enumerate(body.ops) if isinstance(op, GroupBarrier)]
    steps: list[GridStep] = []
    begin, defined = 0, list(body.args)
    for end in (*ends, len(body.ops)):
        own, later = body.ops[begin:end], Region((), body.ops[end:])
        defined += [value for op in own for value in op.results]
        used = traversal.count_uses(later)
        kept = tuple(value for value in defined if value in used)
        barrier = body.ops[end] if end < len(body.ops) else None
        assert barrier is None or isinstance(barrier, GroupBarrier)
        steps.append(GridStep(Region((), own), barrier, kept))
        begin = end + 1
    return tuple(steps)


def _plan_loop(loop: Loop) -> LoopPlan:
    def has_own_axis(value: Value) -> bool:
        return not traversal.bound_blocks(loop).isdisjoint(traversal.value_symbols((value,)))

    inside = set(traversal.values_defined_in(loop.body))
    used = dict.fromkeys(traversal.values_used_by(loop.body.ops))
    cropped = tuple(value for value in used if value not in inside and has_own_axis(value))
    return LoopPlan(cropped, tuple(map(has_own_axis, loop.carried)))


Tile = torch.Tensor | AffineTile | int | bool
"""Scalars of integer and bool type are Python's; float scalars are 0-d tensors; all else is a
tensor of exactly the valid lanes, or an ``AffineTile`` that knows its elements unstored."""

Evaluator = Callable[[Any, "Frame"], "Tile | None"]
Evaluators = Mapping[type[Operation], Evaluator]


class Frame:
    """What values hold and symbols measure: ``extents`` follow the loops, ``sizes`` stay."""

    def __init__(
        self,
        prepared: PreparedFunction,
        evaluators: Evaluators,
        sizes: Mapping[str, int],
        *,
        checked: bool,
    ) -> None:
        self.prepared = prepared
        self.evaluators = evaluators
        self.sizes = sizes
        self.extents: dict[str, int] = dict(sizes)
        self.values: dict[Value, Any] = {}
        self.uncropped: dict[Value, Tile] = {}
        """What stands behind values that an enclosing loop over one of their axes has cropped."""
        self.written: set[Value] = set()
        """Tensor parameters whose storage this function writes: reading them must copy."""
        self.checked = checked
        self.races: RaceDetector | None = None
        self.sampling: Sampling | None = None
        self.program: tuple[int, ...] = ()
        """The first indices of the tiles of the program that runs."""
        self.device = torch.device("cpu")

    def run(self, region: Region) -> None:
        """Evaluate all ops of a region in order."""
        evaluators, values = self.evaluators, self.values
        for op in region.ops:
            result = evaluators[type(op)](op, self)
            if result is not None:
                values[op.results[0]] = result

    def lengths(self, shape: Shape) -> tuple[int, ...]:
        """The present length of each dimension."""
        return tuple([length_of(dim, self.extents) for dim in shape])

    def tensor(self, value: Value) -> torch.Tensor:
        """What a value holds, as a tensor."""
        return self.as_tensor(self.values[value], value.tile)

    def as_tensor(self, tile: Tile, tile_type: TileType) -> torch.Tensor:
        """A tile in whatever form, as a tensor of its element type."""
        if isinstance(tile, torch.Tensor):
            return tile
        if isinstance(tile, AffineTile):
            return tile.tensor(tile_type.dtype, self.device)
        return torch.full((), tile, dtype=to_torch(tile_type.dtype), device=self.device)


def length_of(dim: Dim, extents: Mapping[Any, Any]) -> int:
    """The length of a dimension where every symbol has its present extent."""
    length = 1
    for factor in dim.factors:
        length *= extents.get(factor, factor)
    return length


def from_tensor(result: torch.Tensor, tile_type: TileType) -> Tile:
    """A computed tensor in the form frames hold: integer and bool scalars become Python's."""
    if tile_type.shape or tile_type.dtype.is_float:
        return result
    return result.item()  # type: ignore[return-value]
