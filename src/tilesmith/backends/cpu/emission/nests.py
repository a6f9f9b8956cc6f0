"""Emits nests: loops over a space, with lanes along one axis, computing all writes in one go.

The innermost loop goes along the lanes, whole vectors first, what is left in one masked step; or
down columns, with lanes across them. Reductions have several independent accumulators, so that
additions need not wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from tilesmith.backends.cpu.emission.context import Context
from tilesmith.backends.cpu.emission.elements import (
    Results,
    address_of,
    emit_result,
    emit_writes,
    evaluate,
    register,
)
from tilesmith.backends.cpu.emission.shared_lanes.groups import share_lanes
from tilesmith.backends.cpu.llvm.builder import Body, Builder
from tilesmith.backends.cpu.llvm.lanes import Lanes, Strided
from tilesmith.backends.cpu.llvm.registers import INDEX, Register, index
from tilesmith.backends.cpu.loop_ir import statements as loop_ir
from tilesmith.backends.cpu.loop_ir.elements import LEAVES, Element, ReadVariable, Variable
from tilesmith.backends.cpu.positions.accumulation import Accumulation, State, accumulations_of


@dataclass(frozen=True)
class _Frame:
    """One nest being emitted. States are lists with one accumulator per reduction.

    ``sums`` are the reductions, by their place among the writes; ``found`` are extremes that the
    reduction to their position finds, with the number of that one.
    """

    nest: loop_ir.Nest
    lengths: list[Register]
    sums: Mapping[int, Accumulation]
    found: Mapping[int, tuple[int, Accumulation]]

    def start(self) -> list[State]:
        return [item.start(self.nest.lanes) for item in self.sums.values()]

    def step(
        self,
        context: Context,
        states: list[State],
        axis: int | None,
        mask: Register | None = None,
        *,
        is_streaming: bool = False,
    ) -> list[State]:
        """All writes; gives the accumulators with one more element per lane.

        ``axis`` is the loop along which some of them note positions.
        """
        builder, writes = context.builder, self.nest.writes
        values = [register(context, write.value) for write in writes]
        emit_writes(context, writes, values, is_streaming=is_streaming)
        lane = None if axis is None else context.loops[axis]
        position = lane.base if isinstance(lane, Strided) else index(0)
        return [
            item.take(builder, state, values[number], position, mask)
            for (number, item), state in zip(self.sums.items(), states)
        ]

    def finish(self, context: Context, states: list[State], *, across: bool) -> Results:
        """Write the results; ``across`` combines the lanes first."""
        builder, scalars = context.builder, dict[Variable, Register]()
        last = {
            number: item.across(builder, state) if across else state
            for (number, item), state in zip(self.sums.items(), states)
        }
        results = {number: item.finish(builder, last[number]) for number, item in self.sums.items()}
        for number, (other, item) in self.found.items():
            results[number] = item.finish(builder, last[other][:1])
        for number, result in results.items():
            scalars.update(emit_result(context, self.nest.writes[number], result))
        return scalars

    def whole_vectors(
        self, builder: Builder, length: Register
    ) -> Iterator[tuple[Register, Register, int]]:
        """Parts of a line: begin, end and how many vectors at a time. Some may be left behind."""
        done = index(0)
        for count in dict.fromkeys((self.nest.unroll, 1)):
            end = builder.round_down(length, count * self.nest.lanes)
            if end.text != done.text:
                yield done, end, count
                done = end


def _flatten(states: list[State]) -> list[Register]:
    return [register for state in states for register in state]


def _unflatten(flat: tuple[Register, ...], like: list[State]) -> list[State]:
    """Registers grouped as the accumulators that they came from."""
    registers = iter(flat)
    return [[next(registers) for _ in state] for state in like]


def is_known_multiple(length: Register, end: Register) -> bool:
    """Whether no vector is left over behind ``end``."""
    return length.constant is not None and length.constant == end.constant


_CACHE_LINE = 64


def _emit_row(frame: _Frame, context: Context) -> Results:
    """One row of a nest."""
    aligned = _is_aligned(frame, context) if frame.nest.may_stream else None
    if aligned is None:
        return _Row(frame, context).emit()

    def emit(is_streaming: bool) -> None:
        _Row(frame, context.scope(), is_streaming).emit()

    # Nests that stream have no results.
    context.builder.if_else(aligned, lambda: emit(True), lambda: emit(False))
    return {}


def _is_aligned(frame: _Frame, context: Context) -> Register | None:
    """Whether all stores begin at a cache line; None if some do not go element by element."""
    builder, found = context.builder, None
    inside = context.at(frame.nest.layout.vector_axis, Strided(index(0), index(1)))
    for write in frame.nest.writes:
        if not isinstance(write, loop_ir.StoreElement):
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
    frame: _Frame
    context: Context
    is_streaming: bool = False

    def emit(self) -> Results:
        """The loops and the results of reductions."""
        length, states = self.frame.lengths[self._axis], self.frame.start()
        done = index(0)
        for begin, end, count in self.frame.whole_vectors(self.context.builder, length):
            states = self._loop(begin, end, count, states)
            done = end
        if not is_known_multiple(length, done):
            states = self._tail(done, length, states)
        return self.frame.finish(self.context, states, across=True)

    @property
    def _axis(self) -> int:
        return self.frame.nest.layout.vector_axis

    def _loop(self, begin: Register, end: Register, count: int, states: list[State]) -> list[State]:
        """Steps of several vectors, each with accumulators of its own, which are merged then."""
        width, each, builder = self.frame.nest.lanes, len(states), self.context.builder

        def body(position: Register, flat: tuple[Register, ...]) -> list[Register]:
            copies = _unflatten(flat, states * count)
            new: list[State] = []
            for number in range(count):
                start = builder.add(position, index(number * width))
                part = copies[number * each : (number + 1) * each]
                new.extend(self._step(start, part, None))
            return _flatten(new)

        found = builder.loop(begin, end, index(width * count), body, _flatten(states * count))
        copies = _unflatten(found, states * count)
        merged = copies[:each]
        for number in range(1, count):
            other = copies[number * each : (number + 1) * each]
            rows = zip(self.frame.sums.values(), merged, other)
            merged = [item.merge(builder, x, y) for item, x, y in rows]
        return merged

    def _tail(self, begin: Register, length: Register, states: list[State]) -> list[State]:
        builder = self.context.builder
        rest = builder.subtract(length, begin)

        def masked() -> list[Register]:
            mask = builder.first_lanes(rest, self.frame.nest.lanes)
            return _flatten(self._step(begin, states, mask))

        if rest.constant is not None:
            return _unflatten(tuple(masked()), states)
        is_open = builder.compare("sgt", rest, index(0))
        found = builder.if_else(is_open, masked, lambda: _flatten(states))
        return _unflatten(found, states)

    def _step(self, position: Register, states: list[State], mask: Register | None) -> list[State]:
        lanes = Lanes(self.frame.nest.lanes, mask)
        inside = self.context.at(self._axis, Strided(position, index(1)), lanes)
        has_positions = any(item.kind.is_arg for item in self.frame.sums.values())
        along = self._axis if has_positions else None
        return self.frame.step(inside, states, along, mask, is_streaming=self.is_streaming)


def _emit_columns(frame: _Frame, context: Context) -> Results:
    """All columns, several vectors of them at a time; their results are tiles."""
    length, done = frame.lengths[frame.nest.layout.vector_axis], index(0)
    columns = _Columns(frame, context)
    for begin, end, count in frame.whole_vectors(context.builder, length):
        columns.over(begin, end, count)
        done = end
    if not is_known_multiple(length, done):
        columns.tail(done, context.builder.subtract(length, done))
    return {}


@dataclass(frozen=True)
class _Columns:
    frame: _Frame
    context: Context

    def over(self, begin: Register, end: Register, count: int) -> None:
        """Columns from ``begin`` to ``end``, ``count`` vectors at a time."""
        step = index(self.frame.nest.lanes * count)
        body: Body = lambda position, _: self._reduce(position, count, None)  # noqa: E731
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
            old, new = _unflatten(flat, states), list[State]()
            for number, first in enumerate(starts):
                part = old[number * each : (number + 1) * each]
                new.extend(frame.step(self._across(inside, first, mask), part, down))
            return _flatten(new)

        found = builder.loop(index(0), frame.lengths[down], index(1), body, _flatten(states))
        final = _unflatten(found, states)
        for number, first in enumerate(starts):
            part = final[number * each : (number + 1) * each]
            frame.finish(self._across(self.context, first, mask), part, across=False)

    def _across(self, context: Context, start: Register, mask: Register | None) -> Context:
        lanes = Lanes(self.frame.nest.lanes, mask)
        axis = self.frame.nest.layout.vector_axis
        return context.at(axis, Strided(start, index(1)), lanes)


_Body = Callable[[_Frame, Context], Results]


def emit_nest(context: Context, nest: loop_ir.Nest) -> Results:
    """All loops of a nest; gives the scalars that it reduces to."""
    nest, shared = share_lanes(nest, context.function.multiples)
    inside, layout = replace(context.nest(nest.lanes), shared=shared), nest.layout
    lengths = [inside.length(dim) for dim in layout.space]
    frame = _Frame(nest, lengths, *accumulations_of(nest, lengths))
    outer = [n for n in layout.order if n not in (layout.vector_axis, layout.reduced_axis)]
    if layout.vector_axis < 0:
        return _over(frame, inside, outer, _emit_element)
    is_columns = layout.form is loop_ir.Form.COLUMNS
    return _over(frame, inside, outer, _emit_columns if is_columns else _emit_row)


def _over(frame: _Frame, context: Context, axes: list[int], body: _Body) -> Results:
    """Nested loops over whole axes; what they fix is computed before ``body``."""
    kept = frame.nest.kept
    for element in frame.nest.operands:
        _hoist_element(context, element, kept)
    if not axes:
        return body(frame, context)

    def step(position: Register) -> None:
        _over(frame, context.at(axes[0], Strided(position, index(0))), axes[1:], body)

    context.builder.count_up(frame.lengths[axes[0]], step)
    return {}


def _emit_element(frame: _Frame, context: Context) -> Results:
    """Without lanes: one element of every write, and reductions along axes of one element."""
    inside = context.scope()
    return frame.finish(inside, frame.step(inside, frame.start(), None), across=True)


def _hoist_element(context: Context, element: Element, kept: set[Element]) -> None:
    """Compute now what the loops still to be opened do not change."""
    if isinstance(element, ReadVariable):
        return
    if element.axes <= context.loops.keys() and element not in kept:
        evaluate(context, element)
    elif not isinstance(element, LEAVES):
        for operand in element.operands:
            _hoist_element(context, operand, kept)
