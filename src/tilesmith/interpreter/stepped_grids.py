"""Runs grids whose programs wait for each other: all up to the first barrier, then on to the next.

That is an order a launch may have: a barrier stands at the top of the body, so every program comes
to each one, and waits there only for programs on their way to the same one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from tilesmith.diagnostics.catalogue import InternalError
from tilesmith.exc import OutOfBoundsAccess
from tilesmith.interpreter.access import SliceAccess
from tilesmith.interpreter.frame import Evaluators, Frame
from tilesmith.interpreter.prepare import GridStep
from tilesmith.ir.ops.control_flow import Grid, GroupBarrier
from tilesmith.ir.types import Value


@dataclass(frozen=True)
class _Program:
    """A program between two steps: where its tiles start, and what it holds."""

    starts: tuple[int, ...]
    extents: dict[str, int]
    values: dict[Value, Any]


def run_in_steps(op: Grid, tiles: Iterable[tuple[int, ...]], frame: Frame) -> None:
    """Run all programs of a grid; ``tiles`` goes to the tiles of each for the first step."""
    first, *later = frame.prepared.steps[op]
    outer = {block: frame.extents[block] for block in op.blocks if block}
    programs = [_run_step(first, starts, outer, frame) for starts in tiles]
    _end_step(first, programs, frame)
    for step in later:
        programs = [_resume(step, program, frame) for program in programs]
        _end_step(step, programs, frame)
    frame.extents.update(outer)


def evaluate_group_barrier(op: GroupBarrier, frame: Frame) -> None:
    """Count the program that has come."""
    counts = frame.values[op.counts]
    access = SliceAccess([frame.values[op.place]], (), None)
    # The last element is the backend's, to number programs with.
    size = counts.shape[0] - 1
    outside = access.find_outside(torch.Size([size]))
    if outside is not None:
        dim, index = outside
        raise OutOfBoundsAccess(tensor=op.counts.name, dim=dim, index=index, size=size, loc=op.loc)
    if frame.sampling is not None:
        frame.sampling.note_write(counts, access)
    access.view(counts).add_(1)


def _resume(step: GridStep, program: _Program, frame: Frame) -> _Program:
    if frame.sampling is not None:
        frame.sampling.check_time()
    frame.values.update(program.values)
    frame.extents.update(program.extents)
    return _run_step(step, program.starts, program.extents, frame)


def _run_step(
    step: GridStep, starts: tuple[int, ...], blocks: Iterable[str], frame: Frame
) -> _Program:
    frame.program = starts
    if frame.races is not None:
        frame.races.begin_program(starts)
    frame.run(step.ops)
    extents = {block: frame.extents[block] for block in blocks}
    return _Program(starts, extents, {value: frame.values[value] for value in step.kept})


def _end_step(step: GridStep, programs: list[_Program], frame: Frame) -> None:
    """Let programs meet at the barrier that ends a step, if one does."""
    if frame.races is not None:
        frame.races.end_grid()
    if step.barrier is None:
        return
    _wait_at_barrier(step.barrier, programs, frame)
    if frame.races is not None:
        # Coarser than the truth: programs of different groups have no order between them.
        frame.races.barrier()


def _wait_at_barrier(barrier: GroupBarrier, programs: list[_Program], frame: Frame) -> None:
    """Count all programs, and see that each gets the arrivals it waits for and no others."""
    for program in programs:
        frame.values.update(program.values)
        frame.evaluators[GroupBarrier](barrier, frame)
    for program in programs:
        frame.values.update(program.values)
        _check_arrivals(barrier, program.starts, frame)


def _check_arrivals(barrier: GroupBarrier, starts: tuple[int, ...], frame: Frame) -> None:
    place, expected = frame.values[barrier.place], frame.values[barrier.arrivals]
    found = int(frame.values[barrier.counts][place])
    if found == expected:
        return
    outcome = "it would wait for ever" if found < expected else "it would not wait for all"
    raise InternalError(
        problem=f"the program at {starts} waits for {expected} arrivals at "
        f"{barrier.counts.name}[{place}], and {found} come: {outcome}",
        loc=barrier.loc,
    )


EVALUATORS: Evaluators = {GroupBarrier: evaluate_group_barrier}
