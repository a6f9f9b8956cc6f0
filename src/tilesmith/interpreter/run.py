"""Runs a device function on real tensors: what a launch does, defined op by op.

Grids, loops and branches are evaluated here. A tile axis holds exactly its valid lanes: a tile made
where its block had another length (outside the loop over that block, as a rule) is cropped when
used inside; lanes it never had read as 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import torch

from tilesmith.diagnostics.catalogue import InternalError
from tilesmith.exc import OutOfBoundsAccess
from tilesmith.interpreter import effects, reduction, tile_ops
from tilesmith.interpreter.access import AffineTile, SliceAccess
from tilesmith.interpreter.frame import (
    Evaluators,
    Frame,
    GridStep,
    LoopPlan,
    PreparedFunction,
    Tile,
    length_of,
)
from tilesmith.interpreter.observers import RaceDetector, Sampling
from tilesmith.interpreter.scalar_functions import wrap_integer
from tilesmith.interpreter.torch_dtypes import to_torch
from tilesmith.ir.function import Function
from tilesmith.ir.ops.control_flow import Grid, GroupBarrier, If, Loop, While, Yield
from tilesmith.ir.types import Dim, TensorType, TileType, Value


@dataclass(frozen=True)
class _Program:
    """A program between two steps: where its tiles start, and what it holds."""

    starts: tuple[int, ...]
    extents: dict[str, int]
    values: dict[Value, Any]


def _grid(op: Grid, frame: Frame) -> None:
    """Run the programs one after the other, in steps; the first axis varies slowest."""
    first, *later = frame.prepared.steps[op]
    outer = {block: frame.extents[block] for block in op.blocks if block}
    tiles = _tiles(op, [1] * op.blocks.count(""), frame)
    programs = [_run_step(first, starts, outer, frame) for starts in tiles]
    _end_step(first, programs, frame)
    for step in later:
        programs = [_resume(step, program, frame) for program in programs]
        _end_step(step, programs, frame)
    frame.extents.update(outer)


def _group_barrier(op: GroupBarrier, frame: Frame) -> None:
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


def _loop(op: Loop, frame: Frame) -> None:
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
        frame.values[result] = _fit(tile, result.tile, frame) if is_own else tile


def _while(op: While, frame: Frame) -> None:
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


def _if(op: If, frame: Frame) -> None:
    branch = op.then if bool(frame.values[op.condition]) else op.otherwise
    frame.run(branch)
    frame.values.update(zip(op.results, [frame.values[value] for value in branch.yielded]))


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
    is_whole = len(frame.prepared.steps[op]) > 1
    return frame.sampling.watch(frame.sampling.starts(ranges, is_whole=is_whole))


def _initial_state(op: Loop, plan: LoopPlan, frame: Frame) -> list[Tile]:
    """The initial values; axes of the loop's own blocks have all lanes of the block."""
    state = [frame.values[value] for value in op.init]
    if not any(plan.has_own_axis):
        return state
    outer = {block: frame.extents[block] for block in op.blocks if block}
    frame.extents.update({block: frame.sizes[block] for block in outer})
    state = [_fit(tile, value.tile, frame) for tile, value in zip(state, op.init)]
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
        frame.values[value] = _fit(frame.uncropped[value], value.tile, frame)
    for arg, tile, is_own in zip(op.carried, state, plan.has_own_axis):
        if is_own:
            frame.uncropped[arg] = tile
        frame.values[arg] = _fit(tile, arg.tile, frame) if is_own else tile


def _carry_on(op: Loop, plan: LoopPlan, state: list[Tile], frame: Frame) -> list[Tile]:
    """The state after an iteration: lanes that were not valid in it keep their content."""
    return [
        _paste(old, frame.values[value], value.tile, frame) if is_own else frame.values[value]
        for value, old, is_own in zip(op.body.yielded, state, plan.has_own_axis)
    ]


def _fit(tile: Tile, tile_type: TileType, frame: Frame) -> Tile:
    """The tile with every axis as long as it is in the present scope."""
    if isinstance(tile, int):
        return tile
    if isinstance(tile, AffineTile):
        if all(len(dim.factors) <= 1 for dim in tile_type.shape):
            return tile.with_shape(frame.lengths(tile_type.shape))
        tile = frame.as_tensor(tile, tile_type)
    lengths = frame.lengths(tile_type.shape)
    if tuple(tile.shape) == lengths:
        return tile
    for axis, dim in enumerate(tile_type.shape):
        if tile.shape[axis] != lengths[axis]:
            tile = _fit_axis(tile, axis, dim, frame)
    return tile


def _paste(old: Tile, new: Tile, tile_type: TileType, frame: Frame) -> Tile:
    """``old`` with its valid lanes replaced by ``new``, which holds just those."""
    old, new = frame.as_tensor(old, tile_type), frame.as_tensor(new, tile_type)
    if old.shape == new.shape:
        return new
    split_old, split_new = old.clone(), new
    # From the last axis on, so that positions of axes still to be split do not move.
    for axis, dim in reversed(list(enumerate(tile_type.shape))):
        if old.shape[axis] != new.shape[axis]:
            split_old = split_old.unflatten(axis, _factor_lengths(dim, frame.sizes))
            split_new = split_new.unflatten(axis, _factor_lengths(dim, frame.extents))
    split_old[tuple(slice(length) for length in split_new.shape)] = split_new
    return split_old.reshape(old.shape)


