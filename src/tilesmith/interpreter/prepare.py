"""What the interpreter wants to know about a function before running it; reusable for every run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Grid, GroupBarrier, Loop
from tilesmith.ir.ops.memory import Atomic, Store
from tilesmith.ir.traversal import (
    bound_blocks,
    count_uses,
    value_symbols,
    values_defined_in,
    values_used_by,
    walk_function,
)
from tilesmith.ir.types import TensorType, Value


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
    ops = list(walk_function(function))
    return PreparedFunction(
        function,
        {op: _plan_loop(op) for op in ops if isinstance(op, Loop)},
        {op: _plan_steps(op) for op in function.body.ops if isinstance(op, Grid)},
        _stored(function, ops),
        frozenset(count_uses(function.body)),
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
        used = count_uses(later)
        kept = tuple(value for value in defined if value in used)
        barrier = body.ops[end] if end < len(body.ops) else None
        assert barrier is None or isinstance(barrier, GroupBarrier)
        steps.append(GridStep(Region((), own), barrier, kept))
        begin = end + 1
    return tuple(steps)


def _plan_loop(loop: Loop) -> LoopPlan:
    def has_own_axis(value: Value) -> bool:
        return not bound_blocks(loop).isdisjoint(value_symbols((value,)))

    inside = set(values_defined_in(loop.body))
    used = dict.fromkeys(values_used_by(loop.body.ops))
    cropped = tuple(value for value in used if value not in inside and has_own_axis(value))
    return LoopPlan(cropped, tuple(map(has_own_axis, loop.carried)))
