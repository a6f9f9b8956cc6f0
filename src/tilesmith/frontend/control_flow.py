"""The runtime side of functionalised code: device loops become loop ops, everything static just runs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from tilesmith.diagnostics import errors
from tilesmith.diagnostics.wording import kind_of
from tilesmith.dtypes import BOOL, I32
from tilesmith.frontend.emission import apply, as_tile, cast, full
from tilesmith.frontend.loops import BoundAxis, LoopRange, bind_axis
from tilesmith.frontend.sessions import current_tracer
from tilesmith.frontend.tensors import TensorRef
from tilesmith.frontend.tile import Tile
from tilesmith.frontend.tracer import Tracer, locate
from tilesmith.frontend.values import Scalar, TileValue
from tilesmith.ir.ops.control_flow import Grid, If, Loop, While, Yield
from tilesmith.ir.values import Value

State = tuple[Any, ...]
STATIC_LOOP_LIMIT = 10_000


class Unbound:
    """Stands for a name that has no value here; any use of it is an error that says why."""

    user_name = "a name without a value"

    def __init__(
        self, name: str = "", error: type[errors.BaseError] = errors.UndefinedVariable
    ) -> None:
        self._name, self._error = name, error

    def _fail(self, *_: Any, **__: Any) -> Any:
        raise self._error(name=self._name, loc=locate())

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __neg__ = _fail
    __rtruediv__ = __matmul__ = __rmatmul__ = __getitem__ = __call__ = __bool__ = __iter__ = _fail
    __lt__ = __le__ = __gt__ = __ge__ = __pow__ = __floordiv__ = __mod__ = __index__ = _fail

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """A torch function was given the unbound name."""
        for arg in args:
            if isinstance(arg, Unbound):
                arg._fail()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._fail()


UNBOUND = Unbound()


def named(name: str, value: Any) -> Any:
    """Give a value the name of the variable it is assigned to."""
    if isinstance(value, TileValue) and not isinstance(value, Scalar) and not value.value.name:
        value.value.name = name
    return value


def unpack(item: Any, count: int) -> Any:
    """The loop variable for a tuple target."""
    if isinstance(item, (Tile, TileValue)):
        raise errors.FailedToUnpackTile(count=count, loc=locate())
    return item


def run_for(
    iterator: Any,
    body: Callable[..., State],
    names: Sequence[str],
    state: State,
    targets: Sequence[str],
) -> State:
    """Run a ``for`` of device code: a loop op for ``hl.tile``/``hl.grid``, else unrolled."""
    if isinstance(iterator, LoopRange):
        tracer = current_tracer(iterator.function)
        if not tracer.regions:
            return _trace_grid(tracer, iterator, body, (names, state), targets)
        return _trace_loop(tracer, iterator, body, (names, state), targets)
    if isinstance(iterator, (TileValue, TensorRef, dict, set, int, Tile, Unbound)):
        raise errors.InvalidDeviceForLoop(iterable=kind_of(iterator), loc=locate())
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
        tile = Tile(axis.block or None, begin, axis.begin, axis.end)
        variables.append(tile if is_tile else Scalar(begin))
    return tuple(variables) if loop.is_tuple else variables[0]


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
    if any(axis.step not in (None, 1) for axis in loop.axes):
        raise errors.IncorrectTileUsage(
            problem="a top-level hl.grid with a step", fix="multiply the index inside", loc=locate()
        )
    axes = _bind(tracer, loop, targets)
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
        inner = [_carried_argument(name, value) for name, value in zip(names, state)]
        out = body(_loop_variable(loop, axes, args), *inner)
        yielded = _merge_carried(names, state, inner, out)
        tracer.builder.effect(Yield, values=tuple(new.value for _, new in yielded))
    positions = [position for position, _ in yielded]
    region_args = (*args, *(inner[p]._value for p in positions))
    region = tracer.take_region(region_args)
    results = tuple(Value(state[p].tile, names[p], where) for p in positions)
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
    return _after_loop(names, state, dict(zip(positions, results)))


def _carried_argument(name: str, value: Any) -> Any:
    """Inside the loop a device value bound before it is the region's argument."""
    if isinstance(value, TileValue):
        argument = Value(value.tile, name, value._value.loc)
        return Scalar(argument) if isinstance(value, Scalar) else TileValue(argument)
    return value


