"""Emits nests: loops over a space, with lanes along one axis, computing all writes in one go.

The innermost loop goes along the lanes, whole vectors first, what is left in one masked step; or
down columns, with lanes across them. Reductions have several independent accumulators, so that
additions need not wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tilesmith.backends.cpu.emission.context import Context
from tilesmith.backends.cpu.emission.elements import address_of, evaluate, register
from tilesmith.backends.cpu.emission.writes import emit_result, emit_writes
from tilesmith.backends.cpu.llvm.lanes import Lanes, Strided
from tilesmith.backends.cpu.llvm.registers import INDEX, Register, index, lane_numbers
from tilesmith.backends.cpu.loop_ir.elements import LEAVES, Element, ReadVariable, Variable
from tilesmith.backends.cpu.loop_ir.nests import (
    Form,
    KeepElement,
    Nest,
    ReduceElement,
    StoreElement,
)
from tilesmith.backends.cpu.math.reductions import Accumulation, State

Results = Mapping[Variable, Register]
"""Scalars that a nest reduces to."""


@dataclass(frozen=True)
class Sum:
    """A reduction of a nest; ``number`` is its place among the writes."""

    number: int
    write: ReduceElement
    accumulation: Accumulation


@dataclass(frozen=True)
class NestFrame:
    """One nest being emitted. States are lists with one accumulator per reduction."""

    nest: Nest
    lengths: list[Register]
    sums: list[Sum]

    @staticmethod
    def of(context: Context, nest: Nest) -> NestFrame:
        """The frame of a nest, at a place where it is about to begin."""
        sums = [
            Sum(number, write, Accumulation(write.kind, write.value.dtype, write.dtype))
            for number, write in enumerate(nest.writes)
            if isinstance(write, ReduceElement)
        ]
        return NestFrame(nest, [context.length(dim) for dim in nest.layout.space], sums)

    def values(self, context: Context) -> list[Register]:
        """This step's element of every write."""
        return [register(context, write.value) for write in self.nest.writes]

    def start(self) -> list[State]:
        """Nothing taken in yet."""
        return [item.accumulation.start(self.nest.lanes) for item in self.sums]

    def take(
        self,
        context: Context,
        values: list[Register],
        states: list[State],
        position: Register,
        mask: Register | None = None,
    ) -> list[State]:
        """The accumulators with one more element per lane."""
        return [
            item.accumulation.take(context.builder, state, values[item.number], position, mask)
            for item, state in zip(self.sums, states)
        ]

    def merge(self, context: Context, ours: list[State], theirs: list[State]) -> list[State]:
        """Two sets of accumulators as one."""
        return [
            item.accumulation.merge(context.builder, x, y)
            for item, x, y in zip(self.sums, ours, theirs)
        ]

    def finish(self, context: Context, states: list[State], *, across: bool) -> Results:
        """Write the results; ``across`` combines the lanes first."""
        builder, scalars = context.builder, dict[Variable, Register]()
        for item, state in zip(self.sums, states):
            total = item.accumulation.across(builder, state) if across else state
            result = item.accumulation.finish(builder, total)
            scalars.update(emit_result(context, item.write, result))
        return scalars

    def position(self, context: Context, axis: int) -> Register:
        """Where the lanes are along a loop, as one index per lane."""
        builder, lane, width = context.builder, context.loops[axis], self.nest.lanes
        assert isinstance(lane, Strided)
        first = builder.splat(lane.base, width)
        if lane.step.constant == 0:
            return first
        return builder.binary("add", first, lane_numbers(INDEX, width))


def flatten(states: list[State]) -> list[Register]:
    """All registers of several accumulators, in order."""
    return [register for state in states for register in state]


def unflatten(flat: tuple[Register, ...], like: list[State]) -> list[State]:
    """Registers grouped as the accumulators that they came from."""
    found: list[State] = []
    start = 0
    for state in like:
        found.append(list(flat[start : start + len(state)]))
        start += len(state)
    return found


def is_known_multiple(length: Register, end: Register) -> bool:
    """Whether no vector is left over behind ``end``."""
    return length.constant is not None and length.constant == end.constant


_CACHE_LINE = 64


def _emit_row(frame: NestFrame, context: Context) -> Results:
    """One row of a nest."""
    aligned = _is_aligned(frame, context) if frame.nest.may_stream else None
    if aligned is None:
        return _Row(frame, context).emit()

    def emit(is_streaming: bool) -> None:
        _Row(frame, context.scope(), is_streaming).emit()

    # Nests that stream have no results.
    context.builder.if_else(aligned, lambda: emit(True), lambda: emit(False))
    return {}


