"""Where adjoints are written: one tape for each region, with the cotangents found so far."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import tilesmith.exc as errors
from tilesmith.diagnostics.location import UNKNOWN, SourceLocation
from tilesmith.gradients.copies import Copies
from tilesmith.gradients.overwriting import Overwriting
from tilesmith.gradients.recurrences import Recurrence
from tilesmith.gradients.saved import SavedValue
from tilesmith.gradients.terms import cotangent_type
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region, Trait
from tilesmith.ir.ops.control_flow import If, Loop, While
from tilesmith.ir.ops.elementwise import Cast
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.traversal import walk
from tilesmith.ir.types import TileType, Value
from tilesmith.passes.simplify import is_detached


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
    saved: Mapping[Value, SavedValue] = field(default_factory=dict[Value, SavedValue])
    """What is loaded, not computed again, by the value that it comes after."""
    settled: Mapping[Value, Value] = field(default_factory=dict[Value, Value])
    """Results of settled loops, and those of the loops that they stand for."""
    overwriting: Overwriting = field(default_factory=Overwriting)
    """Stores that later ones may overwrite."""
    reversed_loops: list[Value] = field(default_factory=list[Value])
    """First arguments of the loops that run from their last turn to the first."""
    reverse: Callable[[Tape, Operation], None] = field(kw_only=True)
    """Writes the adjoint of an op."""


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

    def is_saved(self, forward: Value) -> bool:
        """Whether it is loaded instead of computed again."""
        return forward in self.forward.saved

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

    def recompute(self, ops: Iterable[Operation], *, is_fresh: bool = True) -> None:
        """Write forward ops again, with values of their own."""
        states = self.forward.states
        copies = Copies(self._values, is_fresh=is_fresh)
        inner = [op for op in ops if not (isinstance(op, Store) and op.tensor in states)]
        for op in without_effects(inner, states):
            if Trait.TERMINATOR not in op.traits:
                self.writer.insert(copies.clone(op))
            for result in op.results:
                if result in self.forward.settled:
                    self.stand_for(result, self.value(self.forward.settled[result]))
            for one in (self.forward.saved[v] for v in op.results if v in self.forward.saved):
                self._load(one, copies)

    def _load(self, saved: SavedValue, copies: Copies) -> None:
        """Put what the forward kernel stored in the place of what would be computed again."""
        for op in saved.ops:
            self.writer.insert(copies.clone(op))
        for value, ops in saved.stand_ins:
            found = saved.loaded
            for op in ops:
                self.writer.insert(copies.clone(op))
                found = op.result
            self.stand_for(value, copies.of(found))

    def run(self, ops: Sequence[Operation]) -> None:
        """Write the adjoints of ops, the last one's first."""
        for op in reversed(ops):
            self._loc = op.loc
            self.forward.reverse(self, op)

    def sums(self, outer: Sequence[Value], totals: Sequence[Value]) -> list[Value]:
        """What is carried on: each total with the cotangent of this turn added."""
        found = [self.take(value) for value in outer]
        return [
            total if g is None else self.writer.apply("add", total, g)
            for total, g in zip(totals, found)
        ]

    def or_zeros(self, cotangent: Value | None, forward: Value) -> Value:
        """A cotangent, or zeros where there is none."""
        if cotangent is not None:
            return cotangent
        return self.writer.full(cotangent_type(forward), 0.0)

    def stand_for(self, forward: Value, value: Value) -> None:
        """Use another value where the adjoint asks for a forward one."""
        self._values[forward] = value

    def inner(self, values: Mapping[Value, Value], loops: Sequence[tuple[Value, str]] = ()) -> Tape:
        """A tape for a region inside, where some forward values have others in their place."""
        inside = (*self.enclosing, *loops)
        return Tape(self.forward, {**self._values, **values}, inside)


@dataclass
class Activity:
    """Grows to a fixed point; ``values`` are the ones with a gradient."""

    tensors: Collection[Value]
    constants: Collection[Value] = ()
    """Values that results do not depend on, though they are computed from the tensors."""
    values: set[Value] = field(default_factory=set[Value])
    takes_all: bool = False
    """Whether integers count, which have no gradient but may be the bits of something."""

    def visit(self, region: Region) -> None:
        """Follow values through a region in program order."""
        for op in region.ops:
            self._visit_op(op)

    def _visit_op(self, op: Operation) -> None:
        if isinstance(op, Loop):
            self._visit_loop(op)
        elif isinstance(op, While):
            self._follow(op.init, op.body.args)
            self._settle(op.body, op.body.args)
            self._follow((*op.init, *op.body.yielded), op.results * 2)
        elif isinstance(op, If):
            for branch in (op.then, op.otherwise):
                self.visit(branch)
                self._follow(branch.yielded, op.results)
        elif isinstance(op, Load):
            if op.tensor in self.tensors:
                self._mark(op.result)
        else:
            if any(value in self.values for value in op.operand_values()):
                for result in op.results:
                    self._mark(result)
            for region in op.regions():
                self.visit(region)

    def _visit_loop(self, op: Loop) -> None:
        self._follow(op.init, op.carried)
        self._settle(op.body, op.carried)
        self._follow((*op.init, *op.body.yielded), op.results * 2)

    def _settle(self, body: Region, carried: tuple[Value, ...]) -> None:
        before = -1
        while before != len(self.values):
            before = len(self.values)
            self.visit(body)
            self._follow(body.yielded, carried)

    def _follow(self, sources: tuple[Value, ...], targets: tuple[Value, ...]) -> None:
        for source, target in zip(sources, targets):
            if source in self.values:
                self._mark(target)

    def _mark(self, value: Value) -> None:
        is_tile = isinstance(value.type, TileType)
        if (
            is_tile
            and (self.takes_all or value.tile.dtype.is_float)
            and value not in self.constants
        ):
            self.values.add(value)


def find_active(
    function: Function, tensors: Collection[Value], constants: Collection[Value] = ()
) -> set[Value]:
    """Float tiles that depend on what is loaded from ``tensors``, other than ``constants``."""
    activity = Activity(tensors, constants)
    activity.visit(function.body)
    return activity.values


def find_reinterpreted(function: Function, tensors: Collection[Value]) -> Cast | None:
    """Floats that are made of the bits of integers, which are made of what is loaded."""
    activity = Activity(tensors, takes_all=True)
    activity.visit(function.body)
    casts = (
        op
        for op in walk(function.body)
        if isinstance(op, Cast) and op.bitcast and not is_detached(op)
    )
    found = (op for op in casts if op.dtype.is_float and op.x in activity.values)
    return next(found, None)
