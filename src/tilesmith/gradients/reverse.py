"""The reverse walk: forward ops again, then their adjoints from the last to the first.

A loop becomes a loop over the same tiles. Where carried values are only added to, their cotangents
are the same in every turn, and the turns may come in any order; other recurrences run backwards
over states that the forward loop keeps (``recurrences.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilesmith.gradients.additive import is_only_added_to
from tilesmith.gradients.recurrences import Recurrence, load_state
from tilesmith.gradients.scans import as_scan_with, reverse_reduction, reverse_scan
from tilesmith.gradients.tape import Tape
from tilesmith.gradients.terms import cotangent_type
from tilesmith.gradients.tile_derivatives import TILE_DERIVATIVES
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import If, Loop, While, Yield
from tilesmith.ir.ops.memory import Atomic, AtomicKind, Load, Store
from tilesmith.ir.ops.reduction import ReduceKind, ReduceWith, Scan, ScanWith
from tilesmith.ir.traversal import values_defined_in, values_used_by, walk
from tilesmith.ir.types import Value


def reverse_op(tape: Tape, op: Operation) -> None:
    """Write the adjoint of an op."""
    if isinstance(op, (Store, Atomic)):
        _reverse_store(tape, op)
    elif isinstance(op, Loop):
        _reverse_loop(tape, op)
    elif isinstance(op, If):
        _reverse_if(tape, op)
    elif isinstance(op, Load):
        g = tape.take(op.result)
        if g is not None:
            tape.forward.memory.write(tape, op, g)
    else:
        _reverse_plain(tape, op)


def _reverse_plain(tape: Tape, op: Operation) -> None:
    cotangents = [tape.take(result) for result in op.results]
    if all(g is None for g in cotangents):
        return
    if isinstance(op, Scan) and op.reduction is not ReduceKind.SUM:
        reverse_scan(tape, as_scan_with(op), cotangents)
        return
    if isinstance(op, ScanWith):
        reverse_scan(tape, op, cotangents)
        return
    if isinstance(op, ReduceWith):
        reverse_reduction(tape, op, cotangents)
        return
    rule = TILE_DERIVATIVES.get(type(op))
    if rule is None or len(op.results) != 1 or cotangents[0] is None:
        kind = "a loop of unknown length" if isinstance(op, While) else f"`{op.name}`"
        raise tape.refuse(op, f"{kind} has no derivative")
    rule(tape, op, cotangents[0])


def _reverse_store(tape: Tape, op: Store | Atomic) -> None:
    if op.tensor in tape.forward.states:
        return
    is_consumed = isinstance(op, Store) and op.tensor in tape.forward.overwriting.tensors
    if not tape.is_active(op.value) and not is_consumed:
        return
    if any(tape.forward.uses.get(result) for result in op.results):
        raise tape.refuse(op, "the previous values of an atomic are used")
    if isinstance(op, Atomic) and op.kind != AtomicKind.ADD.value:
        raise tape.refuse(op, f"an atomic {op.kind} has no derivative")
    grads = tape.forward.memory.cotangent_of(op.tensor)
    if grads is None:
        return
    mask = None if op.mask is None else tape.value(op.mask)
    kind = op.value.tile.with_dtype(grads.tensor.dtype)
    indices = tuple(map(tape.value, op.indices))
    loaded = tape.writer.create(Load, kind, tensor=grads, indices=indices, mask=mask)
    loaded.name = f"grad_{op.value.name or 'tile'}"
    if tape.is_active(op.value):
        tape.add(op.value, tape.writer.cast(loaded, cotangent_type(op.value).dtype))
    if is_consumed:
        # What was there before has no part in the result.
        zeros = tape.writer.full(kind, 0.0)
        tape.writer.effect(Store, tensor=grads, value=zeros, indices=indices, mask=mask)


def _reverse_if(tape: Tape, op: If) -> None:
    cotangents = [tape.take(result) for result in op.results]
    outer = _outer_active(tape, op)
    if not outer and not _has_active_store(op, tape):
        return
    branches: list[Region] = []
    for branch in op.regions():
        inner = tape.inner({})
        inner.recompute(branch.ops)
        for yielded, g in zip(branch.yielded, cotangents):
            if g is not None:
                inner.add(yielded, g)
        inner.run(branch.ops)
        found = [inner.take(value) for value in outer]
        kinds = map(cotangent_type, outer)
        values = [inner.writer.full(k, 0.0) if g is None else g for k, g in zip(kinds, found)]
        inner.writer.effect(Yield, values=tuple(values))
        branches.append(inner.close())
    results = tuple(Value(cotangent_type(value), "", op.loc) for value in outer)
    condition = tape.value(op.condition)
    then, otherwise = branches
    tape.writer.insert(
        If(condition=condition, then=then, otherwise=otherwise, results=results, loc=op.loc)
    )
    for value, result in zip(outer, results):
        tape.add(value, result)


def _outer_active(tape: Tape, op: Operation) -> list[Value]:
    """Active values from outside that an op's regions use, each once."""
    inside = {value for region in op.regions() for value in values_defined_in(region)}
    used = values_used_by(inner for region in op.regions() for inner in region.ops)
    found = (value for value in used if value not in inside and tape.is_active(value))
    return list(dict.fromkeys(found))


