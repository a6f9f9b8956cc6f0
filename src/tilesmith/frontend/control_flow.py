"""The runtime side of rewritten code: device loops become loop ops, everything static just runs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import compress
from types import SimpleNamespace
from typing import Any

import tilesmith.exc as errors
from tilesmith.diagnostics.location import SourceLocation
from tilesmith.diagnostics.wording import kind_of
from tilesmith.dtypes import BOOL, I32
from tilesmith.frontend.functions.combine import language_form
from tilesmith.frontend.language.loops import BoundAxis, LoopRange, bind_axis
from tilesmith.frontend.tracing.emission import apply, as_tile, cast, full, integer
from tilesmith.frontend.tracing.merging import (
    State,
    Unbound,
    carried_argument,
    check_captures,
    check_others,
    identifier_of,
    joined_arms,
    merge_carried,
    merges_arms,
    paired,
    spread,
    unmerged_value,
    values_after_loop,
)
from tilesmith.frontend.tracing.tensors import TensorRef
from tilesmith.frontend.tracing.tile import OnlyTile, Tile
from tilesmith.frontend.tracing.tracer import Tracer, current_tracer, locate
from tilesmith.frontend.tracing.values import Scalar, TileValue
from tilesmith.ir.ops.control_flow import Grid, If, Loop, While, Yield
from tilesmith.ir.types import Value

STATIC_LOOP_LIMIT = 10_000
"""Turns of a ``while`` whose condition is known; more are taken for a loop without end."""
_NOT_ITERABLE = (TileValue, TensorRef, dict, set, int, Tile, Unbound)


def named(name: str, value: Any) -> Any:
    """Give a value the name of the variable it is assigned to."""
    if isinstance(value, TileValue) and not isinstance(value, Scalar) and not value.value.name:
        value.value.name = name
    return value


def updated(value: Any, result: Any) -> Any:
    """What a name stands for after an in-place method: device values are replaced."""
    return result if isinstance(value, TileValue) else value


def unpack(item: Any, count: int) -> Any:
    """The loop variable for a tuple target."""
    is_alone = isinstance(item, OnlyTile) and count == 1
    if isinstance(item, (Tile, TileValue)) and not is_alone:
        raise errors.FailedToUnpackTile(count=count)
    return item


def run_for(
    iterator: Any,
    body: Callable[..., State],
    names: Sequence[str],
    state: State,
    targets: Sequence[str],
    others: dict[str, Any],
) -> State:
    """Run a ``for`` of device code: a loop op for ``hl.tile``/``hl.grid``, else unrolled."""
    check_captures(others, state)
    if isinstance(iterator, LoopRange):
        tracer = current_tracer(iterator.function)
        if not tracer.regions:
            return _trace_grid(tracer, iterator, body, (names, state), targets)
        items = spread(names, state)
        carried = (items.names, items.leaves)
        with check_others(others, state):
            after = _trace_loop(tracer, iterator, items.on_leaves(body), carried, targets)
        return items.joined(after)
    is_sequence = isinstance(iterator, OnlyTile)
    if isinstance(iterator, _NOT_ITERABLE) and not is_sequence:
        raise errors.InvalidDeviceForLoop(iterable=kind_of(iterator))
    for item in iterator:
        state = body(item, *state)
    return state


def _bind(tracer: Tracer, loop: LoopRange, targets: Sequence[str]) -> list[BoundAxis]:
    hints = targets if len(targets) == len(loop.axes) else [
        f"{targets[0] if targets else 'tile'}_{i}" for i in range(len(loop.axes))
    ]  # fmt: skip
    return [bind_axis(axis, hint) for axis, hint in zip(loop.axes, hints)]


def _loop_variable(loop: LoopRange, axes: list[BoundAxis], begins: tuple[Value, ...]) -> Any:
    variables: list[Any] = []
    for axis, begin in zip(axes, begins):
        is_tile = bool(axis.block) or axis.is_unit_tile
        make = OnlyTile if loop.is_tuple and len(axes) == 1 else Tile
        tile = make(axis.block or None, begin, axis.begin, axis.end, axis.lengths)
        if axis.block:
            current_tracer("tile").region.tiles[axis.block] = tile
        variables.append(tile if is_tile else Scalar(begin))
    is_alone = len(variables) == 1 and isinstance(variables[0], Tile)
    return tuple(variables) if loop.is_tuple and not is_alone else variables[0]


def _position_args(axes: list[BoundAxis], targets: Sequence[str]) -> tuple[Value, ...]:
    names = targets if len(targets) == len(axes) else [axis.block or "index" for axis in axes]
    return tuple(
        Value(axis.begin.type, f"{name}_begin" if axis.block else name, locate())
        for axis, name in zip(axes, names)
    )


def _trace_grid(
    tracer: Tracer,
    loop: LoopRange,
    body: Callable[..., State],
    carried: tuple[Sequence[str], State],
    targets: Sequence[str],
) -> State:
    names, state = carried
    strided = _bind(tracer, loop, targets)
    axes = [_count_steps(axis, item.step) for axis, item in zip(strided, loop.axes)]
    args = _position_args(axes, targets)
    with tracer.open_region("grid", tuple(axis.block for axis in axes if axis.block)):
        places = tuple(_index_of_program(*item).value for item in zip(strided, axes, args))
        body(_loop_variable(loop, axes, places), *state)
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


def _count_steps(axis: BoundAxis, step: Any) -> BoundAxis:
    """A grid has no steps: an axis with one counts its indices instead."""
    if step is None or (isinstance(step, int) and step == 1):
        return axis
    assert axis.step is not None
    step = Scalar(axis.step)
    last = integer("add", integer("sub", Scalar(axis.end), Scalar(axis.begin)), step)
    count = integer("floordiv", integer("sub", last, 1), step)
    zero = full(0, axis.begin.tile.dtype)
    return replace(axis, begin=zero.value, end=cast(count, axis.end.tile.dtype).value)


def _index_of_program(strided: BoundAxis, axis: BoundAxis, position: Value) -> Scalar:
    """The index that a program at a position of the grid stands for."""
    if axis is strided or strided.step is None:
        return Scalar(position)
    offset = integer("mul", Scalar(position), Scalar(strided.step))
    return integer("add", Scalar(strided.begin), offset)


def _trace_loop(
    tracer: Tracer,
    loop: LoopRange,
    body: Callable[..., State],
    carried: tuple[Sequence[str], State],
    targets: Sequence[str],
) -> State:
    names, state = carried
    axes = _bind(tracer, loop, targets)
    args = _position_args(axes, targets)
    where = locate()
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


def run_if(
    condition: Any,
    then: Callable[..., State],
    otherwise: Callable[..., State],
    names: Sequence[str],
    state: State,
    others: dict[str, Any],
) -> State:
    """Run an ``if``: one arm when the condition is known, both under an ``if`` op otherwise."""
    check_captures(others, state)
    if isinstance(condition, TensorRef):
        # Raises: which element should decide is not known.
        bool(condition)
    if not isinstance(condition, TileValue):
        return then(*state) if condition else otherwise(*state)
    tracer = current_tracer("if")
    test = as_condition(condition)
    items = spread(names, state)
    with check_others(others, state):
        arms = [_trace_arm(tracer, arm, items.joined(items.leaves)) for arm in (then, otherwise)]
    (left, _), (right, _) = arms
    pairs = [pair for each in zip(names, left, right) for pair in paired(*each)]
    is_merged = [merges_arms(*pair) for pair in pairs]
    merged = list(compress(pairs, is_merged))
    where = locate()
    results = tuple(Value(a.tile, identifier_of(name), where) for name, a, _ in merged)
    regions = [_close_arm(arms[i][1], [pair[1 + i] for pair in merged], where) for i in (0, 1)]
    tracer.builder.insert(
        If(condition=test.value, then=regions[0], otherwise=regions[1], results=results, loc=where)
    )
    supply = iter(results)
    leaves = [
        TileValue(next(supply)) if is_result else unmerged_value(*pair)
        for is_result, pair in zip(is_merged, pairs)
    ]
    return joined_arms(left, right, leaves)


def run_assert(test: Any, message: Callable[[], Any]) -> None:
    """Run an ``assert`` on values known when compiling."""
    if isinstance(test, TileValue):
        raise errors.StatementNotSupported(statement="`assert`")
    assert test, message()


def as_condition(condition: TileValue) -> TileValue:
    """A scalar bool for a branch."""
    if condition.tile.rank:
        raise errors.MultiElementCondition(shape=str(condition.tile))
    return condition if condition.tile.dtype == BOOL else apply("ne", condition, 0)


def _trace_arm(tracer: Tracer, arm: Callable[..., State], state: State) -> tuple[State, Any]:
    with tracer.open_region("if"):
        out = arm(*state)
        leaves = spread([""] * len(out), out).leaves
        # Taken while the region is open: values of a closed one count as gone.
        values = {id(leaf): leaf.value for leaf in leaves if isinstance(leaf, TileValue)}
    return out, (tracer.take_region(()), values)


def _close_arm(arm: tuple[Any, Any], yielded: list[Any], where: SourceLocation) -> Any:
    region, values = arm
    ending = Yield(values=tuple(values[id(leaf)] for leaf in yielded), loc=where)
    return type(region)(region.args, (*region.ops, ending))


def run_while(
    condition: Callable[..., Any],
    body: Callable[..., State],
    names: Sequence[str],
    state: State,
    others: dict[str, Any],
) -> State:
    """Run a ``while``: unrolled while the condition is known, else a loop op."""
    check_captures(others, state)
    turns = 0
    test = condition(*state)
    while not isinstance(test, TileValue):
        if not test:
            return state
        turns += 1
        if turns > STATIC_LOOP_LIMIT:
            raise errors.StaticLoopTooLong(limit=STATIC_LOOP_LIMIT)
        state = body(*state)
        test = condition(*state)
    items = spread(names, state)
    functions = (items.on_leaves(condition), items.on_leaves(body))
    with check_others(others, state):
        return items.joined(_trace_while(*functions, items.names, items.leaves))


def _trace_while(
    condition: Callable[..., Any], body: Callable[..., State], names: Sequence[str], state: State
) -> State:
    tracer = current_tracer("while")
    where = locate()
    carried = [p for p, value in enumerate(state) if isinstance(value, TileValue)]
    regions: list[Any] = []
    for is_condition in (True, False):
        with tracer.open_region("while"):
            inner = [carried_argument(name, value) for name, value in zip(names, state)]
            if is_condition:
                values = (as_condition(condition(*inner)).value,)
            else:
                merged = merge_carried(names, state, inner, body(*inner))
                values = tuple(new.value for _, new in merged)
            tracer.builder.effect(Yield, values=values)
        regions.append(tracer.take_region(tuple(inner[p]._value for p in carried)))
    results = tuple(Value(state[p].tile, identifier_of(names[p]), where) for p in carried)
    init = tuple(state[p].value for p in carried)
    tracer.builder.insert(
        While(init=init, condition=regions[0], body=regions[1], results=results, loc=where)
    )
    return values_after_loop(names, state, dict(zip(carried, results)))


def all_of(*thunks: Callable[[], Any]) -> Any:
    """``and``: a static false decides wherever it stands; symbolic operands combine."""
    return _combine(thunks, "and", deciding=False)


def any_of(*thunks: Callable[[], Any]) -> Any:
    """``or``: a static true decides wherever it stands; symbolic operands combine."""
    return _combine(thunks, "or", deciding=True)


def _combine(thunks: Sequence[Callable[[], Any]], fn: str, *, deciding: bool) -> Any:
    symbolic: TileValue | None = None
    last: Any = not deciding
    for thunk in thunks:
        operand = thunk()
        if not isinstance(operand, TileValue):
            if bool(operand) is deciding:
                return operand
            last = operand
            continue
        if operand.tile.rank:
            raise errors.LogicalOperatorOnTensor(operator=fn, shape=operand.tile)
        test = as_condition(operand)
        symbolic = test if symbolic is None else apply(fn, symbolic, test)
    return last if symbolic is None else symbolic


def negate(operand: Any) -> Any:
    """``not``, as a scalar bool where the operand is known only at run time."""
    if not isinstance(operand, TileValue):
        return not operand
    if operand.tile.rank:
        raise errors.LogicalOperatorOnTensor(operator="not", shape=operand.tile)
    return apply("not", as_condition(operand))


def choose(condition: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
    """A ternary: one arm where the condition is known, else a choice between both."""
    if not isinstance(condition, TileValue):
        return then() if condition else otherwise()
    arms = (then(), otherwise())
    dtype = next((arm.tile.dtype for arm in arms if isinstance(arm, TileValue)), I32)
    tiles = [as_tile(arm, dtype) for arm in arms]
    return apply("where", as_condition(condition), *tiles, dtype=dtype)


_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "Lt": operator.lt, "LtE": operator.le, "Gt": operator.gt, "GtE": operator.ge,
    "Eq": operator.eq, "NotEq": operator.ne, "Is": operator.is_, "IsNot": operator.is_not,
    "In": lambda a, b: a in b, "NotIn": lambda a, b: a not in b,
}  # fmt: skip


def compare_chain(kinds: Sequence[str], *operands: Any) -> Any:
    """``a < b < c``."""
    pairs = list(zip(kinds, operands, operands[1:]))
    return all_of(*[lambda k=k, a=a, b=b: _COMPARISONS[k](a, b) for k, a, b in pairs])


RUNTIME_FUNCTIONS = SimpleNamespace(
    Unbound=Unbound,
    all_of=all_of,
    any_of=any_of,
    choose=choose,
    compare_chain=compare_chain,
    named=named,
    negate=negate,
    replaced=language_form,
    run_assert=run_assert,
    run_for=run_for,
    run_if=run_if,
    run_while=run_while,
    unpack=unpack,
    updated=updated,
)
"""What rewritten code calls, under the names that ``functionalise.py`` writes into it."""