def _merge_carried(
    names: Sequence[str], state: State, inner: list[Any], out: State
) -> list[tuple[int, TileValue]]:
    """Positions of the carried values and what they become, checked against what they were."""
    merged: list[tuple[int, TileValue]] = []
    for position, (name, before, now) in enumerate(zip(names, state, out)):
        if isinstance(before, TileValue):
            merged.append((position, _checked_merge(name, before, now)))
        elif not isinstance(before, Unbound) and now is not inner[position] and now != before:
            raise _cannot_combine(name, before, now)
    return merged


def _cannot_combine(name: str, before: Any, now: Any) -> errors.BaseError:
    are_numbers = isinstance(before, (int, float)) and isinstance(now, (int, float, Scalar))
    error = (
        errors.NumberChangedInControlFlow if are_numbers else errors.CantCombineTypesInControlFlow
    )
    return error(name=name, before=_describe(before), after=_describe(now), loc=locate())


def _changed(name: str, before: TileValue, now: TileValue) -> errors.BaseError:
    """A tensor that is not what it was; both values may know the line that made them."""
    places = {f"{value.tile} comes from": value._value.loc for value in (before, now)}
    return errors.ControlFlowTensorMismatch(
        name=name,
        before=str(before.tile),
        after=str(now.tile),
        loc=locate(),
        related={label: loc for label, loc in places.items() if loc.line},
    )


def _checked_merge(name: str, before: TileValue, now: Any) -> TileValue:
    if isinstance(now, (int, float)) and not isinstance(now, bool):
        now = full(now, before.tile.dtype, before.tile.shape)
    if not isinstance(now, TileValue):
        raise _cannot_combine(name, before, now)
    if isinstance(before, Scalar) and before.tile.rank == now.tile.rank == 0:
        now = cast(now, before.tile.dtype)
    if now.tile != before.tile:
        raise _changed(name, before, now)
    return now


def _describe(value: Any) -> str:
    if isinstance(value, TileValue):
        return f"a device tensor {value.tile}"
    return f"{value!r}" if isinstance(value, (int, float, str)) else kind_of(value)


def _after_loop(names: Sequence[str], state: State, results: dict[int, Value]) -> State:
    after: list[Any] = []
    for position, (name, before) in enumerate(zip(names, state)):
        if position in results:
            result = results[position]
            after.append(Scalar(result) if isinstance(before, Scalar) else TileValue(result))
        elif isinstance(before, Unbound):
            after.append(Unbound(name, errors.UnboundAfterLoop))
        else:
            after.append(before)
    return tuple(after)


def run_if(
    condition: Any,
    then: Callable[..., State],
    otherwise: Callable[..., State],
    names: Sequence[str],
    state: State,
) -> State:
    """Run an ``if``: one arm when the condition is known, both under an ``if`` op otherwise."""
    if isinstance(condition, TensorRef):
        bool(condition)
    if not isinstance(condition, TileValue):
        return then(*state) if condition else otherwise(*state)
    tracer = current_tracer("if")
    test = as_condition(condition)
    arms = [_trace_arm(tracer, arm, state) for arm in (then, otherwise)]
    merged = [_merge_arms(name, a, b) for name, a, b in zip(names, arms[0][0], arms[1][0])]
    positions = [i for i, is_merged in enumerate(merged) if is_merged]
    where = locate()
    results = tuple(Value(arms[0][0][p].tile, names[p], where) for p in positions)
    regions = [_close_arm(arm, positions, results) for arm in arms]
    tracer.builder.insert(
        If(condition=test.value, then=regions[0], otherwise=regions[1], results=results, loc=where)
    )
    by_position = dict(zip(positions, results))
    return tuple(
        TileValue(by_position[i]) if i in by_position else _unmerged(name, a, b)
        for i, (name, a, b) in enumerate(zip(names, arms[0][0], arms[1][0]))
    )