def _reverse_loop(tape: Tape, op: Loop) -> None:
    cotangents = [tape.take(result) for result in op.results]
    if all(g is None for g in cotangents) and not _has_active_store(op, tape):
        return
    carried = enumerate(op.carried)
    kept = [i for i, v in carried if tape.is_active(v) and not is_only_added_to(op, i)]
    outer = _outer_active(tape, op)
    if kept or op.body.args[0] in tape.forward.overwriting.loops:
        _reverse_recurrence(tape, op, cotangents, kept, outer)
        return
    inits = tuple(map(tape.value, op.init))
    zeros = tuple(tape.writer.full(cotangent_type(value), 0.0) for value in outer)
    inner, args = _enter(tape, op, (*op.carried, *outer))
    inner.recompute(op.body.ops)
    for yielded, g in zip(op.body.yielded, cotangents):
        if g is not None:
            inner.add(yielded, g)
    inner.run(op.body.ops)
    carried = tuple(map(inner.value, op.body.yielded))
    sums = inner.sums(outer, args[-len(outer) :] if outer else ())
    results = _leave(tape, op, inner, args, (*inits, *zeros), (*carried, *sums))
    for value, result in zip(outer, results[len(inits) :]):
        tape.add(value, result)
    for init, g in zip(op.init, cotangents):
        if g is not None:
            tape.add(init, g)


def _enter(
    tape: Tape, op: Loop, carried: Sequence[Value], *, is_back: bool = False
) -> tuple[Tape, tuple[Value, ...]]:
    """A tape for the turns of a loop, which carries forward values and then cotangents.

    ``is_back``: it carries cotangents only.
    """
    own = 0 if is_back else len(op.carried)
    kinds = [v.type if i < own else cotangent_type(v) for i, v in enumerate(carried)]
    named = [v.name if i < own else f"grad_{v.name or 'value'}" for i, v in enumerate(carried)]
    fresh = [Value(kind, name, op.loc) for kind, name in zip(kinds, named)]
    positions = [arg.like() for arg in op.body.args[: op.rank]]
    args = (*positions, *fresh)
    stands = op.body.args[: op.rank] if is_back else op.body.args
    return tape.inner(dict(zip(stands, args)), list(zip(positions, op.blocks))), args


def _leave(
    tape: Tape,
    op: Loop,
    inner: Tape,
    args: tuple[Value, ...],
    inits: tuple[Value, ...],
    yielded: Sequence[Value],
) -> tuple[Value, ...]:
    inner.writer.effect(Yield, values=tuple(yielded))
    results = tuple(value.like() for value in args[op.rank :])
    bounds = {
        name: tuple(map(tape.value, getattr(op, name))) for name in ("begins", "ends", "steps")
    }
    tape.writer.insert(replace(op, **bounds, init=inits, body=inner.close(args), results=results))
    return results


def _reverse_recurrence(
    tape: Tape,
    op: Loop,
    cotangents: Sequence[Value | None],
    kept: Sequence[int],
    outer: Sequence[Value],
) -> None:
    found = tape.forward.recurrences.get(op.body.args[0])
    if found is None and not kept:
        found = Recurrence()
    if found is None or found.problem:
        name = op.carried[kept[0]].name if kept else ""
        subject = f"`{name}` is" if name else "values are"
        reason = f"{subject} carried from turn to turn"
        raise tape.refuse(op, f"{reason}, and {found.problem}" if found else reason)
    own = [op.carried[place] for place in kept]
    inits = [tape.or_zeros(cotangents[place], op.carried[place]) for place in kept]
    inits += [tape.writer.full(cotangent_type(value), 0.0) for value in outer]
    inner, args = _enter(tape, op, (*own, *outer), is_back=True)
    tape.forward.reversed_loops.append(args[0])
    for carried in op.carried:
        # Sums are only added to: what they were is asked for by nobody.
        inner.stand_for(carried, inner.writer.full(carried.tile, 0))
    for state in found.states:
        carried = op.carried[state.place]
        loaded = load_state(inner.writer, state, carried.tile, inner.enclosing)
        loaded.name = carried.name
        inner.stand_for(carried, loaded)
    inner.recompute(op.body.ops)
    for place, yielded in enumerate(op.body.yielded):
        g = args[op.rank + kept.index(place)] if place in kept else cotangents[place]
        if g is not None:
            inner.add(yielded, g)
    inner.run(op.body.ops)
    after = [inner.or_zeros(inner.take(value), value) for value in own]
    sums = inner.sums(outer, args[op.rank + len(own) :])
    results = _leave(tape, op, inner, args, tuple(inits), (*after, *sums))
    for value, result in zip((*(op.init[place] for place in kept), *outer), results):
        tape.add(value, result)
    for place, g in enumerate(cotangents):
        if g is not None and place not in kept:
            tape.add(op.init[place], g)


def _has_active_store(op: Operation, tape: Tape) -> bool:
    inner = (one for region in op.regions() for one in walk(region))
    stores = (one for one in inner if isinstance(one, (Store, Atomic)))
    consumed = tape.forward.overwriting.tensors
    return any(tape.is_active(store.value) or store.tensor in consumed for store in stores)
