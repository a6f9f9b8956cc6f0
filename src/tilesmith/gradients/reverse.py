"""The reverse walk: forward ops again, then their adjoints from the last to the first.

A loop becomes a loop over the same tiles. Where carried values are only added to, their cotangents
are the same in every turn, and the turns may come in any order; other recurrences run backwards
over states that the forward loop saves (``recurrences.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import tilesmith.exc as errors
from tilesmith.diagnostics.location import UNKNOWN, SourceLocation
from tilesmith.gradients.additive import is_only_added_to
from tilesmith.gradients.recurrences import Recurrence, load_state
from tilesmith.gradients.terms import cotangent_type
from tilesmith.gradients.tile_derivatives import TILE_DERIVATIVES
from tilesmith.ir.operation import Operation, Region, Trait
from tilesmith.ir.ops.control_flow import If, Loop, While, Yield
from tilesmith.ir.ops.memory import Atomic, AtomicKind, Load, Store
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.traversal import clone_ops, values_defined_in, values_used_by
from tilesmith.ir.types import Value


class Memory(Protocol):
    """What stands for the tensors of the forward function in the backward one."""

    def cotangent_of(self, tensor: Value) -> Value | None:
        """The tensor with the cotangents of one that the forward function writes, if given."""
        ...

    def write(self, tape: Tape, op: Load, cotangent: Value) -> None:
        """Add a cotangent to the gradient of what was loaded."""
        ...


@dataclass(frozen=True)
class Forward:
    """The function that is differentiated."""

    name: str
    active: Collection[Value]
    definitions: Mapping[Value, Operation]
    uses: Mapping[Value, int]
    memory: Memory
    recurrences: Mapping[Value, Recurrence]
    states: Collection[Value] = ()
    """Tensors that states are kept in."""
    reversed_loops: list[Value] = field(default_factory=list[Value])
    """First arguments of the loops that run from their last turn to the first."""


def without_effects(ops: Iterable[Operation], states: Collection[Value] = ()) -> list[Operation]:
    """The ops that compute values, also inside loops and branches.

    Loops keep their ``states``. Those inside of others do not: their turns are run again when the
    others are gone through backwards.
    """
    kept: list[Operation] = []
    for op in ops:
        is_state = isinstance(op, Store) and op.tensor in states
        if op.traits & (Trait.WRITES | Trait.EFFECT) and not is_state:
            continue
        regions = tuple(_without_effects(op, region, states) for region in op.regions())
        kept.append(op.with_regions(regions))
    return kept


def _without_effects(op: Operation, region: Region, states: Collection[Value]) -> Region:
    own = states
    if isinstance(op, Loop):
        own = {inner.tensor for inner in region.ops if isinstance(inner, Store)} & set(states)
    return region.with_ops(without_effects(region.ops, own))


class Tape:
    """Writes adjoints into one region; cotangents of values from outside are collected."""

    def __init__(
        self,
        forward: Forward,
        values: dict[Value, Value],
        enclosing: tuple[tuple[Value, str], ...] = (),
    ) -> None:
        self.forward = forward
        self.writer = TileWriter(self._locate)
        self.writer.open_region()
        self.enclosing = enclosing
        """The arguments of the loops around it and their blocks, outermost first."""
        self._values = values
        self._cotangents: dict[Value, Value] = {}
        self._loc = UNKNOWN

    def _locate(self) -> SourceLocation:
        return self._loc

    def value(self, forward: Value) -> Value:
        """A forward value where the adjoint stands."""
        return self._values.get(forward, forward)

    def is_active(self, forward: Value) -> bool:
        """Whether a forward value has a cotangent."""
        return forward in self.forward.active

    def definition(self, forward: Value) -> Operation | None:
        """The op that gives a forward value."""
        return self.forward.definitions.get(forward)

    def refuse(self, op: Operation, reason: str) -> errors.AutodiffNotSupported:
        """An error at the user's line."""
        return errors.AutodiffNotSupported(function=self.forward.name, reason=reason, loc=op.loc)

    def add(self, forward: Value, cotangent: Value) -> None:
        """Add to the cotangent of a forward value, if it has one."""
        if not self.is_active(forward):
            return
        before = self._cotangents.get(forward)
        if before is not None:
            cotangent = self.writer.apply("add", before, cotangent)
        self._cotangents[forward] = cotangent

    def take(self, forward: Value) -> Value | None:
        """The whole cotangent of a value, which is asked for once."""
        found = self._cotangents.pop(forward, None)
        if found is not None and forward.name and not found.name:
            found.name = f"grad_{forward.name}"
        return found

    def close(self, args: tuple[Value, ...] = ()) -> Region:
        """The region with all that was written."""
        return self.writer.close_region(args)

    def recompute(self, ops: Iterable[Operation]) -> None:
        """Write forward ops again, with values of their own."""
        states = self.forward.states
        inner = [op for op in ops if not (isinstance(op, Store) and op.tensor in states)]
        for op in clone_ops(without_effects(inner, states), self._values):
            if Trait.TERMINATOR not in op.traits:
                self.writer.insert(op)

    def run(self, ops: Sequence[Operation]) -> None:
        """Write the adjoints of ops, the last one's first."""
        for op in reversed(ops):
            self._loc = op.loc
            self._reverse(op)

    def _reverse(self, op: Operation) -> None:
        if isinstance(op, (Store, Atomic)):
            self._reverse_store(op)
        elif isinstance(op, Loop):
            self._reverse_loop(op)
        elif isinstance(op, If):
            self._reverse_if(op)
        elif isinstance(op, Load):
            g = self.take(op.result)
            if g is not None:
                self.forward.memory.write(self, op, g)
        else:
            self._reverse_plain(op)

    def _reverse_plain(self, op: Operation) -> None:
        cotangents = [self.take(result) for result in op.results]
        if all(g is None for g in cotangents):
            return
        rule = TILE_DERIVATIVES.get(type(op))
        if rule is None or len(op.results) != 1 or cotangents[0] is None:
            kind = "a loop of unknown length" if isinstance(op, While) else f"`{op.name}`"
            raise self.refuse(op, f"{kind} has no derivative")
        rule(self, op, cotangents[0])

    def _reverse_store(self, op: Store | Atomic) -> None:
        if not self.is_active(op.value) or op.tensor in self.forward.states:
            return
        if any(self.forward.uses.get(result) for result in op.results):
            raise self.refuse(op, "the previous values of an atomic are used")
        if isinstance(op, Atomic) and op.kind != AtomicKind.ADD.value:
            raise self.refuse(op, f"an atomic {op.kind} has no derivative")
        grads = self.forward.memory.cotangent_of(op.tensor)
        if grads is None:
            return
        mask = None if op.mask is None else self.value(op.mask)
        kind = op.value.tile.with_dtype(grads.tensor.dtype)
        indices = tuple(map(self.value, op.indices))
        loaded = self.writer.create(Load, kind, tensor=grads, indices=indices, mask=mask)
        loaded.name = f"grad_{op.value.name or 'tile'}"
        self.add(op.value, self.writer.cast(loaded, cotangent_type(op.value).dtype))

    def _reverse_if(self, op: If) -> None:
        cotangents = [self.take(result) for result in op.results]
        outer = self._outer_active(op)
        if not outer and not _has_active_store(op, self):
            return
        branches: list[Region] = []
        for branch in op.regions():
            tape = Tape(self.forward, dict(self._values), self.enclosing)
            tape.recompute(branch.ops)
            for yielded, g in zip(branch.yielded, cotangents):
                if g is not None:
                    tape.add(yielded, g)
            tape.run(branch.ops)
            found = [tape.take(value) for value in outer]
            kinds = map(cotangent_type, outer)
            values = [tape.writer.full(k, 0.0) if g is None else g for k, g in zip(kinds, found)]
            tape.writer.effect(Yield, values=tuple(values))
            branches.append(tape.close())
        results = tuple(Value(cotangent_type(value), "", op.loc) for value in outer)
        condition = self.value(op.condition)
        then, otherwise = branches
        self.writer.insert(
            If(condition=condition, then=then, otherwise=otherwise, results=results, loc=op.loc)
        )
        for value, result in zip(outer, results):
            self.add(value, result)

    def _outer_active(self, op: Operation) -> list[Value]:
        """Active values from outside that an op's regions use, each once."""
        inside = {value for region in op.regions() for value in values_defined_in(region)}
        used = values_used_by(inner for region in op.regions() for inner in region.ops)
        found = (value for value in used if value not in inside and self.is_active(value))
        return list(dict.fromkeys(found))

    def _reverse_loop(self, op: Loop) -> None:
        cotangents = [self.take(result) for result in op.results]
        if all(g is None for g in cotangents) and not _has_active_store(op, self):
            return
        carried = enumerate(op.carried)
        kept = [i for i, v in carried if self.is_active(v) and not is_only_added_to(op, i)]
        outer = self._outer_active(op)
        if kept:
            self._reverse_recurrence(op, cotangents, kept, outer)
            return
        inits = tuple(map(self.value, op.init))
        zeros = tuple(self.writer.full(cotangent_type(value), 0.0) for value in outer)
        tape, args = self._enter(op, (*op.carried, *outer))
        tape.recompute(op.body.ops)
        for yielded, g in zip(op.body.yielded, cotangents):
            if g is not None:
                tape.add(yielded, g)
        tape.run(op.body.ops)
        carried = tuple(map(tape.value, op.body.yielded))
        sums = tape.sums(outer, args[-len(outer) :] if outer else ())
        results = self._leave(op, tape, args, (*inits, *zeros), (*carried, *sums))
        for value, result in zip(outer, results[len(inits) :]):
            self.add(value, result)
        for init, g in zip(op.init, cotangents):
            if g is not None:
                self.add(init, g)

    def sums(self, outer: Sequence[Value], totals: Sequence[Value]) -> list[Value]:
        """What is carried on: each total with the cotangent of this turn added."""
        found = [self.take(value) for value in outer]
        return [
            total if g is None else self.writer.apply("add", total, g)
            for total, g in zip(totals, found)
        ]

    def _enter(
        self, op: Loop, carried: Sequence[Value], *, is_back: bool = False
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
        values = {**self._values, **dict(zip(stands, args))}
        inside = (*self.enclosing, *zip(positions, op.blocks))
        return Tape(self.forward, values, inside), args

    def _leave(
        self,
        op: Loop,
        tape: Tape,
        args: tuple[Value, ...],
        inits: tuple[Value, ...],
        yielded: Sequence[Value],
    ) -> tuple[Value, ...]:
        tape.writer.effect(Yield, values=tuple(yielded))
        results = tuple(value.like() for value in args[op.rank :])
        bounds = {
            name: tuple(map(self.value, getattr(op, name))) for name in ("begins", "ends", "steps")
        }
        self.writer.insert(
            replace(op, **bounds, init=inits, body=tape.close(args), results=results)
        )
        return results

    def _reverse_recurrence(
        self,
        op: Loop,
        cotangents: Sequence[Value | None],
        kept: Sequence[int],
        outer: Sequence[Value],
    ) -> None:
        found = self.forward.recurrences.get(op.body.args[0])
        if found is None or found.problem:
            name = op.carried[kept[0]].name
            subject = f"`{name}` is" if name else "values are"
            reason = f"{subject} carried from turn to turn"
            raise self.refuse(op, f"{reason}, and {found.problem}" if found else reason)
        own = [op.carried[place] for place in kept]
        inits = [self._or_zeros(cotangents[place], op.carried[place]) for place in kept]
        inits += [self.writer.full(cotangent_type(value), 0.0) for value in outer]
        tape, args = self._enter(op, (*own, *outer), is_back=True)
        self.forward.reversed_loops.append(args[0])
        for state in found.states:
            carried = op.carried[state.place]
            loaded = load_state(tape.writer, state, carried.tile, tape.enclosing)
            loaded.name = carried.name
            tape.stand_for(carried, loaded)
        tape.recompute(op.body.ops)
        for place, yielded in enumerate(op.body.yielded):
            g = args[op.rank + kept.index(place)] if place in kept else cotangents[place]
            if g is not None:
                tape.add(yielded, g)
        tape.run(op.body.ops)
        after = [tape._or_zeros(tape.take(value), value) for value in own]
        sums = tape.sums(outer, args[op.rank + len(own) :])
        results = self._leave(op, tape, args, tuple(inits), (*after, *sums))
        for value, result in zip((*(op.init[place] for place in kept), *outer), results):
            self.add(value, result)
        for place, g in enumerate(cotangents):
            if g is not None and place not in kept:
                self.add(op.init[place], g)

    def _or_zeros(self, cotangent: Value | None, forward: Value) -> Value:
        if cotangent is not None:
            return cotangent
        return self.writer.full(cotangent_type(forward), 0.0)

    def stand_for(self, forward: Value, value: Value) -> None:
        """Use another value where the adjoint asks for a forward one."""
        self._values[forward] = value


def _has_active_store(op: Operation, tape: Tape) -> bool:
    for region in op.regions():
        for inner in region.ops:
            if isinstance(inner, (Store, Atomic)) and tape.is_active(inner.value):
                return True
            if _has_active_store(inner, tape):
                return True
    return False