def _is_aligned(frame: NestFrame, context: Context) -> Register | None:
    """Whether all stores begin at a cache line; None if some do not go element by element."""
    builder, found = context.builder, None
    inside = context.at(frame.nest.layout.vector_axis, Strided(index(0), index(1)))
    for write in frame.nest.writes:
        if not isinstance(write, StoreElement):
            continue
        memory, position = address_of(inside, write.access)
        if not isinstance(position, Strided) or not memory.has_neighbours(position):
            return None
        pointer = builder.offset(memory.pointer, position.base, memory.element)
        number = builder.convert("ptrtoint", pointer, INDEX)
        rest = builder.binary("and", number, index(_CACHE_LINE - 1))
        is_line = builder.compare("eq", rest, index(0))
        found = is_line if found is None else builder.binary("and", found, is_line)
    return found


@dataclass(frozen=True)
class _Row:
    frame: NestFrame
    context: Context
    is_streaming: bool = False

    @property
    def _width(self) -> int:
        return self.frame.nest.lanes

    @property
    def _axis(self) -> int:
        return self.frame.nest.layout.vector_axis

    def emit(self) -> Results:
        """The loops and the results of reductions."""
        builder, unroll = self.context.builder, self.frame.nest.unroll
        length = self.frame.lengths[self._axis]
        states = self.frame.start()
        done = index(0)
        if unroll > 1:
            end = builder.round_down(length, unroll * self._width)
            if end.constant != 0:
                states = self._unrolled(end, states)
                done = end
        end = builder.round_down(length, self._width)
        if end.text != done.text:
            states = self._stepwise(done, end, states)
        if not is_known_multiple(length, end):
            states = self._tail(end, length, states)
        return self.frame.finish(self.context, states, across=True)

    def _unrolled(self, end: Register, states: list[State]) -> list[State]:
        width, count, each = self._width, self.frame.nest.unroll, len(states)
        builder = self.context.builder

        def body(position: Register, flat: tuple[Register, ...]) -> list[Register]:
            copies = unflatten(flat, states * count)
            new: list[State] = []
            for number in range(count):
                start = builder.add(position, index(number * width))
                part = copies[number * each : (number + 1) * each]
                new.extend(self._step(start, part, None))
            return flatten(new)

        found = builder.loop(index(0), end, index(width * count), body, flatten(states * count))
        copies = unflatten(found, states * count)
        merged = copies[:each]
        for number in range(1, count):
            other = copies[number * each : (number + 1) * each]
            merged = self.frame.merge(self.context, merged, other)
        return merged

    def _stepwise(self, begin: Register, end: Register, states: list[State]) -> list[State]:
        def body(position: Register, flat: tuple[Register, ...]) -> list[Register]:
            return flatten(self._step(position, unflatten(flat, states), None))

        step = index(self._width)
        found = self.context.builder.loop(begin, end, step, body, flatten(states))
        return unflatten(found, states)

    def _tail(self, begin: Register, length: Register, states: list[State]) -> list[State]:
        builder = self.context.builder
        rest = builder.subtract(length, begin)

        def masked() -> list[Register]:
            mask = builder.first_lanes(rest, self._width)
            return flatten(self._step(begin, states, mask))

        if rest.constant is not None:
            return unflatten(tuple(masked()), states)
        is_open = builder.compare("sgt", rest, index(0))
        found = builder.if_else(is_open, masked, lambda: flatten(states))
        return unflatten(found, states)

    def _step(self, position: Register, states: list[State], mask: Register | None) -> list[State]:
        lanes = Lanes(self._width, mask)
        inside = self.context.at(self._axis, Strided(position, index(1)), lanes)
        values = self.frame.values(inside)
        emit_writes(inside, self.frame.nest.writes, values, is_streaming=self.is_streaming)
        needs_position = any(item.write.kind.is_arg for item in self.frame.sums)
        at = self.frame.position(inside, self._axis) if needs_position else index(0)
        return self.frame.take(inside, values, states, at, mask)


def _emit_columns(frame: NestFrame, context: Context) -> Results:
    """All columns, several vectors of them at a time; their results are tiles."""
    builder, width, unroll = context.builder, frame.nest.lanes, frame.nest.unroll
    length = frame.lengths[frame.nest.layout.vector_axis]
    columns = _Columns(frame, context)
    done = index(0)
    if unroll > 1:
        end = builder.round_down(length, unroll * width)
        if end.constant != 0:
            columns.over(done, end, unroll)
            done = end
    end = builder.round_down(length, width)
    if end.text != done.text:
        columns.over(done, end, 1)
    if not is_known_multiple(length, end):
        columns.tail(end, builder.subtract(length, end))
    return {}


