"""Evaluates grids, loops and branches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product

from tilesmith.interpreter.cropping import fit, paste
from tilesmith.interpreter.frame import Frame, Tile
from tilesmith.interpreter.prepare import LoopPlan
from tilesmith.interpreter.stepped_grids import run_in_steps
from tilesmith.ir.ops.control_flow import Grid, GridBarrier, If, Loop, While, Yield
from tilesmith.ir.values import Value


def evaluate_grid(op: Grid, frame: Frame) -> None:
    """Run the programs one after the other; the first axis varies slowest."""
    programs = _tiles(op, [1] * op.blocks.count(""), frame)
    if op in frame.prepared.steps:
        run_in_steps(op, programs, frame)
        return
    for starts in programs:
        frame.program = starts
        if frame.races is not None:
            frame.races.begin_program(starts)
        frame.run(op.body)
    if frame.races is not None:
        frame.races.end_grid()


def evaluate_grid_barrier(op: GridBarrier, frame: Frame) -> None:
    """Nothing to wait for; what follows does not race with what went before."""
    if frame.races is not None:
        frame.races.barrier()


def evaluate_loop(op: Loop, frame: Frame) -> None:
    """Run the iterations in ascending order, carrying values."""
    plan = frame.prepared.loops[op]
    state = _initial_state(op, plan, frame)
    with _cropping(plan, frame):
        for _ in _tiles(op, [frame.values[step] for step in op.steps], frame):
            _enter_iteration(op, plan, state, frame)
            frame.run(op.body)
            state = _carry_on(op, plan, state, frame)
    for arg, is_own in zip(op.carried, plan.has_own_axis):
        if is_own:
            frame.uncropped.pop(arg, None)
    for result, tile, is_own in zip(op.results, state, plan.has_own_axis):
        frame.values[result] = fit(tile, result.tile, frame) if is_own else tile


def evaluate_while(op: While, frame: Frame) -> None:
    """Run the body as long as the condition yields true."""
    values = frame.values
    state = [values[value] for value in op.init]
    (condition,) = op.condition.yielded
    while True:
        if frame.sampling is not None:
            frame.sampling.check_time()
        values.update(zip(op.condition.args, state))
        frame.run(op.condition)
        if not values[condition]:
            break
        values.update(zip(op.body.args, state))
        frame.run(op.body)
        state = [values[value] for value in op.body.yielded]
    values.update(zip(op.results, state))


def evaluate_if(op: If, frame: Frame) -> None:
    """Run the branch that the scalar chooses."""
    branch = op.then if bool(frame.values[op.condition]) else op.otherwise
    frame.run(branch)
    frame.values.update(zip(op.results, [frame.values[value] for value in branch.yielded]))


def evaluate_yield(op: Yield, frame: Frame) -> None:
    """Nothing to do: the owner reads the yielded values."""


def _tiles(op: Grid | Loop, steps: list[int], frame: Frame) -> Iterator[tuple[int, ...]]:
    """Step through the tiles, setting region arguments and the lengths of the loop's blocks."""
    values, extents, sizes = frame.values, frame.extents, frame.sizes
    ends = [values[end] for end in op.ends]
    remaining = iter(steps)
    strides = [sizes[block] if block else next(remaining) for block in op.blocks]
    ranges = [range(values[b], e, step) for b, e, step in zip(op.begins, ends, strides)]
    outer = {block: extents[block] for block in op.blocks if block}
    for starts in _order(op, ranges, frame):
        for arg, block, start, end in zip(op.body.args, op.blocks, starts, ends):
            values[arg] = start
            if block:
                extents[block] = min(sizes[block], end - start)
        yield starts
    extents.update(outer)


def _order(op: Grid | Loop, ranges: list[range], frame: Frame) -> Iterator[tuple[int, ...]]:
    if frame.sampling is None:
        return product(*ranges)
    if isinstance(op, Loop):
        return frame.sampling.watch(product(*ranges))
    # Programs that wait for each other are run all or not at all.
    is_whole = op in frame.prepared.steps
    return frame.sampling.watch(frame.sampling.starts(ranges, is_whole=is_whole))


def _initial_state(op: Loop, plan: LoopPlan, frame: Frame) -> list[Tile]:
    """The initial values; axes of the loop's own blocks have all lanes of the block."""
    state = [frame.values[value] for value in op.init]
    if not any(plan.has_own_axis):
        return state
    outer = {block: frame.extents[block] for block in op.blocks if block}
    frame.extents.update({block: frame.sizes[block] for block in outer})
    state = [fit(tile, value.tile, frame) for tile, value in zip(state, op.init)]
    frame.extents.update(outer)
    return state


@contextmanager
def _cropping(plan: LoopPlan, frame: Frame) -> Iterator[None]:
    """Remember what the loop crops, all lanes of it, and put it back in the end."""
    before = {value: frame.values[value] for value in plan.cropped}
    new = [value for value in before if value not in frame.uncropped]
    frame.uncropped.update({value: before[value] for value in new})
    yield
    frame.values.update(before)
    for value in new:
        del frame.uncropped[value]


def _enter_iteration(op: Loop, plan: LoopPlan, state: list[Tile], frame: Frame) -> None:
    for value in plan.cropped:
        frame.values[value] = fit(frame.uncropped[value], value.tile, frame)
    for arg, tile, is_own in zip(op.carried, state, plan.has_own_axis):
        if is_own:
            frame.uncropped[arg] = tile
        frame.values[arg] = fit(tile, arg.tile, frame) if is_own else tile


def _carry_on(op: Loop, plan: LoopPlan, state: list[Tile], frame: Frame) -> list[Tile]:
    """The state after an iteration: lanes that were not valid in it keep their content."""

    def carried(value: Value, old: Tile, is_own: bool) -> Tile:
        new = frame.values[value]
        return paste(old, new, value.tile, frame) if is_own else new

    return [carried(*item) for item in zip(plan.yielded, state, plan.has_own_axis)]
