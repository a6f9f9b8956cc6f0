"""Emits reductions and scans with combinations of the user's own: a plain loop along the axis.

Lanes go across lines where the lines do not lie along the last axis.
"""

from __future__ import annotations

from tilesmith.backends.cpu.casts import round_to, to_memory
from tilesmith.backends.cpu.coordinates import own_coords
from tilesmith.backends.cpu.elements import ElementEmitter
from tilesmith.backends.cpu.lanes import Strided
from tilesmith.backends.cpu.memory_access import Lanes, write
from tilesmith.backends.cpu.nest_frame import is_known_multiple
from tilesmith.backends.cpu.registers import (
    Register,
    index,
    number,
    register_element,
)
from tilesmith.dtypes import DType
from tilesmith.ir.ops.reduction import ReduceWith, ScanWith
from tilesmith.ir.values import Value

State = tuple[Register, ...]


def emit_combination(elements: ElementEmitter, op: ReduceWith | ScanWith, width: int) -> None:
    """All lines of the operands, as many at a time as there are lanes across them."""
    shape = op.xs[0].tile.shape
    wide = [dim for dim in shape if not dim.is_one]
    along = sum(not dim.is_one for dim in shape[: op.axis])
    axis = None if shape[op.axis].is_one else along
    outer = [n for n in range(len(wide)) if n != axis]
    has_lanes = bool(outer) and outer[-1] == len(wide) - 1
    with elements.nest((), width if has_lanes else 1):
        lengths = {n: elements.length(dim) for n, dim in enumerate(wide)}
        _Lines(elements, op, lengths, axis).over(outer)


class _Lines:
    """Lines of elements that are combined, at any place of the other axes."""

    def __init__(
        self,
        elements: ElementEmitter,
        op: ReduceWith | ScanWith,
        lengths: dict[int, Register],
        axis: int | None,
    ) -> None:
        self._e = elements
        self._b = elements.b
        self._op = op
        self._coords = own_coords(op.xs[0].tile.shape)
        self._lengths = lengths
        self._axis = axis
        self._width = elements.lanes.width

    def over(self, axes: list[int]) -> None:
        """Loops over the other axes, then the lines themselves."""
        if not axes:
            self._combine_line()
        elif len(axes) == 1 and self._width > 1:
            self._across(axes[0])
        else:
            self._b.count_up(self._lengths[axes[0]], lambda position: self._one(axes, position))

    def _one(self, axes: list[int], position: Register) -> None:
        self._e.loops[axes[0]] = Strided(position, index(0))
        with self._e.scope():
            self.over(axes[1:])

    def _across(self, axis: int) -> None:
        """Lines side by side, one in each lane."""
        b, width, length = self._b, self._width, self._lengths[axis]
        end = b.round_down(length, width)

        def whole(position: Register, _: State) -> None:
            self._lanes_at(axis, position, None)

        b.loop(index(0), end, index(width), whole)
        if is_known_multiple(length, end):
            return
        rest = b.subtract(length, end)

        def tail() -> None:
            self._lanes_at(axis, end, b.first_lanes(rest, width))

        b.if_else(b.compare("sgt", rest, index(0)), tail)

    def _lanes_at(self, axis: int, position: Register, mask: Register | None) -> None:
        self._e.loops[axis] = Strided(position, index(1))
        self._e.lanes = Lanes(self._width, mask)
        with self._e.scope():
            self._combine_line()
        self._e.lanes = Lanes(self._width)

    # --- one line ---------------------------------------------------------------------------------

    def _combine_line(self) -> None:
        if self._axis is None:
            self._finish(self._take_first())
            return
        length = self._lengths[self._axis]
        if length.constant:
            self._finish(self._along(length))
            return
        is_filled = self._b.compare("sgt", length, index(0))
        self._finish(self._b.if_else(is_filled, lambda: self._along(length), self._nothing))

    def _along(self, length: Register) -> State:
        """The combination of all elements, of which there is at least one."""
        with self._e.scope():
            self._move_to(index(0), length)
            first = self._take_first()

        def step(position: Register, state: State) -> State:
            with self._e.scope():
                self._move_to(position, length)
                return self._take(state)

        return self._b.loop(index(1), length, index(1), step, first)

    def _move_to(self, position: Register, length: Register) -> None:
        assert self._axis is not None
        if isinstance(self._op, ScanWith) and self._op.reverse:
            position = self._b.subtract(self._b.subtract(length, index(1)), position)
        self._e.loops[self._axis] = Strided(position, index(0))

    def _nothing(self) -> State:
        others = self._op.others if isinstance(self._op, ReduceWith) else None
        pairs = zip(others or (0,) * len(self._op.xs), self._op.xs)
        return tuple(self._spread(_constant(self._e, value, x.tile.dtype)) for value, x in pairs)

    def _take_first(self) -> State:
        return self._note(self._elements())

    def _elements(self) -> State:
        return tuple(self._spread(self._e.register((x, self._coords))) for x in self._op.xs)

    def _spread(self, x: Register) -> Register:
        return self._b.splat(x, self._width)

    def _take(self, state: State) -> State:
        """The state combined with the present elements."""
        region = self._op.combine
        for arg, x in zip(region.args, (*state, *self._elements())):
            self._e.assume(arg, x)
        new = (self._e.register((value, ())) for value in region.yielded)
        return self._note(tuple(map(self._spread, new)))

    # --- results ----------------------------------------------------------------------------------

    def _note(self, state: State) -> State:
        """A scan's results so far."""
        if isinstance(self._op, ScanWith):
            self._write_all(state)
        return state

    def _finish(self, state: State) -> None:
        """A reduction's results."""
        if isinstance(self._op, ReduceWith):
            self._write_all(state)

    def _write_all(self, state: State) -> None:
        for result, value in zip(self._op.results, state):
            if not result.tile.rank:
                self._e.scalars[result] = value
            elif result in self._e.buffers:
                self._write(result, value)

    def _write(self, result: Value, value: Register) -> None:
        coords = self._coords
        if isinstance(self._op, ReduceWith):
            coords = coords[: self._op.axis] + coords[self._op.axis + 1 :]
        buffer = self._e.buffers[result]
        position = self._e.buffer_position(buffer, coords)
        stored = to_memory(self._b, buffer.dtype, value)
        write(self._b, buffer.elements, position, stored, self._e.lanes)


def _constant(elements: ElementEmitter, value: float, dtype: DType) -> Register:
    x = number(register_element(dtype), value)
    return round_to(elements.b, dtype, x) if dtype.is_low_precision_float and value else x
