"""How much one program does, roughly: decides whether a grid is worth several threads."""

from __future__ import annotations

from math import prod

from tilesmith.backends.cpu.nests import (
    CombineStep,
    DotStep,
    IfStep,
    LoopStep,
    Nest,
    PrintStep,
    Program,
    ScanStep,
    SortStep,
    Step,
    WhileStep,
)
from tilesmith.ir.types import Shape
from tilesmith.schedule.schedule import Schedule

_ITERATIONS = 8
"""What a loop of unknown length is taken for."""
_FLOPS_PER_ELEMENT = 8


def estimate_work(program: Program, schedule: Schedule) -> int:
    """Elements computed by one program."""
    return max(1, sum(_work(step, schedule) for step in program.steps))


def _numel(shape: Shape, schedule: Schedule) -> int:
    return prod(schedule.physical_shape(shape))


def _work(step: Step, schedule: Schedule) -> int:
    if isinstance(step, Nest):
        return _numel(step.layout.space, schedule) * len(step.roots)
    if isinstance(step, DotStep):
        contracted = schedule.physical(step.op.lhs.tile.shape[-1])
        numel = _numel(step.op.result.tile.shape, schedule)
        return numel * contracted // _FLOPS_PER_ELEMENT
    if isinstance(step, PrintStep):
        return sum(_numel(value.tile.shape, schedule) for value in step.op.values)
    if isinstance(step, CombineStep):
        return _numel(step.op.xs[0].tile.shape, schedule) * len(step.op.xs)
    if isinstance(step, (ScanStep, SortStep)):
        return _numel(step.op.result.tile.shape, schedule)
    if isinstance(step, (LoopStep, WhileStep)):
        return _ITERATIONS * sum(_work(inner, schedule) for inner in step.body)
    if isinstance(step, IfStep):
        return sum(_work(inner, schedule) for inner in (*step.then, *step.otherwise))
    return 1
