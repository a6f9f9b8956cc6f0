"""The innermost loops of columns: lanes across them, each reduced from top to bottom."""

from __future__ import annotations

from tilesmith.backends.cpu.lanes import Strided
from tilesmith.backends.cpu.memory_access import Lanes
from tilesmith.backends.cpu.nest_frame import NestFrame, flatten, is_known_multiple, unflatten
from tilesmith.backends.cpu.reductions import State
from tilesmith.backends.cpu.registers import Register, index


def emit_columns(frame: NestFrame) -> None:
    """All columns, several vectors of them at a time."""
    b, width = frame.elements.b, frame.width
    length = frame.lengths[frame.nest.layout.vector_axis]
    columns = _Columns(frame)
    done = index(0)
    if frame.unroll > 1:
        end = b.round_down(length, frame.unroll * width)
        if end.constant != 0:
            columns.over(done, end, frame.unroll)
            done = end
    end = b.round_down(length, width)
    if end.text != done.text:
        columns.over(done, end, 1)
    if is_known_multiple(length, end):
        return
    rest = b.subtract(length, end)

    def tail() -> None:
        columns.reduce(end, 1, b.first_lanes(rest, width))

    b.if_else(b.compare("sgt", rest, index(0)), tail)


class _Columns:
    def __init__(self, frame: NestFrame) -> None:
        self._frame = frame
        self._e = frame.elements
        self._b = frame.elements.b
        self._across = frame.nest.layout.vector_axis
        self._down = frame.nest.layout.reduced_axis

    def over(self, begin: Register, end: Register, count: int) -> None:
        """Columns from ``begin`` to ``end``, ``count`` vectors at a time."""

        def body(position: Register, _: tuple[Register, ...]) -> None:
            self.reduce(position, count, None)

        self._b.loop(begin, end, index(self._frame.width * count), body)

    def reduce(self, start: Register, count: int, mask: Register | None) -> None:
        """``count`` vectors of columns."""
        starts = [self._b.add(start, index(n * self._frame.width)) for n in range(count)]
        states = self._frame.start() * count
        each = len(self._frame.sums)

        def body(position: Register, flat: tuple[Register, ...]) -> list[Register]:
            self._e.loops[self._down] = Strided(position, index(0))
            old, new = unflatten(flat, states), list[State]()
            for number, first in enumerate(starts):
                new.extend(self._step(first, old[number * each : (number + 1) * each], mask))
            del self._e.loops[self._down]
            return flatten(new)

        length = self._frame.lengths[self._down]
        found = self._b.loop(index(0), length, index(1), body, flatten(states))
        final = unflatten(found, states)
        for number, first in enumerate(starts):
            self._e.loops[self._across] = Strided(first, index(1))
            self._e.lanes = Lanes(self._frame.width, mask)
            self._frame.finish(final[number * each : (number + 1) * each], across=False)
        del self._e.loops[self._across]
        self._e.lanes = Lanes(self._frame.width)

    def _step(self, start: Register, states: list[State], mask: Register | None) -> list[State]:
        self._e.loops[self._across] = Strided(start, index(1))
        self._e.lanes = Lanes(self._frame.width, mask)
        with self._e.scope():
            values = self._frame.values()
            position = self._frame.position(self._down)
            found = self._frame.take(values, states, position, None)
        self._e.lanes = Lanes(self._frame.width)
        del self._e.loops[self._across]
        return found