@dataclass(frozen=True)
class _Columns:
    frame: NestFrame
    context: Context

    def over(self, begin: Register, end: Register, count: int) -> None:
        """Columns from ``begin`` to ``end``, ``count`` vectors at a time."""

        def body(position: Register, _: tuple[Register, ...]) -> None:
            self._reduce(position, count, None)

        step = index(self.frame.nest.lanes * count)
        self.context.builder.loop(begin, end, step, body)

    def tail(self, begin: Register, rest: Register) -> None:
        """The last columns, fewer than there are lanes."""
        builder, width = self.context.builder, self.frame.nest.lanes

        def masked() -> None:
            self._reduce(begin, 1, builder.first_lanes(rest, width))

        builder.if_else(builder.compare("sgt", rest, index(0)), masked)

    def _reduce(self, start: Register, count: int, mask: Register | None) -> None:
        frame, builder, down = self.frame, self.context.builder, self.frame.nest.layout.reduced_axis
        starts = [builder.add(start, index(n * frame.nest.lanes)) for n in range(count)]
        states = frame.start() * count
        each = len(frame.sums)

        def body(position: Register, flat: tuple[Register, ...]) -> list[Register]:
            inside = self.context.at(down, Strided(position, index(0)))
            old, new = unflatten(flat, states), list[State]()
            for number, first in enumerate(starts):
                part = old[number * each : (number + 1) * each]
                new.extend(self._step(inside, first, part, mask))
            return flatten(new)

        found = builder.loop(index(0), frame.lengths[down], index(1), body, flatten(states))
        final = unflatten(found, states)
        for number, first in enumerate(starts):
            part = final[number * each : (number + 1) * each]
            frame.finish(self._across(self.context, first, mask), part, across=False)

    def _across(self, context: Context, start: Register, mask: Register | None) -> Context:
        lanes = Lanes(self.frame.nest.lanes, mask)
        axis = self.frame.nest.layout.vector_axis
        return context.at(axis, Strided(start, index(1)), lanes)

    def _step(
        self, context: Context, start: Register, states: list[State], mask: Register | None
    ) -> list[State]:
        inside = self._across(context, start, mask)
        values = self.frame.values(inside)
        position = self.frame.position(inside, self.frame.nest.layout.reduced_axis)
        return self.frame.take(inside, values, states, position)


def emit_nest(context: Context, nest: Nest) -> Results:
    """All loops of a nest; gives the scalars that it reduces to."""
    inside, layout = context.nest(nest.lanes), nest.layout
    frame = NestFrame.of(inside, nest)
    outer = [n for n in layout.order if n not in (layout.vector_axis, layout.reduced_axis)]
    if layout.vector_axis < 0:
        return _over(frame, inside, outer, _emit_element)
    return _over(frame, inside, outer, _emit_columns if layout.form is Form.COLUMNS else _emit_row)


def _over(
    frame: NestFrame,
    context: Context,
    axes: list[int],
    body: Callable[[NestFrame, Context], Results],
) -> Results:
    """Nested loops over whole axes; what they fix is computed before ``body``."""
    writes = frame.nest.writes
    kept = {w.value for w in writes if isinstance(w, KeepElement) and w.is_own}
    for element in (element for write in writes for element in write.operands):
        _hoist_element(context, element, kept)
    if not axes:
        return body(frame, context)

    def step(position: Register) -> None:
        _over(frame, context.at(axes[0], Strided(position, index(0))), axes[1:], body)

    context.builder.count_up(frame.lengths[axes[0]], step)
    return {}


def _emit_element(frame: NestFrame, context: Context) -> Results:
    """Without lanes: one element of every write, and reductions along axes of one element."""
    inside = context.scope()
    values = frame.values(inside)
    emit_writes(inside, frame.nest.writes, values)
    taken = frame.take(inside, values, frame.start(), index(0))
    return frame.finish(inside, taken, across=True)


def _hoist_element(context: Context, element: Element, kept: set[Element]) -> None:
    """Compute now what the loops still to be opened do not change."""
    if isinstance(element, ReadVariable):
        return
    if element.axes <= context.loops.keys() and element not in kept:
        evaluate(context, element)
    elif not isinstance(element, LEAVES):
        for operand in element.operands:
            _hoist_element(context, operand, kept)
