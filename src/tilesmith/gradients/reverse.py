"""The reverse walk: forward ops again, then their adjoints from the last to the first.

A loop becomes a loop over the same tiles. Where carried values are only added to, their cotangents
are the same in every turn, and the turns may come in any order; other recurrences run backwards
over states that the forward loop saves (``recurrences.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import tilesmith.exc as errors
from tilesmith.diagnostics.location import UNKNOWN, SourceLocation
from tilesmith.gradients.terms import cotangent_type
from tilesmith.gradients.tile_derivatives import TILE_DERIVATIVES
from tilesmith.ir.operation import Operation, Region, Trait
from tilesmith.ir.ops.control_flow import If, Loop, While, Yield
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Atomic, AtomicKind, Load, Store
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.traversal import clone_ops, count_uses, values_defined_in, values_used_by
from tilesmith.ir.types import Value


class Memory(Protocol):
    """What stands for the tensors of the forward function in the backward one."""

    def cotangent_of(self, tensor: Value) -> Value | None:
        """The tensor with the cotangents of one that the forward function writes, if given."""
        ...

    def write(self, tape: Tape, op: Load, cotangent: Value) -> None:
        """Add a cotangent to the gradient of what was loaded."""
        ...

    def save_states(self, tape: Tape, op: Loop) -> Sequence[Value] | None:
        """Keep what a loop carries, turn by turn; None where that cannot be done."""
        ...


@dataclass(frozen=True)
class Forward:
    """The function that is differentiated."""

    name: str
    active: Collection[Value]
    definitions: Mapping[Value, Operation]
    uses: Mapping[Value, int]
    memory: Memory


def without_effects(ops: Iterable[Operation]) -> list[Operation]:
    """The ops that compute values, also inside loops and branches."""
    kept: list[Operation] = []
    for op in ops:
        if op.traits & (Trait.WRITES | Trait.EFFECT):
            continue
        regions = tuple(region.with_ops(without_effects(region.ops)) for region in op.regions())
        kept.append(op.with_regions(regions))
    return kept


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
        return errors.AutodiffNotSupported(
            function=self.forward.name, reason=reason, loc=op.loc
        )

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
        for op in clone_ops(without_effects(ops), self._values):
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
        if not self.is_active(op.value):
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
        loaded.name = grads.name if not op.value.name else f"grad_{op.value.name}"
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
        live = _live_carries(op, self.is_active, cotangents)
        kept = [place for place in live if not _is_only_added_to(op, place)]
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

    def _enter(self, op: Loop, carried: Sequence[Value]) -> tuple[Tape, tuple[Value, ...]]:
        """A tape for the turns of a loop; carried values after its own are cotangents."""
        own = len(op.carried)
        kinds = [v.type if i < own else cotangent_type(v) for i, v in enumerate(carried)]
        named = [v.name if i < own else f"grad_{v.name or 'value'}" for i, v in enumerate(carried)]
        fresh = [Value(kind, name, op.loc) for kind, name in zip(kinds, named)]
        positions = [arg.like() for arg in op.body.args[: op.rank]]
        args = (*positions, *fresh)
        values = {**self._values, **dict(zip(op.body.args, args))}
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
        name = op.carried[kept[0]].name
        subject = f"`{name}`" if name else "a value"
        raise self.refuse(op, f"{subject} is carried from turn to turn and not only added to")


def _has_active_store(op: Operation, tape: Tape) -> bool:
    for region in op.regions():
        for inner in region.ops:
            if isinstance(inner, (Store, Atomic)) and tape.is_active(inner.value):
                return True
            if _has_active_store(inner, tape):
                return True
    return False


def _live_carries(
    op: Loop, is_active: Callable[[Value], bool], cotangents: Sequence[Value | None]
) -> list[int]:
    """Carried values with a cotangent: of their results, or of what is stored in the loop."""
    return [place for place, value in enumerate(op.carried) if is_active(value)]


def _is_only_added_to(op: Loop, place: int) -> bool:
    """Whether a turn adds to a carried value and uses it for nothing else."""
    uses = count_uses(op.body)
    value, target = op.carried[place], op.body.yielded[place]
    while value is not target:
        user = _only_user(op.body, value) if uses.get(value) == 1 else None
        following = None if user is None else _sum_with(user, value)
        if following is None:
            return False
        value = following
    # One more use than the yield would see the running sum.
    return uses.get(target, 0) == 1


def _only_user(region: Region, value: Value) -> Operation | None:
    return next((op for op in region.ops if value in op.operand_values()), None)


def _sum_with(op: Operation, value: Value) -> Value | None:
    """The result of an op that only adds something to a value."""
    if isinstance(op, Elementwise) and op.fn in ("add", "sub"):
        return op.result if op.fn == "add" or op.args[0] is value else None
    if isinstance(op, Dot):
        return op.result if op.acc is value and value not in (op.lhs, op.rhs) else None
    if isinstance(op, Loop) and value in op.init:
        place = op.init.index(value)
        return op.results[place] if _is_only_added_to(op, place) else None
    return None