def as_condition(condition: TileValue) -> TileValue:
    """A scalar bool for a branch."""
    if condition.tile.rank:
        raise errors.MultiElementCondition(shape=str(condition.tile), loc=locate())
    return condition if condition.tile.dtype == BOOL else apply("ne", condition, 0)


def _trace_arm(tracer: Tracer, arm: Callable[..., State], state: State) -> tuple[State, Any]:
    with tracer.open_region("if"):
        out = arm(*state)
        values = [value.value if isinstance(value, TileValue) else None for value in out]
    return out, (tracer.take_region(()), values)


def _merge_arms(name: str, left: Any, right: Any) -> bool:
    """Whether a name becomes a result of the branch."""
    if left is right or isinstance(left, Unbound) or isinstance(right, Unbound):
        return False
    if isinstance(left, TileValue) and isinstance(right, TileValue):
        if left.tile != right.tile:
            raise _changed(name, left, right)
        return True
    if isinstance(left, TileValue) or isinstance(right, TileValue) or left != right:
        raise _cannot_combine(name, left, right)
    return False


def _close_arm(arm: tuple[State, Any], positions: list[int], results: tuple[Value, ...]) -> Any:
    region, values = arm[1]
    ending = Yield(values=tuple(values[p] for p in positions))
    return type(region)(region.args, (*region.ops, ending))


def _unmerged(name: str, left: Any, right: Any) -> Any:
    if left is right:
        return left
    if isinstance(left, Unbound) or isinstance(right, Unbound):
        return Unbound(name, errors.UnboundInBranch)
    return left


def run_while(
    condition: Callable[..., Any], body: Callable[..., State], names: Sequence[str], state: State
) -> State:
    """Run a ``while``: unrolled while the condition is known, else a loop op."""
    turns = 0
    test = condition(*state)
    while not isinstance(test, TileValue):
        if not test:
            return state
        turns += 1
        if turns > STATIC_LOOP_LIMIT:
            raise errors.StaticLoopTooLong(limit=STATIC_LOOP_LIMIT, loc=locate())
        state = body(*state)
        test = condition(*state)
    return _trace_while(condition, body, names, state)


def _trace_while(
    condition: Callable[..., Any], body: Callable[..., State], names: Sequence[str], state: State
) -> State:
    tracer = current_tracer("while")
    where = locate()
    carried = [p for p, value in enumerate(state) if isinstance(value, TileValue)]
    regions: list[Any] = []
    for is_condition in (True, False):
        with tracer.open_region("while"):
            inner = [_carried_argument(name, value) for name, value in zip(names, state)]
            if is_condition:
                values = (as_condition(condition(*inner)).value,)
            else:
                merged = _merge_carried(names, state, inner, body(*inner))
                values = tuple(new.value for _, new in merged)
            tracer.builder.effect(Yield, values=values)
        regions.append(tracer.take_region(tuple(inner[p]._value for p in carried)))
    results = tuple(Value(state[p].tile, names[p], where) for p in carried)
    init = tuple(state[p].value for p in carried)
    tracer.builder.insert(
        While(init=init, condition=regions[0], body=regions[1], results=results, loc=where)
    )
    return _after_loop(names, state, dict(zip(carried, results)))


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
            raise errors.LogicalOperatorOnTensor(operator=fn, shape=operand.tile, loc=locate())
        test = as_condition(operand)
        symbolic = test if symbolic is None else apply(fn, symbolic, test)
    return last if symbolic is None else symbolic


def negate(operand: Any) -> Any:
    """``not``."""
    if not isinstance(operand, TileValue):
        return not operand
    if operand.tile.rank:
        raise errors.LogicalOperatorOnTensor(operator="not", shape=operand.tile, loc=locate())
    return apply("not", as_condition(operand))


def choose(condition: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
    """A ternary."""
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
