"""The runtime side of rewritten branches, ``while`` loops and conditions: static ones just run."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import compress
from typing import Any

import tilesmith.exc as errors
from tilesmith.diagnostics.location import SourceLocation
from tilesmith.dtypes import BOOL, I32
from tilesmith.frontend.tracing import changed_numbers
from tilesmith.frontend.tracing.emission import apply, as_tile, reduce
from tilesmith.frontend.tracing.merging import (
    State,
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
from tilesmith.frontend.tracing.tracer import Tracer, current_tracer, locate
from tilesmith.frontend.tracing.values import Scalar, TileValue
from tilesmith.ir.ops.control_flow import If, While, Yield
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.foreign import Assert
from tilesmith.ir.ops.memory import Atomic
from tilesmith.ir.ops.reduction import ReduceKind
from tilesmith.ir.types import Value

STATIC_LOOP_LIMIT = 10_000
"""Turns of a ``while`` whose condition is known; more are taken for a loop without end."""


def named(name: str, value: Any) -> Any:
    """Give a value the name of the variable it is assigned to."""
    if isinstance(value, TileValue) and not isinstance(value, Scalar) and not value.value.name:
        value.value.name = name.removeprefix("__")
    return value


def updated(value: Any, result: Any) -> Any:
    """What a name stands for after an in-place method: device values are replaced."""
    return result if isinstance(value, TileValue) else value


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
    items = spread(names, state)
    with check_others(others, state):
        arms = [_trace_arm(tracer, arm, items.joined(items.leaves)) for arm in (then, otherwise)]
    (left, _), (right, _) = arms
    pairs = [
        (name, *changed_numbers.paired_numbers(a, b))
        for each in zip(names, left, right)
        for name, a, b in paired(*each)
    ]
    is_merged = [merges_arms(*pair) for pair in pairs]
    merged = list(compress(pairs, is_merged))
    test = as_condition(condition)
    where = locate()
    results = tuple(Value(a.tile, identifier_of(name), where) for name, a, _ in merged)
    regions = [_close_arm(arms[i][1], [pair[1 + i] for pair in merged], where) for i in (0, 1)]
    tracer.builder.insert(
        If(condition=test.value, then=regions[0], otherwise=regions[1], results=results, loc=where)
    )
    supply = iter(results)
    leaves: list[Any] = []
    for is_result, (name, a, b) in zip(is_merged, pairs):
        kind = Scalar if is_result and a.is_weak and b.is_weak else TileValue
        leaves.append(kind(next(supply)) if is_result else unmerged_value(name, a, b))
    return joined_arms(left, right, leaves)


def run_assert(test: Any, message: Callable[[], Any]) -> None:
    """Run an ``assert``: what is known is checked now, device values where the kernel is checked.

    Compiled kernels cannot raise: they leave the assertion out, as Python does with ``-O``.
    """
    if not isinstance(test, TileValue):
        assert test, message()
        return
    tracer = current_tracer("assert")
    condition = as_condition(test)
    if tracer.options.is_interpreted:
        tracer.builder.effect(Assert, condition=condition.value, message=str(message()))


def as_condition(condition: TileValue) -> TileValue:
    """A scalar bool for a branch."""
    if condition.tile.rank:
        _check_is_one_element(condition)
    if condition.tile.dtype != BOOL:
        condition = apply("ne", condition, 0)
    while condition.tile.rank:
        condition = reduce(condition, 0, ReduceKind.ANY)
    return condition


def _check_is_one_element(condition: TileValue) -> None:
    """Refuse tiles of several elements; a lock is taken for one, so its tiles have that size."""
    tracer = current_tracer("a condition")
    for dim in condition.tile.shape:
        block = tracer.find_block(dim.symbol)
        is_tuned = block is not None and block.fixed is None and block.low == 1
        if block and is_tuned and _is_of_an_atomic(tracer, condition.value):
            tracer.blocks[tracer.blocks.index(block)] = replace(block, high=1)
        elif not dim.is_one:
            raise errors.MultiElementCondition(shape=str(condition.tile))


def _is_of_an_atomic(tracer: Tracer, value: Value) -> bool:
    op = tracer.builder.definition_of(value)
    if isinstance(op, (Elementwise, Cast)):
        return any(_is_of_an_atomic(tracer, operand) for operand in op.operand_values())
    return isinstance(op, Atomic)


def _trace_arm(tracer: Tracer, arm: Callable[..., State], state: State) -> tuple[State, Any]:
    with tracer.open_region("if"):
        out = arm(*state)
        leaves = spread([""] * len(out), out).leaves
        # Taken while the region is open: values of a closed one count as gone.
        values = {id(leaf): leaf.value for leaf in leaves if isinstance(leaf, TileValue)}
    return out, (tracer.take_region(()), values)


def _close_arm(arm: tuple[Any, Any], yielded: list[Any], where: SourceLocation) -> Any:
    region, values = arm
    # Numbers became scalars after the arms were traced: those stand before the branch.
    results = tuple(values.get(id(leaf)) or leaf.value for leaf in yielded)
    ending = Yield(values=results, loc=where)
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
    test = _test(condition, state)
    while not isinstance(test, TileValue):
        if not test:
            return state
        turns += 1
        if turns > STATIC_LOOP_LIMIT:
            raise errors.StaticLoopTooLong(limit=STATIC_LOOP_LIMIT)
        state = body(*state)
        test = _test(condition, state)
    items = spread(names, state)
    functions = (items.on_leaves(condition), items.on_leaves(body))
    with check_others(others, state):
        return items.joined(trace_while(*functions, items.names, items.leaves))


def _test(condition: Callable[..., Any], state: State) -> Any:
    """What a condition says of ``state``; one known only at run time leaves no op behind.

    The loop asks it again itself, and what it does to memory is to happen once a turn.
    """
    tracer = current_tracer("while")
    mark = tracer.mark()
    with tracer.open_region("while"):
        test = condition(*state)
    if isinstance(test, TileValue):
        tracer.return_to(mark)
        return test
    for op in tracer.take_region(()).ops:
        tracer.builder.insert(op)
    return test


def with_changed_numbers(state: State, trace: Callable[[State], State]) -> State:
    """Trace a loop; again, with a device scalar, for each Python number that it changes."""
    tracer = current_tracer("a loop")
    while True:
        mark = tracer.mark()
        try:
            return trace(state)
        except changed_numbers.NumberChangedError as changed:
            position, now = changed.position, changed.now
            tracer.return_to(mark)
            start = changed_numbers.scalar_for(state[position], now)
            state = (*state[:position], start, *state[position + 1 :])


def trace_while(
    condition: Callable[..., Any], body: Callable[..., State], names: Sequence[str], state: State
) -> State:
    """A loop op that runs while a condition on the carried values holds."""
    return with_changed_numbers(state, lambda state: _trace_while(condition, body, names, state))


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