def _factor_lengths(dim: Dim, extents: Mapping[str, int]) -> list[int]:
    return [length_of(Dim((factor,)), extents) for factor in dim.factors]


def _fit_axis(tile: torch.Tensor, axis: int, dim: Dim, frame: Frame) -> torch.Tensor:
    """In a product of symbols the lanes of each are cropped, not the first ones of the product."""
    wanted = _factor_lengths(dim, frame.extents)
    if len(wanted) == 1:
        return _fit_length(tile, axis, wanted[0])
    full = _factor_lengths(dim, frame.sizes)
    if prod(full) != tile.shape[axis]:
        raise InternalError(problem=f"axis {dim} of length {tile.shape[axis]} fits no tile")
    split = tile.unflatten(axis, full)
    for position, length in enumerate(wanted):
        split = _fit_length(split, axis + position, length)
    return split.flatten(axis, axis + len(full) - 1)


def _fit_length(tile: torch.Tensor, axis: int, length: int) -> torch.Tensor:
    present = tile.shape[axis]
    if present >= length:
        return tile.narrow(axis, 0, length)
    missing = list(tile.shape)
    missing[axis] = length - present
    return torch.cat([tile, tile.new_zeros(missing)], axis)


EVALUATORS: Evaluators = {
    **tile_ops.EVALUATORS,
    **effects.EVALUATORS,
    **reduction.EVALUATORS,
    Grid: _grid,
    GroupBarrier: _group_barrier,
    Loop: _loop,
    While: _while,
    If: _if,
    Yield: lambda op, frame: None,  # its owner reads the yielded values
}

Argument = torch.Tensor | int | float | bool


def run_prepared(
    prepared: PreparedFunction,
    arguments: Mapping[str, Argument],
    sizes: Mapping[str, int],
    *,
    checked: bool = True,
    races: bool = False,
    sampling: Sampling | None = None,
) -> None:
    """Run every grid of a function, changing the tensors among ``arguments`` (by parameter name).

    ``sizes`` gives every block and runtime size; fixed blocks may be left out. ``checked`` looks
    for out-of-bounds indices, ``races`` for programs that depend on each other. ``sampling`` runs
    some of the programs only, and notes what they write.
    """
    function = prepared.function
    evaluators = {**EVALUATORS, **prepared.evaluators}
    fixed = {block.name: block.fixed for block in function.blocks if block.fixed is not None}
    complete = {**fixed, **sizes}
    for symbol in (*function.blocks, *function.sizes):
        if symbol.name not in complete:
            raise InternalError(problem=f"no size was given for {symbol.name!r}")
    frame = Frame(prepared, evaluators, complete, checked=checked)
    frame.sampling = sampling
    frame.races = RaceDetector() if races else None
    frame.device = _device_of(function, arguments)
    for parameter in function.parameters:
        _bind(parameter.value, arguments, frame)
    # All tensor parameters that share storage with one the function stores to.
    storages = {_storage(frame.values[value]) for value in prepared.stored}
    tensors = [value for value in frame.values if isinstance(value.type, TensorType)]
    frame.written = {value for value in tensors if _storage(frame.values[value]) in storages}
    frame.run(function.body)


def _device_of(function: Function, arguments: Mapping[str, Argument]) -> torch.device:
    tensors = [p.value.name for p in function.parameters if isinstance(p.value.type, TensorType)]
    found = (arguments[name] for name in tensors if name in arguments)
    return next((x.device for x in found if isinstance(x, torch.Tensor)), torch.device("cpu"))


def _bind(parameter: Value, arguments: Mapping[str, Argument], frame: Frame) -> None:
    if parameter.name not in arguments:
        raise InternalError(problem=f"no argument was given for {parameter.name!r}")
    argument = arguments[parameter.name]
    if isinstance(parameter.type, TensorType):
        frame.values[parameter] = _bind_tensor(parameter.type, argument)
        return
    plain = argument.item() if isinstance(argument, torch.Tensor) else argument
    dtype = parameter.type.dtype
    if dtype.is_float:
        held = torch.full((), plain, dtype=to_torch(dtype), device=frame.device)
    else:
        held = wrap_integer(int(plain), dtype)
    frame.values[parameter] = held


def _bind_tensor(expected: TensorType, argument: Argument) -> torch.Tensor:
    if not isinstance(argument, torch.Tensor):
        raise InternalError(problem=f"expected {expected}, found {argument!r}")
    if argument.dtype is not to_torch(expected.dtype) or argument.dim() != expected.rank:
        found = f"{argument.dtype} of rank {argument.dim()}"
        raise InternalError(problem=f"expected {expected}, found a tensor of {found}")
    # Kernels write in place and record no gradients: a plain tensor over the same storage will do.
    is_plain = type(argument) is torch.Tensor and not argument.requires_grad
    return argument if is_plain else argument.detach()


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
