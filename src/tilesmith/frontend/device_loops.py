"""The runtime side of rewritten ``for`` loops: device loops become loop ops, static ones unroll.

A loop that counts down counts its turns instead and computes the index; one over tiles in reverse
runs a loop of one tile in each turn. A loop over indices with a ``break`` becomes a ``while`` op.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import tilesmith.exc as errors
from tilesmith.diagnostics.wording import kind_of
from tilesmith.frontend import control_flow
from tilesmith.frontend.functions.combine import language_form
from tilesmith.frontend.language.loops import (
    Axis,
    BoundAxis,
    LoopRange,
    bind_axis,
    load_scalar,
    resolve_block,
)
from tilesmith.frontend.tracing.emission import apply, cast, full, integer
from tilesmith.frontend.tracing.merging import (
    Body,
    State,
    Unbound,
    carried_argument,
    check_captures,
    check_others,
    identifier_of,
    merge_carried,
    spread,
    values_after_loop,
)
from tilesmith.frontend.tracing.tensors import TensorRef
from tilesmith.frontend.tracing.tile import OnlyTile, Tile
from tilesmith.frontend.tracing.tracer import current_tracer, locate
from tilesmith.frontend.tracing.values import Scalar, TileValue, size_of_dim
from tilesmith.ir.ops.control_flow import Grid, Loop, Yield
from tilesmith.ir.types import Dim, Value

Names = Sequence[str]
_NOT_ITERABLE = (TileValue, TensorRef, dict, set, int, Tile, Unbound)


def unpack(item: Any, count: int) -> Any:
    """The loop variable for a tuple target."""
    if isinstance(item, (Tile, TileValue)) and not (isinstance(item, OnlyTile) and count == 1):
        raise errors.FailedToUnpackTile(count=count)
    return item


def until(flag: str, iterator: Any) -> Any:
    """The iterator of a loop with a ``break``, which sets the flag."""
    return replace(iterator, stopped=flag) if isinstance(iterator, LoopRange) else iterator


def run_for(
    iterator: Any, body: Body, names: Names, state: State, targets: Names, others: dict[str, Any]
) -> State:
    """Run a ``for`` of device code: a loop op for ``hl.tile``/``hl.grid``, else unrolled."""
    check_captures(others, state)
    if isinstance(iterator, LoopRange):
        if not current_tracer(iterator.function).regions:
            return _trace_grid(iterator, body, names, state, targets)
        if iterator.is_reversed:
            body, iterator = _one_tile_per_turn(iterator, body, (names, targets, others))
        items = spread(names, state)
        trace = _trace_until if iterator.can_end_early else _trace_loop
        with check_others(others, state):
            after = trace(iterator, items.on_leaves(body), items.names, items.leaves, targets)
        return items.joined(after)
    if isinstance(iterator, _NOT_ITERABLE) and not isinstance(iterator, OnlyTile):
        raise errors.InvalidDeviceForLoop(iterable=kind_of(iterator))
    for item in iterator:
        state = body(item, *state)
    return state


def _hints(loop: LoopRange, targets: Sequence[str]) -> Sequence[str]:
    if len(targets) == len(loop.axes):
        return targets
    return [f"{targets[0] if targets else 'tile'}_{i}" for i in range(len(loop.axes))]


def _bind(loop: LoopRange, targets: Sequence[str], *, is_grid: bool) -> list[BoundAxis]:
    """The axes of a loop op. A grid has no steps, and no op runs down: such axes count turns."""
    loop.check(len(targets))
    bound: list[BoundAxis] = []
    for item, hint in zip(loop.axes, _hints(loop, targets)):
        axis = bind_axis(item, hint)
        has_steps = item.step is not None and not (isinstance(item.step, int) and item.step == 1)
        is_counted = item.is_down or (is_grid and has_steps)
        bound.append(_counting(axis, item) if is_counted else axis)
    return bound


def _counting(axis: BoundAxis, item: Axis) -> BoundAxis:
    assert axis.step is not None
    ends = (Scalar(axis.begin), Scalar(axis.end))
    low, high = ends[::-1] if item.is_down else ends
    count = integer("sub", high, low)
    if not (isinstance(item.step, int) and item.step == -1):
        step = full(-item.step, axis.begin.tile.dtype) if item.is_down else Scalar(axis.step)
        last = integer("add", count, step)
        count = integer("floordiv", integer("sub", last, 1), step)
    dtype = axis.end.tile.dtype
    return replace(
        axis,
        begin=full(0, dtype).value,
        end=cast(count, dtype).value,
        step=full(1, dtype).value,
        strided=axis,
    )


def _loop_variable(loop: LoopRange, axes: Sequence[BoundAxis], positions: Sequence[Value]) -> Any:
    variables: list[Any] = []
    for axis, position in zip(axes, positions):
        begin = axis.index(position)
        make = OnlyTile if loop.is_tuple and len(axes) == 1 else Tile
        tile = make(axis.block or None, begin, axis.begin, axis.end, axis.lengths)
        if axis.block:
            current_tracer("tile").region.tiles[axis.block] = tile
        variables.append(tile if axis.block or axis.is_unit_tile else Scalar(begin))
    is_alone = len(variables) == 1 and isinstance(variables[0], Tile)
    return tuple(variables) if loop.is_tuple and not is_alone else variables[0]


def _position_args(axes: Sequence[BoundAxis], targets: Sequence[str]) -> tuple[Value, ...]:
    names = targets if len(targets) == len(axes) else [axis.block or "index" for axis in axes]
    return tuple(
        Value(axis.begin.type, f"{name}_begin" if axis.block else name, locate())
        for axis, name in zip(axes, names)
    )


def _trace_grid(loop: LoopRange, body: Body, names: Names, state: State, targets: Names) -> State:
    tracer = current_tracer("a loop")
    axes = _bind(loop, targets, is_grid=True)
    args = _position_args(axes, targets)
    with tracer.open_region("grid", tuple(axis.block for axis in axes if axis.block)):
        body(_loop_variable(loop, axes, args), *state)
        tracer.builder.effect(Yield)
    region = tracer.take_region(args)
    tracer.builder.effect(
        Grid,
        begins=tuple(axis.begin for axis in axes),
        ends=tuple(axis.end for axis in axes),
        blocks=tuple(axis.block for axis in axes),
        body=region,
    )
    return tuple(Unbound(name, errors.CrossRootDeviceValue) for name in names)


def _trace_loop(loop: LoopRange, body: Body, names: Names, state: State, targets: Names) -> State:
    axes = _bind(loop, targets, is_grid=False)
    turns = partial(_trace_turns, loop, axes, body, names, targets)
    return control_flow.with_changed_numbers(state, turns)


def _trace_turns(
    loop: LoopRange, axes: list[BoundAxis], body: Body, names: Names, targets: Names, state: State
) -> State:
    tracer, where = current_tracer("a loop"), locate()
    args = _position_args(axes, targets)
    with tracer.open_region("loop", tuple(axis.block for axis in axes if axis.block)):
        inner = [carried_argument(name, value) for name, value in zip(names, state)]
        out = body(_loop_variable(loop, axes, args), *inner)
        yielded = merge_carried(names, state, inner, out)
        tracer.builder.effect(Yield, values=tuple(new.value for _, new in yielded))
    positions = [position for position, _ in yielded]
    region_args = (*args, *(inner[p]._value for p in positions))
    region = tracer.take_region(region_args)
    results = tuple(Value(state[p].tile, identifier_of(names[p]), where) for p in positions)
    tracer.builder.insert(
        Loop(
            begins=tuple(axis.begin for axis in axes),
            ends=tuple(axis.end for axis in axes),
            steps=tuple(axis.step for axis in axes if axis.step is not None),
            init=tuple(state[p].value for p in positions),
            blocks=tuple(axis.block for axis in axes),
            body=region,
            results=results,
            loc=where,
        )
    )
    return values_after_loop(names, state, dict(zip(positions, results)))


def _trace_until(loop: LoopRange, body: Body, names: Names, state: State, targets: Names) -> State:
    """A loop over indices that a ``break`` ends: a ``while`` op with a counter."""
    (axis,) = _bind(loop, targets, is_grid=False)
    assert axis.step is not None
    step, flag = Scalar(axis.step), names.index(loop.stopped)

    def goes_on(position: Scalar, *values: Any) -> Any:
        return control_flow.all_of(
            lambda: apply("lt", position, Scalar(axis.end)),
            lambda: control_flow.negate(values[flag]),
        )

    def turn(position: Scalar, *values: Any) -> State:
        # The condition has looked at the flag: it is down in every turn.
        values = (*values[:flag], False, *values[flag + 1 :])
        after = body(_loop_variable(loop, [axis], (position.value,)), *values)
        return (integer("add", position, step), *after)

    counter = targets[0] if len(targets) == 1 else "index"
    after = control_flow.trace_while(goes_on, turn, (counter, *names), (Scalar(axis.begin), *state))
    return after[1:]


def _one_tile_per_turn(
    loop: LoopRange, body: Body, context: tuple[Names, Names, dict[str, Any]]
) -> tuple[Body, LoopRange]:
    """Body and iterator of a loop over tiles in reverse: it counts tiles down, one in each turn.

    Partial tiles stay where they are: at the end of the range, and so in the first turn.
    """
    names, targets, others = context
    sizes = [_size_of_tile(axis, hint) for axis, hint in zip(loop.axes, _hints(loop, targets))]
    axes = [replace(a, begin=load_scalar(a.begin), end=load_scalar(a.end)) for a in loop.axes]
    counts: list[Scalar] = []
    for axis, size in zip(axes, sizes):
        length = integer("sub", axis.end, axis.begin)
        counts.append(integer("floordiv", integer("add", length, integer("sub", size, 1)), size))

    def turn(turns: tuple[Scalar, ...], *state: Any) -> State:
        tiles: list[Axis] = []
        for axis, size, count, number in zip(axes, sizes, counts, turns):
            from_last = integer("sub", integer("sub", count, 1), number)
            begin = integer("mul", from_last, size)
            if not (isinstance(axis.begin, int) and axis.begin == 0):
                begin = integer("add", axis.begin, begin)
            end = integer("minimum", integer("add", begin, size), axis.end)
            tiles.append(replace(axis, begin=begin, end=end, block_size=size))
        one = replace(loop, axes=tuple(tiles), is_reversed=False, stopped="")
        return run_for(one, body, names, state, targets, others)

    turns = tuple(Axis(0, count, step=1) for count in counts)
    return turn, LoopRange(turns, True, "grid", stopped=loop.stopped)


def _size_of_tile(axis: Axis, hint: str) -> Any:
    block = resolve_block(axis, hint)
    return 1 if block is None else size_of_dim(Dim.of(block))


RUNTIME_FUNCTIONS = SimpleNamespace(
    Unbound=Unbound,
    loop_variable=partial(Unbound, error=errors.TileOutsideItsLoop),
    all_of=control_flow.all_of,
    any_of=control_flow.any_of,
    choose=control_flow.choose,
    compare_chain=control_flow.compare_chain,
    named=control_flow.named,
    negate=control_flow.negate,
    replaced=language_form,
    run_assert=control_flow.run_assert,
    run_for=run_for,
    run_if=control_flow.run_if,
    run_while=control_flow.run_while,
    unpack=unpack,
    until=until,
    updated=control_flow.updated,
)
"""What rewritten code calls, under the names that ``functionalise.py`` writes into it."""
