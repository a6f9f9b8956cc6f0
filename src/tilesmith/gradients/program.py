"""From a forward function to its backward program: IR, and the tensors that it reads and fills."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import tilesmith.exc as errors
from tilesmith.diagnostics.location import UNKNOWN, SourceLocation
from tilesmith.gradients.additive import (
    SettledLoop,
    find_normalisers,
    make_normalisers,
    settle_maxima,
)
from tilesmith.gradients.gradient_tensors import (
    BackwardProgram,
    Buffer,
    GradientTensors,
    Names,
    like,
)
from tilesmith.gradients.grids.grid_blocks import can_group, group_rows, keep_visible_blocks
from tilesmith.gradients.grids.own_grids import StoredSum
from tilesmith.gradients.grids.placement import Mode, Placement, loads_of_written, plan_gradients
from tilesmith.gradients.normal_form import simplify_backward, simplify_forward
from tilesmith.gradients.overwriting import Overwriting, find_overwriting
from tilesmith.gradients.overwritten import read_before
from tilesmith.gradients.products import reduce_to_lowest_terms
from tilesmith.gradients.recurrences import KeptFunction, keep_states
from tilesmith.gradients.reshaped import add_later
from tilesmith.gradients.reverse import reverse_op
from tilesmith.gradients.saved import SavedValue, choose_saved, find_saved
from tilesmith.gradients.shifts import find_idle_maxima, find_shifts, values_of
from tilesmith.gradients.stages import with_own_grids
from tilesmith.gradients.tape import Forward, Tape, find_active, find_reinterpreted
from tilesmith.ir.function import Function, Parameter
from tilesmith.ir.operation import Operation, Trait
from tilesmith.ir.ops.control_flow import Grid, GridBarrier, GroupBarrier, While, Yield
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.traversal import count_uses, definitions, rewrite_function, walk
from tilesmith.ir.types import TensorType, Value

BYTE = 8


def float_tensors(function: Function) -> list[Value]:
    """The tensors among the parameters that have gradients: of floats that sums can be made of."""
    values = [parameter.value for parameter in function.parameters]
    tensors = [v for v in values if isinstance(v.type, TensorType)]
    return [v for v in tensors if v.tensor.dtype.is_float and v.tensor.dtype.bits > BYTE]


def written_tensors(function: Function) -> list[Value]:
    """The float tensors that are stored into, or added to."""
    ops = [op for op in walk(function.body) if isinstance(op, (Store, Atomic))]
    written = {op.tensor for op in ops}
    return [value for value in float_tensors(function) if value in written]


def differentiate(
    traced: Function,
    wanted: Collection[str],
    given: Collection[str],
    saved: Collection[str] | None = None,
    reshaped: Mapping[str, str] | None = None,
    *,
    in_one_launch: bool = False,
) -> BackwardProgram:
    """The backward program of a traced function.

    ``wanted`` names the tensors whose gradients are asked for, ``given`` those written tensors of
    which there are cotangents, ``saved`` those that can be loaded; without it all of them can.
    ``reshaped`` has launch expressions of tensors in another shape, with those of the tensors.
    ``in_one_launch``: though it costs more; only such a program has a derivative itself.
    """
    function, before, wanted = read_before(keep_visible_blocks(simplify_forward(traced)), wanted)
    _check(function, wanted)
    written = written_tensors(function)
    inputs = [v for v in float_tensors(function) if v.name in wanted and v not in written]
    _check_bits(function, inputs)
    active = find_active(function, inputs, find_idle_maxima(function))
    plans = plan_gradients(function, inputs, active)
    axes = {axis for plan in plans.values() for axis in plan.parts}
    if len(axes) == 1 and can_group(function, min(axes)):
        function = simplify_forward(group_rows(function, min(axes)))
        active = find_active(function, inputs, find_idle_maxima(function))
        plans = plan_gradients(function, inputs, active)
    maxima = find_shifts(function)
    overwriting = find_overwriting(function, before)
    function, settled = settle_maxima(function, () if overwriting.tensors else maxima)
    if settled:
        done = {value for one in settled for value in one.own_values()}
        active = find_active(function, inputs, values_of(maxima)) - done
        plans = plan_gradients(function, inputs, active)
    kept = keep_states(function, active, overwriting.loops)

    def derive(chosen: Sequence[SavedValue]) -> BackwardProgram:
        names = Names(p.value.name for p in kept.function.parameters)
        cotangents = {v: like(v, names.make(f"grad_{v.name}")) for v in written if v.name in given}
        memory = GradientTensors(cotangents, plans, names)
        return _reverse(kept, active, memory, {s.after: s for s in chosen}, settled, overwriting)

    candidates = find_saved(kept.function, saved, overwriting.tensors)
    candidates += list(find_normalisers(kept.function, settled, candidates))
    candidates += make_normalisers(settled)
    best = choose_saved(candidates, derive, lambda program: program.function)
    best = _pass_on(best, {value: old for value, old in before.items() if old in inputs})
    joined = None if in_one_launch else _join(best, reshaped or {})
    return joined or _finish(best, in_one_launch=in_one_launch)


def _pass_on(program: BackwardProgram, before: Mapping[Value, Value]) -> BackwardProgram:
    """The program that adds what is left of cotangents to gradients of what was there before."""
    passed = {before[value]: grad for value, grad in program.cotangents if value in before}
    lost = passed.keys() - {buffer.like for buffer in program.buffers}
    for name in (value.name for value, old in before.items() if old in lost):
        reason = f"what was in `{name}` counts only where it is not overwritten"
        raise _refusal(program.forward, reason, first_access(program.forward, name))
    return replace(program, passed=passed)


def _reverse(
    kept: KeptFunction,
    active: Collection[Value],
    memory: GradientTensors,
    saved: Mapping[Value, SavedValue],
    settled: Collection[SettledLoop],
    overwriting: Overwriting,
) -> BackwardProgram:
    function = kept.function
    forward = Forward(
        function.name,
        active,
        definitions(function.body),
        count_uses(function.body),
        memory,
        kept.loops,
        kept.tensors,
        saved,
        dict(pair for one in settled for pair in one.pairs()),
        overwriting,
        reverse=reverse_op,
    )
    # No grid of a backward loads what another one stores.
    ops = [op for op in function.body.ops if not isinstance(op, GridBarrier)]
    body = [_reverse_grid(forward, memory, op) if isinstance(op, Grid) else op for op in ops]
    buffers = tuple(memory.buffers())
    tensors = [*memory.cotangents.values(), *(buffer.value for buffer in buffers)]
    parameters = (*function.parameters, *(Parameter(v, v.name) for v in tensors))
    name = f"{function.name}_backward"
    made = replace(function, name=name, parameters=parameters, body=function.body.with_ops(body))
    states = [state for loop in kept.loops.values() for state in loop.states]
    if any(one.is_solved for one in saved.values()):
        made = reduce_to_lowest_terms(made)
    return BackwardProgram(
        _drop_unread(made, kept.tensors),
        function,
        tuple(memory.cotangents.items()),
        buffers,
        tuple(states),
        tuple(forward.reversed_loops),
    )


def _join(program: BackwardProgram, reshaped: Mapping[str, str]) -> BackwardProgram | None:
    """The program with one gradient for a tensor that is read in two shapes, if there is one."""
    sources = {p.value: p.source for p in program.forward.parameters}
    stored = {
        sources[one.like]: one
        for one in program.buffers
        if one.placement.mode is Mode.STORE and not one.parts
    }
    pairs = {
        one: stored[reshaped[sources[one.like]]]
        for one in program.buffers
        if one.placement.mode is Mode.ATOMIC and reshaped.get(sources[one.like]) in stored
    }
    # A view of another type is another tensor.
    pairs = {a: b for a, b in pairs.items() if a.like.tensor.dtype == b.like.tensor.dtype}
    moved = {one.value: _narrowed(one.value, whole.value) for one, whole in pairs.items()}
    made = add_later(program.function, moved) if pairs and not program.consumed else None
    if made is None:
        return None
    return replace(
        program,
        function=made,
        buffers=tuple(buffer for buffer in program.buffers if buffer not in pairs),
        handed=frozenset(whole.value for whole in pairs.values()),
        views=tuple((moved[one.value], two.value, one.like) for one, two in pairs.items()),
    )


def _narrowed(value: Value, whole: Value) -> Value:
    return value.like(replace(value.tensor, dtype=whole.tensor.dtype))


def _finish(program: BackwardProgram, *, in_one_launch: bool) -> BackwardProgram:
    """The program with grids for factors; cotangents that change are read in their order."""
    if program.consumed:
        return program
    dtypes = {buffer.value: buffer.like.tensor.dtype for buffer in program.buffers}
    made = with_own_grids(program.function, dtypes, in_one_launch=in_one_launch)
    function, stored, handed = made
    return replace(
        program,
        function=function,
        buffers=tuple(_as_stored(buffer, stored) for buffer in program.buffers),
        states=(*program.states, *handed),
        handed=frozenset(state.tensor for state in handed),
    )


def _as_stored(buffer: Buffer, stored: Mapping[Value, StoredSum]) -> Buffer:
    found = stored.get(buffer.value)
    if found is None:
        return buffer
    return replace(buffer, value=found.tensor, placement=Placement(Mode.STORE, covers=found.covers))


def _check_bits(function: Function, inputs: Collection[Value]) -> None:
    cast = find_reinterpreted(function, inputs)
    if cast is not None:
        raise _refusal(function, "floats are made of bits that were computed", cast.loc)


def _drop_unread(function: Function, states: Collection[Value]) -> Function:
    """The simplified function without stores of states that nothing needs."""
    function = simplify_backward(function)
    read = {op.tensor for op in walk(function.body) if isinstance(op, Load)}
    unread = set(states) - read
    if not unread:
        return function

    def drop(op: Operation) -> Operation | None:
        return None if isinstance(op, Store) and op.tensor in unread else op

    return simplify_backward(rewrite_function(function, drop))


def _check(function: Function, wanted: Collection[str]) -> None:
    for parameter in function.parameters:
        kind = parameter.value.type
        is_tiny = isinstance(kind, TensorType) and kind.dtype.is_float and kind.dtype.bits <= BYTE
        if is_tiny and parameter.value.name in wanted:
            reason = f"`{parameter.value.name}` has elements of {kind.dtype.name}"
            raise _refusal(function, reason, first_access(function, parameter.value.name))
    for load in loads_of_written(function):
        reason = f"`{load.tensor.name}` is read and written by the same kernel"
        raise _refusal(function, reason, load.loc)
    for op in walk(function.body):
        waits = isinstance(op, (While, GroupBarrier)) and _has_effects(op)
        if waits:
            raise _refusal(function, "programs wait for each other", op.loc)


def first_access(function: Function, name: str) -> SourceLocation:
    """Where a tensor is written first, or else read."""
    found = [op for op in walk(function.body) if isinstance(op, (Load, Store, Atomic))]
    own = [op for op in found if op.tensor.name == name]
    own.sort(key=lambda op: isinstance(op, Load))
    return own[0].loc if own else UNKNOWN


def _has_effects(op: Operation) -> bool:
    inner = (one for region in op.regions() for one in walk(region))
    return any(one.traits & (Trait.WRITES | Trait.EFFECT) for one in (op, *inner))


def _refusal(function: Function, reason: str, loc: SourceLocation) -> errors.AutodiffNotSupported:
    return errors.AutodiffNotSupported(function=function.name, reason=reason, loc=loc)


def _reverse_grid(forward: Forward, memory: GradientTensors, grid: Grid) -> Grid:
    memory.grid = grid
    tape = Tape(forward, {}, tuple(zip(grid.body.args, grid.blocks)))
    tape.recompute(grid.body.ops, is_fresh=False)
    tape.run(grid.body.ops[:-1])
    tape.writer.effect(Yield, values=())
    return replace(grid, body=tape.close(grid.body.args))
