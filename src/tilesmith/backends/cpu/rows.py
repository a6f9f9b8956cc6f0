"""The innermost loop along the lanes: whole vectors first, what is left in one masked step.

Reductions have several independent accumulators, so that additions need not wait for each other.
"""

from __future__ import annotations

from tilesmith.backends.cpu.lanes import Strided
from tilesmith.backends.cpu.memory_access import Lanes
from tilesmith.backends.cpu.nest_frame import NestFrame, flatten, is_known_multiple, unflatten
from tilesmith.backends.cpu.reductions import State
from tilesmith.backends.cpu.registers import INDEX, Register, index
from tilesmith.ir.ops.memory import Store

_CACHE_LINE = 64


def emit_row(frame: NestFrame) -> None:
    """One row of a nest."""
    row = _Row(frame)
    aligned = row.is_aligned() if frame.may_stream else None
    if aligned is None:
        row.emit()
        return

    def stream() -> None:
        frame.writer.is_streaming = True
        with frame.elements.scope():
            row.emit()
        frame.writer.is_streaming = False

    def plain() -> None:
        with frame.elements.scope():
            row.emit()

    frame.elements.b.if_else(aligned, stream, plain)


class _Row:
    def __init__(self, frame: NestFrame) -> None:
        self._frame = frame
        self._e = frame.elements
        self._b = frame.elements.b
        self._axis = frame.nest.layout.vector_axis
        self._width = frame.width

    def is_aligned(self) -> Register | None:
        """Whether all stores begin at a cache line; None if some do not go element by element."""
        found: Register | None = None
        with self._e.scope():
            self._e.loops[self._axis] = Strided(index(0), index(1))
            for root in self._frame.nest.roots:
                if root.is_keep or not isinstance(root.op, Store):
                    continue
                memory, position = self._e.address(root.op, root.place[1])
                if not isinstance(position, Strided) or not memory.has_neighbours(position):
                    return None
                pointer = self._b.offset(memory.pointer, position.base, memory.element)
                number = self._b.convert("ptrtoint", pointer, INDEX)
                rest = self._b.binary("and", number, index(_CACHE_LINE - 1))
                is_line = self._b.compare("eq", rest, index(0))
                found = is_line if found is None else self._b.binary("and", found, is_line)
            del self._e.loops[self._axis]
        return found

    def emit(self) -> None:
        """The loops and the results of reductions."""
        length = self._frame.lengths[self._axis]
        states = self._frame.start()
        done = index(0)
        if self._frame.unroll > 1:
            end = self._b.round_down(length, self._frame.unroll * self._width)
            if end.constant != 0:
                states = self._unrolled(end, states)
                done = end
        end = self._b.round_down(length, self._width)
        if end.text != done.text:
            states = self._stepwise(done, end, states)
        if not is_known_multiple(length, end):
            states = self._tail(end, length, states)
        self._frame.finish(states, across=True)

    def _unrolled(self, end: Register, states: list[State]) -> list[State]:
        width, count, each = self._width, self._frame.unroll, len(states)

        def body(position: Register, flat: tuple[Register, ...]) -> list[Register]:
            copies = unflatten(flat, states * count)
            new: list[State] = []
            for number in range(count):
                start = self._b.add(position, index(number * width))
                part = copies[number * each : (number + 1) * each]
                new.extend(self._step(start, part, None))
            return flatten(new)

        found = self._b.loop(index(0), end, index(width * count), body, flatten(states * count))
        copies = unflatten(found, states * count)
        merged = copies[:each]
        for number in range(1, count):
            merged = self._frame.merge(merged, copies[number * each : (number + 1) * each])
        return merged

    def _stepwise(self, begin: Register, end: Register, states: list[State]) -> list[State]:
        def body(position: Register, flat: tuple[Register, ...]) -> list[Register]:
            return flatten(self._step(position, unflatten(flat, states), None))

        found = self._b.loop(begin, end, index(self._width), body, flatten(states))
        return unflatten(found, states)

    def _tail(self, begin: Register, length: Register, states: list[State]) -> list[State]:
        """The last, shorter vector."""
        rest = self._b.subtract(length, begin)

        def masked() -> list[Register]:
            mask = self._b.first_lanes(rest, self._width)
            return flatten(self._step(begin, states, mask))

        if rest.constant is not None:
            return unflatten(tuple(masked()), states)
        is_open = self._b.compare("sgt", rest, index(0))
        found = self._b.if_else(is_open, masked, lambda: flatten(states))
        return unflatten(found, states)

    def _step(self, position: Register, states: list[State], mask: Register | None) -> list[State]:
        """One vector."""
        self._e.loops[self._axis] = Strided(position, index(1))
        self._e.lanes = Lanes(self._width, mask)
        with self._e.scope():
            values = self._frame.values()
            self._frame.writer.write_all(values)
            found = self._take(values, states, mask)
        self._e.lanes = Lanes(self._width)
        del self._e.loops[self._axis]
        return found

    def _take(
        self, values: list[Register], states: list[State], mask: Register | None
    ) -> list[State]:
        needs_position = any(item.op.reduction.is_arg for item in self._frame.sums)
        position = self._frame.position(self._axis) if needs_position else index(0)
        return self._frame.take(values, states, position, mask)
